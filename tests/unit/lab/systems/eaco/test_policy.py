"""EaCO's decisions, step by step, on V100s with the slowdowns that EaCO's authors measured."""

import math

import numpy as np
import pytest
from support.policy_runs import run_emulated, starts

from heshare.lab.systems.eaco.policy import Eaco
from heshare.lab.systems.shared.co_location import CoLocationHistory
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CoRuns
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

V100 = gpu("V100-SXM2")
ALEXNET, RESNET18, RESNET50, VGG16 = (
    Workload(f"eaco_{name}", 32, phase="training") for name in ("alexnet", "resnet18", "resnet50", "vgg16")
)
# Seconds per step alone.
STEP_S = {ALEXNET: 0.2778, RESNET18: 0.2808, RESNET50: 0.2878, VGG16: 0.2888}


class NoSlowdownPredictor(DevicePredictor):
    """Predicts that tasks that share a GPU are not slowed down."""

    def co_run(self, sets, gpu, sm_mhz):
        alone = [
            super(NoSlowdownPredictor, self).co_run([(one,) for one in each], gpu, [None] * len(each)) for each in sets
        ]
        time_s = np.full((len(sets), max(map(len, sets))), np.nan)
        for row, each in enumerate(alone):
            time_s[row, : len(sets[row])] = each.time_s[:, 0]
        return CoRuns(time_s, np.array([each.power_w.max() for each in alone]))


def job(number, workload, hours, arrival_s=0.0, *, deadline=math.inf, **more):
    """A job of so many hours alone, in ten epochs; its deadline in multiples of that from its arrival."""
    alone_s = 3600.0 * hours
    return Task(
        number, workload, alone_s / STEP_S[workload], arrival_s, epochs=10,
        deadline_s=arrival_s + deadline * alone_s, **more,
    )  # fmt: skip


def simulate(tasks, gpus=2, policy=None, predictor=None):
    return run_emulated(tasks, policy or Eaco(), Cluster((V100,) * gpus), predictor=predictor)


def test_history():
    """The history begins with the measured sets and records others."""
    history = CoLocationHistory(DevicePredictor())
    pair = [RESNET50, ALEXNET]
    # 36.63 h together, 34.76 and 36.01 h alone.
    slower = 36.63 / ((34.76 + 36.01) / 2)
    expected = [slower * STEP_S[one] for one in pair]
    assert history.times_s(V100, pair) == pytest.approx(expected, rel=1e-4)
    assert history.throughput(V100, pair) == pytest.approx(2 / slower)
    assert history.utilisation(V100, pair) == pytest.approx(0.0472 + 0.3661, rel=1e-3)
    unseen = [RESNET18, ALEXNET]
    assert history.times_s(V100, unseen) == pytest.approx([1.035 * STEP_S[one] for one in unseen], rel=1e-4)
    history.record(V100, [(ALEXNET, 0.5), (RESNET18, 0.6)])
    assert history.times_s(V100, unseen) == [0.6, 0.5]


def test_most_utilised_gpu():
    """EaCO chooses the most utilised GPU that has no trial."""
    tasks = [
        job(0, ALEXNET, 20),
        job(1, RESNET50, 20, 10.0),  # GPU 0 has 5 %, GPU 1 nothing
        job(2, VGG16, 20, 20.0),  # GPU 0 is on trial
        job(3, RESNET18, 20, 20_000.0),  # 41 % and 48 %
        job(4, ALEXNET, 20, 20_010.0),  # GPU 1 is on trial
    ]
    assert starts(simulate(tasks)) == [(0, 0, 0), (1, 0, 10), (2, 1, 20), (3, 1, 20_000), (4, 0, 20_010)]


def test_trial():
    """EaCO tries an allocation for an epoch of every job."""
    # Job 1 joins at once; the longest epoch there is a tenth of 20 h, 3.5 % slower: 7452 s.
    early, late = job(2, RESNET50, 1, 7_400.0), job(2, RESNET50, 1, 7_500.0)
    pair = [job(0, ALEXNET, 20), job(1, RESNET18, 10)]
    assert starts(simulate([*pair, early]))[2] == (2, 1, 7_400)
    assert starts(simulate([*pair, late]))[2] == (2, 0, 7_500)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({}, 0),
        ({"util_max": 0.4}, 1),  # 41 % is above
        ({"util_max": 0.42}, 0),
        ({"memory_max": 0.3}, 1),  # 5275 of 16 160 MiB are taken
        ({"memory_max": 0.35}, 0),
        ({"jobs_max": 2}, 1),
    ],
)
def test_limits(changed, where):
    """EaCO keeps its limits of utilisation, memory and jobs."""
    tasks = [job(0, ALEXNET, 20), job(1, RESNET50, 20), job(2, RESNET18, 1, 20_000.0)]
    assert starts(simulate(tasks, policy=Eaco(**changed)))[2] == (2, where, 20_000)


def test_deadlines():
    """EaCO places a job where every deadline is predicted to hold."""
    # 3.5 % slower for all of its time breaks a deadline of 1.03, and not one of 1.04: the newcomer's, the host's.
    for tasks in (
        [job(0, ALEXNET, 20), job(1, RESNET18, 10, deadline=1.03)],
        [job(0, ALEXNET, 10, deadline=1.03), job(1, RESNET18, 20)],
    ):
        assert starts(simulate(tasks)) == [(0, 0, 0), (1, 1, 0)]
        assert starts(simulate(tasks, gpus=1))[1][2] == pytest.approx(
            3600 * tasks[0].iterations * STEP_S[ALEXNET] / 3600
        )
    assert starts(simulate([job(0, ALEXNET, 20), job(1, RESNET18, 10, deadline=1.04)])) == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    # 10 h of the host's 20 h are shared: 1.75 % slower in all, but EaCO predicts as if the newcomer stayed.
    assert starts(simulate([job(0, ALEXNET, 20, deadline=1.03), job(1, RESNET18, 10)])) == [
        (0, 0, 0),
        (1, 1, 0),
    ]


def test_undo():
    """EaCO undoes an allocation at the end of the epoch."""
    # Predicted to cost nothing, it costs 3.5 %. The host's epoch is 1 h and the newcomer's 0.5 h, so that the trial is
    # over after 1.035 h; the newcomer's second epoch ends at the same moment. It continues on the other GPU at once.
    tasks = [job(0, ALEXNET, 10, deadline=1.02), job(1, RESNET18, 5)]
    result = simulate(tasks, predictor=NoSlowdownPredictor())
    assert starts(result) == [(0, 0, 0), (1, 0, 0), (1, 1, round(1.035 * 3600, 3))]
    assert result.record.intervals[0].outcome == "paused"
    assert result.record.intervals[0].iterations == pytest.approx(tasks[1].iterations / 5)
    assert result.completion_s == pytest.approx([10.035 * 3600, 5.035 * 3600])


def test_own_epoch():
    """EaCO keeps a job until the end of its own epoch."""
    # The host's epoch is over after 1.035 h, when the newcomer is in the middle of its first: it leaves at 2.07 h.
    result = simulate([job(0, ALEXNET, 10, deadline=1.02), job(1, RESNET18, 20)], predictor=NoSlowdownPredictor())
    assert starts(result)[2] == (1, 1, round(2.07 * 3600, 3))
    assert result.record.intervals[0].iterations == pytest.approx(result.tasks[1].iterations / 10)


def test_no_repetition():
    """EaCO does not repeat an undone allocation."""
    # One GPU: job 1 waits for job 0 after the undo, and job 2, of the same kind, is not even tried.
    tasks = [job(0, ALEXNET, 10, deadline=1.02), job(1, RESNET18, 5), job(2, RESNET18, 1, 5_000.0)]
    result = simulate(tasks, gpus=1, predictor=NoSlowdownPredictor())
    assert [task for task, _, start_s in starts(result) if start_s < 10 * 3600] == [0, 1]
    assert [start_s for task, _, start_s in starts(result) if task == 1][1] == pytest.approx(10.035 * 3600)


def test_gangs_and_nodes():
    """EaCO keeps a gang in one node and gives whole nodes to a larger one."""
    tasks = [job(0, VGG16, 1), job(1, ALEXNET, 1, 10.0, gpus=3), job(2, RESNET18, 1, 20.0)]
    # Node 0 has one GPU at 48 %: its other GPUs and that one make the set of highest utilisation.
    assert starts(simulate(tasks, gpus=6, policy=Eaco(gpus_per_node=3)))[1:4] == [
        (1, 0, 10),
        (1, 1, 10),
        (1, 2, 10),
    ]
    # In nodes of two, three GPUs are two whole nodes, and there is one until job 0 is done.
    assert starts(simulate(tasks[:2], gpus=4, policy=Eaco(gpus_per_node=2)))[1:] == [(1, gpu, 3600) for gpu in range(3)]


def test_fewest_empty_gpus():
    """EaCO takes empty GPUs of the node with the fewest."""
    # Nodes of two, and deadlines that no job keeps if it shares. Job 0 has node 0, job 1 a GPU of node 1.
    strict = {"deadline": 1.01}
    tasks = [job(0, VGG16, 1, gpus=2, **strict), job(1, VGG16, 9, 1.0, **strict), job(2, VGG16, 9, 3700.0, **strict)]
    result = simulate(tasks, gpus=4, policy=Eaco(gpus_per_node=2))
    # At 3700 s node 0 is empty again and comes first by number, but node 1 has one empty GPU alone.
    assert starts(result)[2:] == [(1, 2, 1), (2, 3, 3700)]


def test_no_candidates():
    """EaCO passes over a job without candidates."""
    # GPU 0 has 96 % after jobs 0 and 1: job 2 (two GPUs) waits for GPU 0; job 3 goes to GPU 1.
    tasks = [job(0, VGG16, 2), job(1, VGG16, 2), job(2, ALEXNET, 1, 2_000.0, gpus=2), job(3, ALEXNET, 1, 2_001.0)]
    started = {task: start_s for task, _, start_s in starts(simulate(tasks))}
    assert started[3] == 2_001
    assert started[2] > 7_000
