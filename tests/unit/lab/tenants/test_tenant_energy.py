"""Energy of each task of a run: sums in both ways, made-up timelines, runs that pause, move and gang tasks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heshare as hs
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.paper.explore.results import DrawableRun
from heshare.running.timeline import Interval, Segment, Timeline
from heshare.shared.errors import InputError
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

WORKLOADS = (
    Workload("mobilenet", 1), Workload("vgg19", 32), Workload("bert_large", 8), Workload("no_such_network", 1),
)  # fmt: skip
"""The fourth is in no record and in no model."""
CLUSTER = hs.Cluster.parse("1xT4,1xA100")
POWER = TenantPower()


def busy_j(done):
    """The energy of every GPU while tasks ran on it, J."""
    return sum(part.power_w * (part.end_s - part.start_s) for part in done.record.segments if part.residents)


def made_up(segments):
    """A run of four tasks with these segments, each GPU's one after the other; every task ends with the last."""
    ends_s, rows = [0.0, 0.0], []
    for gpu, duration_s, mhz, power_w, residents in segments:
        start_s = ends_s[gpu]
        ends_s[gpu] = start_s + duration_s
        rows.append(
            Segment(gpu, start_s, ends_s[gpu], None, mhz, power_w, tuple((task, pct, 0.1) for task, pct in residents))
        )
    intervals = tuple(
        Interval(task, gpu, 0.0, max(ends_s), 50, WORKLOADS[task].batch_size, 1.0, "completed")
        for task in range(4) for gpu in range(2)
    )  # fmt: skip
    tasks = tuple(Task(number, workload, 1.0, 0.0) for number, workload in enumerate(WORKLOADS))
    record = Timeline(CLUSTER.labels, tuple(rows), intervals)
    return DrawableRun("made up", CLUSTER, tasks, record, np.zeros(2), 0.0, 0, 0, "emulated")


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
def test_tenant_energy_sums_to_the_energy_of_busy_gpus_in_both_ways(segments):
    done = made_up(segments)
    energy = done.tenant_energy(POWER)
    assert energy["energy_j"].sum() == pytest.approx(busy_j(done), rel=1e-9)
    assert energy["energy_model_j"].sum() == pytest.approx(busy_j(done), rel=1e-9)
    assert (energy[["energy_j", "energy_model_j"]] >= 0.0).all(axis=None)
    ran = {task for segment in segments for task, _ in segment[4]}
    assert set(energy["task"][energy["energy_model_j"] > 0.0]) == ran == set(energy["task"][energy["energy_j"] > 0.0])


def test_a_task_alone_gets_all_and_unequal_tasks_get_unequal_parts():
    alone = made_up([(1, 10.0, 1410.0, 300.0, ((1, 50),)), (0, 5.0, 1590.0, 30.0, ())]).tenant_energy(POWER)
    assert alone["energy_j"].tolist() == alone["energy_model_j"].tolist() == [0.0, 3000.0, 0.0, 0.0]
    both = made_up([(1, 10.0, 1410.0, 300.0, ((0, 50), (1, 50)))]).tenant_energy(POWER)
    gpu = CLUSTER.gpus[1]
    idle_j = 10.0 * POWER.idle_w(gpu)
    light_w, heavy_w = (POWER.above_idle_w(gpu, Resident(workload, 50), 1410.0) for workload in WORKLOADS[:2])
    assert both["energy_j"].tolist()[:2] == [1500.0, 1500.0]
    part_j = idle_j / 2 + (3000.0 - idle_j) * light_w / (light_w + heavy_w)
    assert both["energy_model_j"].tolist()[:2] == pytest.approx([part_j, 3000.0 - part_j])
    assert light_w < heavy_w / 2


@pytest.mark.parametrize(
    ("policy", "tasks", "cluster"),
    [
        ("random:all-at-once", 8, "1xT4,1xA100"),
        ("morak", 6, "1xV100,1xA100"),
        ("batch-dvfs", 4, "1xV100"),
        ("gandiva", 6, "2xV100"),
    ],
)
def test_energies_of_tasks_and_of_idle_gpus_are_the_cluster_account(policy, tasks, cluster):
    done = hs.run(hs.task_set(tasks, arrivals="miso", seed=2), cluster, policy)
    energy = done.tenant_energy()
    idle_j = done.energy_cluster_j - busy_j(done)
    for name in ("energy_j", "energy_model_j"):
        assert energy[name].sum() + idle_j == pytest.approx(done.energy_cluster_j, rel=1e-9)
        assert (energy[name] > 0.0).all()
    assert energy["gpu"].tolist() == done.to_frame()["gpu"].tolist()


def test_a_run_without_a_timeline_is_refused():
    done = made_up([(0, 1.0, 1000.0, 50.0, ((0, 50),))])
    empty = dataclasses.replace(done, record=Timeline(CLUSTER.labels, (), ()))
    with pytest.raises(InputError, match="found a run that kept only totals"):
        empty.tenant_energy()
