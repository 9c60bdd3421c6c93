"""FIFO, shortest first and exclusive GPUs: who starts where, by hand."""

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.testing.policies import check_run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT = Workload("resnet18", 4)
BIG = Workload("bert_large", 64)
THREE = (toy_gpu(),) * 3


def task(index, iterations, arrival_s=0.0, gpus=1, workload=LIGHT):
    return Task(index, workload, iterations, arrival_s, gpus=gpus)


class Faster:
    """Believes that cards named Fast run twice as fast."""

    calls = 0

    def solo(self, workloads, gpu, sm_mhz=None):
        return ToyPredictor(base_s=0.5 if gpu.name == "Fast" else 1.0).solo(workloads, gpu, sm_mhz)


def go(policy, tasks, gpus=THREE, predictor=None):
    cluster = Cluster(tuple(gpus))
    devices = [ToyDevice(gpu, base_s=0.5 if gpu.name == "Fast" else 1.0) for gpu in gpus]
    options = {"predictor": predictor or ToyPredictor(), "rng": np.random.default_rng(0), "devices": devices}
    result = run(tasks, cluster, make(policy), **options)
    check_run(result)
    return [(each.task, each.gpu, each.start_s, each.end_s) for each in result.record.intervals]


def test_fifo_lets_all_wait_behind_a_gang_that_must_wait():
    tasks = [task(0, 4.0), task(1, 2.0, gpus=3), task(2, 1.0)]
    assert go("fifo", tasks) == [(0, 0, 0, 4), (1, 0, 4, 6), (1, 1, 4, 6), (1, 2, 4, 6), (2, 0, 6, 7)]


def test_backfill_lets_others_pass():
    tasks = [task(0, 4.0), task(1, 2.0, gpus=3), task(2, 1.0)]
    assert go("fifo(backfill=yes)", tasks) == [(2, 1, 0, 1), (0, 0, 0, 4), (1, 0, 4, 6), (1, 1, 4, 6), (1, 2, 4, 6)]


def test_the_shortest_first_among_those_that_wait():
    tasks = [task(0, 5.0), task(1, 4.0), task(2, 1.0), task(3, 2.0, 1.5)]
    assert [each[0] for each in go("sjf", tasks, gpus=(toy_gpu(),))] == [2, 1, 3, 0]


def test_arrivals_keep_their_order():
    tasks = [task(0, 2.0, 1.0), task(1, 2.0, 0.5), task(2, 2.0, 1.0)]
    assert [each[0] for each in go("fifo", tasks, gpus=(toy_gpu(),))] == [1, 0, 2]


GPUS = (toy_gpu("Slow"), toy_gpu("Fast"), toy_gpu("Slow"), toy_gpu("Fast"))


@pytest.mark.parametrize(("policy", "first", "gang"), [("fifo", 0, [1, 2]), ("exclusive", 1, [3, 0])])
def test_which_free_gpus_a_task_takes(policy, first, gang):
    found = go(policy, [task(0, 8.0), task(1, 2.0, gpus=2)], gpus=GPUS, predictor=Faster())
    assert [gpu for index, gpu, *_ in found if index == 0] == [first]
    assert [gpu for index, gpu, *_ in found if index == 1] == gang


def test_a_task_goes_only_where_its_memory_fits():
    small = toy_gpu("Small", memory_mib=8_000.0)
    found = go("fifo", [task(0, 1.0, workload=BIG), task(1, 1.0)], gpus=(small, toy_gpu()))
    assert [(index, gpu) for index, gpu, *_ in found] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("policy", ["fifo", "sjf", "exclusive", "fifo(backfill=yes)"])
@pytest.mark.parametrize("never", [task(0, 1.0, gpus=4), task(0, 1.0, workload=Workload("bert_large", 100_000))])
def test_a_task_that_the_cluster_can_never_hold_is_refused(policy, never):
    with pytest.raises(InputError, match=r"a task that .* can hold"):
        go(policy, [never])


def test_no_such_choice():
    with pytest.raises(InputError, match="first or fastest"):
        make("fifo(gpus=best)")
