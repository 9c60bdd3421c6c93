"""FIFO, shortest first and exclusive: the GPU and the time of each start, by hand."""

import pytest
from support.policy_runs import run_on_toys

from heshare.shared.errors import InputError
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT = Workload("resnet18", 4)
BIG = Workload("bert_large", 64)
THREE = (toy_gpu(),) * 3


def task(index, iterations, arrival_s=0.0, gpus=1, workload=LIGHT):
    return Task(index, workload, iterations, arrival_s, gpus=gpus)


class FastGpuPredictor:
    """Predicts that GPUs named Fast run twice as fast."""

    calls = 0

    def solo(self, workloads, gpu, sm_mhz=None):
        return ToyPredictor(base_s=0.5 if gpu.name == "Fast" else 1.0).solo(workloads, gpu, sm_mhz)


def run_policy(policy, tasks, gpus=THREE, predictor=None):
    devices = [ToyDevice(gpu, base_s=0.5 if gpu.name == "Fast" else 1.0) for gpu in gpus]
    result = run_on_toys(tasks, policy, gpus, devices=devices, predictor=predictor)
    check_run(result)
    return [(interval.task, interval.gpu, interval.start_s, interval.end_s) for interval in result.record.intervals]


def test_fifo():
    """FIFO delays all tasks behind a waiting gang."""
    tasks = [task(0, 4.0), task(1, 2.0, gpus=3), task(2, 1.0)]
    assert run_policy("fifo", tasks) == [(0, 0, 0, 4), (1, 0, 4, 6), (1, 1, 4, 6), (1, 2, 4, 6), (2, 0, 6, 7)]


def test_sjf():
    """SJF starts the shortest waiting task."""
    tasks = [task(0, 5.0), task(1, 4.0), task(2, 1.0), task(3, 2.0, 1.5)]
    assert [start[0] for start in run_policy("sjf", tasks, gpus=(toy_gpu(),))] == [2, 1, 3, 0]


GPUS = (toy_gpu("Slow"), toy_gpu("Fast"), toy_gpu("Slow"), toy_gpu("Fast"))


@pytest.mark.parametrize(("policy", "first", "gang"), [("fifo", 0, [1, 2]), ("exclusive", 1, [3, 0])])
def test_free_gpus(policy, first, gang):
    """FIFO takes the first free GPUs, exclusive the fastest."""
    starts = run_policy(policy, [task(0, 8.0), task(1, 2.0, gpus=2)], gpus=GPUS, predictor=FastGpuPredictor())
    assert [gpu for index, gpu, *_ in starts if index == 0] == [first]
    assert [gpu for index, gpu, *_ in starts if index == 1] == gang


def test_memory():
    """Tasks start only on GPUs that hold them."""
    small = toy_gpu("Small", memory_mib=8_000.0)
    starts = run_policy("fifo", [task(0, 1.0, workload=BIG), task(1, 1.0)], gpus=(small, toy_gpu()))
    assert [(index, gpu) for index, gpu, *_ in starts] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("policy", ["fifo", "sjf", "exclusive"])
@pytest.mark.parametrize("too_large", [task(0, 1.0, gpus=4), task(0, 1.0, workload=Workload("bert_large", 100_000))])
def test_too_large_task(policy, too_large):
    """A task that the cluster can never hold is refused."""
    with pytest.raises(InputError, match=r"a task that .* can hold"):
        run_policy(policy, [too_large])
