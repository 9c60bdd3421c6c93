"""Energy of the tasks of a shared GPU: sums, bounds, order, what the device model does not have, emulated runs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heshare as hs
from heshare.devices.device_model import co_run
from heshare.running.result import Run
from heshare.running.task_energy import nearest_clock, share_energy, split_energy
from heshare.running.timeline import Interval, Segment, Timeline
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

ENERGIES = st.floats(0.0, 1e9)
WEIGHTS = st.lists(st.one_of(st.floats(0.0, 1e4), st.just(math.nan)), min_size=1, max_size=8)

WORKLOADS = (
    Workload("mobilenet", 1), Workload("vgg19", 32), Workload("bert_large", 8), Workload("no_such_network", 1),
)  # fmt: skip
"""The first is the lightest, the second the heaviest; the device model does not have the fourth."""
LIGHT, HEAVY, UNKNOWN = (Resident(WORKLOADS[place], 50) for place in (0, 1, 3))
A100 = gpu("A100")
UNKNOWN_GPU = dataclasses.replace(A100, name="a card that no file describes")
CLUSTER = hs.Cluster.parse("1xT4,1xA100")


def busy_j(done):
    """The energy of every GPU while tasks ran on it, J."""
    return sum(part.power_w * (part.end_s - part.start_s) for part in done.record.segments if part.residents)


# The split by given weights


@given(ENERGIES, ENERGIES, WEIGHTS)
def test_split(energy_j, idle_j, weights):
    """Parts sum to the energy, none is below its part of idle, and a larger weight never gets less in any order."""
    parts_j = split_energy(energy_j, idle_j, weights)

    assert math.fsum(parts_j) == pytest.approx(energy_j, rel=1e-9, abs=1e-300)
    assert min(parts_j) >= 0.0
    assert min(parts_j) >= min(idle_j, energy_j) / len(weights) * (1 - 1e-9)

    known = sorted((weight, part_j) for weight, part_j in zip(weights, parts_j, strict=True) if weight == weight)
    by_weight_j = [part_j for _, part_j in known]
    assert by_weight_j == sorted(by_weight_j)


@pytest.mark.parametrize(
    ("energy_j", "idle_j", "weights", "parts_j"),
    [
        (100.0, 40.0, [30.0, 10.0], [65.0, 35.0]),
        (100.0, 40.0, [7.0], [100.0]),
        (100.0, 40.0, [30.0, math.nan, 10.0], [40 / 3 + 30.0, 40 / 3 + 20.0, 40 / 3 + 10.0]),
        (100.0, 40.0, [math.nan, math.nan], [50.0, 50.0]),
        (100.0, 40.0, [0.0, 0.0], [50.0, 50.0]),
        (30.0, 40.0, [30.0, 10.0], [15.0, 15.0]),
        (0.0, 40.0, [30.0, 10.0], [0.0, 0.0]),
        (5.0, 0.0, [], []),
    ],
)
def test_split_by_hand(energy_j, idle_j, weights, parts_j):
    """Split energy by hand."""
    assert split_energy(energy_j, idle_j, weights) == pytest.approx(parts_j)


# The split by the device model


def test_shares_by_power():
    """Shares are by the power of each alone above idle at the nearest clock, in every way of sharing."""
    idle_w = co_run(A100, ()).power_w
    light_w, heavy_w = (co_run(A100, (alone,), 1005).power_w - idle_w for alone in (LIGHT, HEAVY))
    light_j = 10.0 * idle_w / 2 + (3000.0 - 10.0 * idle_w) * light_w / (light_w + heavy_w)

    turns = [dataclasses.replace(each, sharing="time-slice") for each in (LIGHT, HEAVY)]
    for shared, sm_mhz in (((LIGHT, HEAVY), 1005.0), ((LIGHT, HEAVY), 1006.9), (turns, 1005.0)):
        found_j = share_energy(A100, shared, sm_mhz, 3000.0, 10.0)
        assert found_j == pytest.approx([light_j, 3000.0 - light_j])

    found_mhz = [nearest_clock(A100.clocks_mhz, asked) for asked in (math.nan, 1e9, 1005.0, 1006.9, 1.0)]
    assert found_mhz == [A100.max_mhz, A100.max_mhz, 1005, 1005, A100.clocks_mhz[0]]


def test_unknown_workload():
    """A workload that the model does not have gets the mean of the others."""
    light, heavy = Resident(WORKLOADS[0], 20), Resident(WORKLOADS[1], 80)
    idle_j = 10.0 * co_run(A100, ()).power_w

    parts_j = share_energy(A100, (light, UNKNOWN, heavy), math.nan, idle_j + 1200.0, 10.0)

    assert parts_j[1] == pytest.approx(idle_j / 3 + 400.0)
    assert parts_j[0] < parts_j[1] < parts_j[2]


def test_nothing_known():
    """What the model does not have at all is divided equally."""
    assert share_energy(UNKNOWN_GPU, (LIGHT, HEAVY), 1005.0, 100.0, 1.0) == pytest.approx([50.0, 50.0])
    assert share_energy(A100, (UNKNOWN, UNKNOWN), 1005.0, 100.0, 1.0) == pytest.approx([50.0, 50.0])
    assert share_energy(A100, (), 1005.0, 100.0, 1.0) == []


# Runs


def made_up(segments):
    """A run of four tasks with these segments, each GPU's one after the other; every task ends with the last."""
    ends_s, rows = [0.0, 0.0], []
    for place, duration_s, mhz, power_w, residents in segments:
        start_s = ends_s[place]
        ends_s[place] = start_s + duration_s
        tasks = tuple((task, pct, 0.1) for task, pct in residents)
        rows.append(Segment(place, start_s, ends_s[place], None, mhz, power_w, tasks))

    intervals = tuple(
        Interval(task, place, 0.0, max(ends_s), 50, WORKLOADS[task].batch_size, 1.0, "completed")
        for task in range(4)
        for place in range(2)
    )
    tasks = tuple(Task(number, workload, 1.0, 0.0) for number, workload in enumerate(WORKLOADS))
    record = Timeline(CLUSTER.labels, tuple(rows), intervals)
    return Run("made up", CLUSTER, tasks, record, np.zeros(2), 0.0, 0, 0, "emulated")


SEGMENTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.floats(1e-3, 1e6),
        st.floats(100.0, 2000.0),
        st.floats(1.0, 500.0),
        st.dictionaries(st.integers(0, 3), st.integers(1, 100)).map(lambda of: tuple(of.items())),
    ),
    min_size=1,
)
"""Tasks come and go, come again, run on both GPUs at once; and gaps in which nothing runs."""


@settings(max_examples=60)
@given(SEGMENTS)
def test_sum_of_tasks(segments):
    """Energies of tasks sum to that of busy GPUs."""
    done = made_up(segments)
    energy = done.energy_by_task()

    assert energy["energy_j"].sum() == pytest.approx(busy_j(done), rel=1e-9)
    ran = {task for segment in segments for task, _ in segment[4]}
    assert set(energy["task"][energy["energy_j"] > 0.0]) == ran


def test_alone_and_idle():
    """A task alone gets all the energy; that of an idle GPU is no task's."""
    done = made_up([(1, 10.0, 1410.0, 300.0, ((1, 50),)), (0, 5.0, 1590.0, 30.0, ())])
    assert done.energy_by_task()["energy_j"].tolist() == [0.0, 3000.0, 0.0, 0.0]


def test_changed_batch_size():
    """A task weighs as the inference batch size at which it runs."""
    done = made_up([(1, 10.0, 1410.0, 300.0, ((0, 50), (1, 50)))] * 2)
    half_s = done.record.segments[0].end_s
    larger = [Interval(0, 1, half_s, 2 * half_s, 50, 64, 1.0, "completed")]
    first = [each._replace(end_s=half_s) if each[:2] == (0, 1) else each for each in done.record.intervals]
    changed = dataclasses.replace(done, record=Timeline(CLUSTER.labels, done.record.segments, (*first, *larger)))

    parts_j = [
        share_energy(A100, (Resident(Workload("mobilenet", batch), 50), HEAVY), 1410.0, 3000.0, 10.0)[0]
        for batch in (1, 64)
    ]

    assert parts_j[0] < parts_j[1]
    assert changed.energy_by_task()["energy_j"][0] == pytest.approx(sum(parts_j))


def test_no_timeline():
    """A run without a timeline is refused."""
    done = made_up([(0, 1.0, 1000.0, 50.0, ((0, 50),))])
    empty = dataclasses.replace(done, record=Timeline(CLUSTER.labels, (), ()))
    with pytest.raises(InputError, match="found a run that kept only totals"):
        empty.energy_by_task()
