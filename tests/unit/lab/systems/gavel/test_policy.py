"""FIFO_packed and Gandiva on V100s, decision by decision."""

from support.policy_runs import run_emulated, starts

from heshare.lab.systems.gavel.policy import FifoPacked, Gandiva
from heshare.lab.systems.shared.training import step
from heshare.prediction.oracle import DevicePredictor
from heshare.world.catalogue import gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

V100 = gpu("V100-SXM2")
ALEXNET, RESNET18, RESNET50, VGG16 = (
    Workload(f"eaco_{name}", 32, phase="training") for name in ("alexnet", "resnet18", "resnet50", "vgg16")
)
# Two of them keep a V100 busy for 1.96 of every second.
HEAVY = Workload("vgg19", 32)


def job(number, workload, hours, arrival_s=0.0, **more):
    """A training of so many hours alone."""
    return Task(number, workload, 3600.0 * hours / step(workload).step_s, arrival_s, **more)


def test_pairs():
    """Gavel packs pairs only when no GPU is free."""
    tasks = [job(0, ALEXNET, 1), job(1, RESNET18, 1), job(2, RESNET50, 1), job(3, ALEXNET, 1), job(4, ALEXNET, 1)]
    for policy in (FifoPacked(), Gandiva()):
        first = starts(run_emulated(tasks, policy, "2xV100-SXM2"))[:4]
        assert {task for task, _, start_s in first if start_s == 0} == {0, 1, 2, 3}
        assert {(task, gpu) for task, gpu, _ in first[:2]} == {(0, 0), (1, 1)}
        assert {gpu for _, gpu, _ in first[2:]} == {0, 1}


def test_best_partner():
    """FIFO_packed takes the best partner above its threshold."""
    # The pair's sum of speeds: 1.932 with either of two light hosts unless it was measured; ResNet-50 and AlexNet were
    # (3.52 % slower, 1.932), VGG-16 and AlexNet as well (3.00 %, 1.942): the latter is the best.
    tasks = [job(0, RESNET50, 9), job(1, VGG16, 9), job(2, ALEXNET, 1)]
    assert starts(run_emulated(tasks, FifoPacked(), "2xV100-SXM2"))[2] == (2, 1, 0)
    assert starts(run_emulated(tasks, FifoPacked(threshold=1.95), "2xV100-SXM2"))[2][2] == 9 * 3600
    assert starts(run_emulated(tasks, FifoPacked(threshold=1.94), "2xV100-SXM2"))[2] == (2, 1, 0)


def test_slow_pair():
    """A pair that is slower than one job alone is not made, or split."""
    tasks = [Task(0, HEAVY, 50_000.0), Task(1, HEAVY, 20_000.0)]
    alone_s = DevicePredictor().solo([HEAVY], V100).time_s[0, 0]
    first_s = round(50_000 * alone_s, 3)
    assert starts(run_emulated(tasks, FifoPacked(), "1xV100-SXM2")) == [(0, 0, 0), (1, 0, first_s)]
    # Gandiva checks after 360 s: a sum of speeds of about 0.97. The pair is split and not made again.
    result = run_emulated(tasks, Gandiva(), "1xV100-SXM2")
    assert starts(result)[:2] == [(0, 0, 0), (1, 0, 0)]
    assert result.record.intervals[0][3:8:4] == (360.0, "paused")
    assert len(result.record.intervals) == 3
    assert starts(run_emulated(tasks, Gandiva(least=0.9), "1xV100-SXM2")) == [(0, 0, 0), (1, 0, 0)]


def test_gangs():
    """Gavel places a gang on the fullest node that suffices and pairs gangs of equal size."""
    # Nodes of four: job 0 takes one GPU of node 0, so that job 1 (2 GPUs) goes beside it, job 2 (4 GPUs) to node 1.
    tasks = [job(0, ALEXNET, 9), job(1, RESNET18, 9, gpus=2), job(2, VGG16, 9, gpus=4), job(3, ALEXNET, 1, gpus=2)]
    found = starts(run_emulated(tasks, FifoPacked(gpus_per_node=4), "8xV100-SXM2"))
    assert [(task, gpu) for task, gpu, _ in found[:7]] == [(0, 0), (1, 1), (1, 2), (2, 4), (2, 5), (2, 6), (2, 7)]
    assert found[7:] == [(3, 1, 0), (3, 2, 0)]


def test_order():
    """Gavel starts no task behind one that must wait."""
    tasks = [job(0, ALEXNET, 1), job(1, ALEXNET, 1, gpus=2), job(2, RESNET18, 1, 1.0)]
    assert starts(run_emulated(tasks, FifoPacked(), "2xV100-SXM2")) == [
        (0, 0, 0),
        (1, 0, 3600),
        (1, 1, 3600),
        (2, 0, 2 * 3600),
    ]
