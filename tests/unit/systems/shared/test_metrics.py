"""Every metric from intervals and segments small enough to add up by hand."""

import math

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.running.result import jct_summary
from heshare.running.timeline import Segment
from heshare.systems.shared import metrics
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT = Workload("resnet18", 4)
ONE, TWO = ((0, 100, 2.0),), ((0, 100, 2.0), (1, 100, 2.0))


def busy(gpu, start_s, end_s, residents, power_w=100.0):
    return Segment(gpu, start_s, end_s, None, 1000.0, power_w, residents)


def idle(gpu, start_s, end_s):
    return Segment(gpu, start_s, end_s, None, 1000.0, 10.0, ())


# Two nodes of two GPUs. Node 0 is awake 0-4 (GPU 0: 0-2, GPU 1: 1-4) and 6-8; node 1 never.
SEGMENTS = (
    busy(0, 0.0, 2.0, ONE), idle(0, 2.0, 6.0), busy(0, 6.0, 8.0, TWO),
    idle(1, 0.0, 1.0), busy(1, 1.0, 4.0, ONE), idle(1, 4.0, 8.0),
    idle(2, 0.0, 8.0), idle(3, 0.0, 8.0),
)  # fmt: skip


def test_jcts():
    assert jct_summary([1.0, 2.0, 3.0, 6.0]) == {
        "avg_jct_s": 3.0, "median_jct_s": 2.5, "p99_jct_s": pytest.approx(3.0 + 0.97 * 3.0),
    }  # fmt: skip
    assert metrics.slowdown([4.0, 3.0], [2.0, 3.0]).tolist() == [2.0, 1.0]
    with pytest.raises(InputError, match="at least one"):
        jct_summary([])


def test_deadlines_count_only_where_there_is_one():
    tasks = [Task(0, LIGHT, 1.0, deadline_s=5.0), Task(1, LIGHT, 1.0, deadline_s=5.0), Task(2, LIGHT, 1.0)]
    assert metrics.deadlines_met([5.0, 5.1, 99.0], tasks) == 0.5
    assert metrics.deadlines_met([math.nan, 4.0, 99.0], tasks) == 0.5
    assert math.isnan(metrics.deadlines_met([99.0], tasks[2:]))


def test_classes_are_averaged_apart():
    tasks = [Task(0, LIGHT, 1.0, priority=1), Task(1, LIGHT, 1.0), Task(2, LIGHT, 1.0, priority=1)]
    assert metrics.class_means([1.0, 5.0, 3.0], tasks) == {0: 5.0, 1: 2.0}


def test_gpu_utilisation_is_weighted_by_time_and_never_above_one():
    # 60 % alone: 2 s on GPU 0 and 3 s on GPU 1; together 120 %, so 1, for 2 s.
    assert metrics.gpu_utilisation(SEGMENTS, lambda task, gpu, time_s: 0.3 * time_s) == pytest.approx(
        (0.6 * 5 + 1.0 * 2) / 7
    )
    assert math.isnan(metrics.gpu_utilisation(SEGMENTS[-2:], lambda task, gpu, time_s: 1.0))


def test_average_active_counts_gpus_or_nodes():
    assert metrics.average_active(SEGMENTS, 8.0) == pytest.approx(7 / 8)
    assert metrics.average_active(SEGMENTS, 8.0, gpus_per_node=2) == pytest.approx(6 / 8)
    assert metrics.average_active(SEGMENTS[-2:], 8.0) == 0.0


def test_the_account_of_nodes():
    gpus = [(2 + 2) * 100 + 4 * 10 + 3 * 100 + (1 + 4) * 10, 160]
    assert metrics.node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2).tolist() == gpus
    with_hosts = metrics.node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2, host_w=50.0)
    assert with_hosts.tolist() == [gpus[0] + 400, 160 + 400]
    # Asleep at 3 W: node 0 from 4 to 6 (two idle GPUs less, 40 J), node 1 always.
    asleep = metrics.node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2, host_w=50.0, sleep_w=3.0)
    assert asleep.tolist() == [gpus[0] - 40 + 300 + 6, 24.0]
    # Until 5 s, GPU 0 had 2 s busy and 3 s idle, GPU 1 1 s idle, 3 s busy, 1 s idle; asleep from 4 to 5.
    early = metrics.node_energy_j(SEGMENTS, 4, 5.0, gpus_per_node=2, sleep_w=0.0)
    assert early.tolist() == [500 + 20 + 10, 0.0]


def test_a_node_that_sleeps_at_its_own_power_saves_nothing():
    rng = np.random.default_rng(0)
    segments = []
    for gpu in range(6):
        ends = np.cumsum(rng.uniform(0.1, 2.0, 8))
        for at, (start_s, end_s) in enumerate(zip([0.0, *ends[:-1]], ends, strict=True)):
            segments.append(idle(gpu, start_s, end_s) if at % 3 else busy(gpu, start_s, end_s, ONE))
    until_s = min(each.end_s for each in segments if each.end_s > 5)
    awake = metrics.node_energy_j(segments, 6, until_s, gpus_per_node=3, host_w=7.0)
    asleep = metrics.node_energy_j(segments, 6, until_s, gpus_per_node=3, host_w=7.0, sleep_w=37.0)
    covered = min(sum(each.end_s - each.start_s for each in segments if each.gpu == gpu) for gpu in range(6))
    assert covered >= until_s
    assert asleep == pytest.approx(awake)
