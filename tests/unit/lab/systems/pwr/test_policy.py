"""PWR's and FGD's scores against cases worked out by hand, and where the policy places tasks."""

import math

import numpy as np
import pytest
from support.policy_runs import run_emulated

from heshare.lab.systems.pwr.fragmentation import (
    Nodes,
    Request,
    fits,
    fragmentation,
    normalised,
    power_w,
    scores,
)
from heshare.testing.policy_contract import placement
from heshare.world.task import Task
from heshare.world.workload import Workload

T4, A100 = (10.0, 70.0), (50.0, 400.0)
SHARE, WHOLE, PAIR, CPU_ONLY = Request(1, 300), Request(1), Request(2), Request(0, 0, 8.0)


def nodes(*free, kinds=None, vcpus=None):
    """Nodes with these free milli on their GPUs, of two each, and 64 virtual CPUs."""
    kinds = kinds or [T4] * len(free)
    shape = np.ones((len(free), 2))
    return Nodes(
        np.array(free, dtype=np.int64),
        np.full((len(free), 2), 1000),
        shape * np.array([[idle] for idle, _ in kinds]),
        shape * np.array([[full] for _, full in kinds]),
        np.full(len(free), 64.0) if vcpus is None else np.array(vcpus, dtype=float),
        np.full(len(free), 64.0),
    )


@pytest.mark.parametrize(
    ("free", "request_", "able"),
    [
        ((1000, 1000), PAIR, True),
        ((1000, 900), PAIR, False),
        ((1000, 900), WHOLE, True),
        ((900, 900), WHOLE, False),
        ((299, 300), SHARE, True),
        ((299, 299), SHARE, False),
        ((0, 0), CPU_ONLY, True),
    ],
)
def test_fits(free, request_, able):
    """A request fits where its GPUs or shares are free."""
    assert fits(nodes(free), request_).tolist() == [able]


def test_power():
    """A GPU with any share allocated counts with all of its power, a package of processors as idle or as full."""
    # Two idle packages of processors draw 30 W in each node.
    states = nodes((1000, 1000), (999, 1000), (0, 0), kinds=[T4, T4, A100])
    assert power_w(states).tolist() == [50.0, 110.0, 830.0]

    # 64 virtual CPUs are 32 cores, two packages of 16: both idle 30 W, one busy 135 W, both busy 240 W.
    free = [64, 63, 62, 32, 31, 0]
    states = nodes(*[(1000, 1000)] * len(free), vcpus=free)
    assert (power_w(states) - 20.0).tolist() == [30.0, 135.0, 135.0, 135.0, 240.0, 240.0]


def test_power_scores():
    """Scores of power prefer a GPU in use."""
    # On the first node GPU 1 is in use: nothing is added. On the second any GPU adds 70 - 10 W; the first is taken.
    (found,) = scores(nodes((1000, 700), (1000, 1000)), [SHARE], [SHARE], [1.0])
    assert (found.node.tolist(), found.power_gpu.tolist(), found.saved_w.tolist()) == ([0, 1], [1, 0], [0, -60])


@pytest.mark.parametrize(
    ("saved_w", "expected"), [([0, -60, -350], [100, 82, 0]), ([-60, -60], [100, 100]), ([-60], [100])]
)
def test_normalised(saved_w, expected):
    """Normalised scores are whole numbers up to 100."""
    assert normalised(np.array(saved_w)).tolist() == expected


@pytest.mark.parametrize(
    ("free", "lost"),
    [
        # Half of the tasks request 300 milli, half a whole GPU.
        ((1000, 1000), 0.0),
        ((1000, 200), 0.5 * 200 + 0.5 * 200),
        ((700, 200), 0.5 * 200 + 0.5 * 900),
        ((200, 200), 0.5 * 400 + 0.5 * 400),
    ],
)
def test_fragmentation(free, lost):
    """Fragmentation is as computed by hand."""
    assert fragmentation(nodes(free), [SHARE, WHOLE], [0.5, 0.5]).tolist() == [lost]


def test_fragmentation_scores():
    """Scores of fragmentation are as computed by hand."""
    # 300 of (1000, 500): on GPU 0, (700, 500), whole GPUs lose 1200 instead of 500: F = 0.5 x 700 worse. On GPU 1,
    # (1000, 200): shares lose 200 instead of 0, whole GPUs 200 instead of 500: F = 0.5 x 100 better.
    (found,) = scores(nodes((1000, 500)), [SHARE], [SHARE, WHOLE], [0.5, 0.5])
    assert (found.node.tolist(), found.fragmentation_gpu.tolist()) == ([0], [1])
    assert found.fragmentation.tolist() == [math.floor(100 / (1 + math.exp(-0.05)))]


def test_several_tasks():
    """Scores of several tasks are those of each alone."""
    states = nodes((1000, 500), (300, 300))
    both = scores(states, [SHARE, WHOLE], [SHARE, WHOLE], [0.5, 0.5])
    for each, request in zip(both, [SHARE, WHOLE], strict=True):
        (alone,) = scores(states, [request], [SHARE, WHOLE], [0.5, 0.5])
        assert all(np.array_equal(getattr(each, name), getattr(alone, name)) for name in each.__slots__)


def tasks(count):
    return [Task(index, Workload("resnet50", 4), 1_000.0, float(index)) for index in range(count)]


def test_least_power():
    """PWR alone fills the GPU with the least power first."""
    # An empty T4 adds 60 W, an A100 350 W; a T4 in use adds nothing, as long as its share lasts.
    result = run_emulated(tasks(3), "pwr(alpha=1.0)", "A100,T4")
    assert placement(result)[0] == 1


def test_whole_gpu():
    """PWR never gives more than a whole GPU."""
    result = run_emulated(tasks(8), "pwr", "T4")
    assert max(sum(pct for _, pct, _ in each.residents) for each in result.record.segments) <= 100
