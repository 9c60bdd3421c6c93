"""Trainings on random clusters of nodes under EaCO, Gavel's policies and PowerFlow keep to their limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heshare.lab.systems.eaco.policy import Eaco
from heshare.lab.systems.gavel.policy import FifoPacked, Gandiva
from heshare.lab.systems.power_flow.policy import PowerFlow
from heshare.lab.systems.shared.training import step, workloads
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.world.cluster import Cluster
from heshare.world.task import Task

NODE = 4
CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@st.composite
def trainings(draw, *, elastic=False):
    """Return up to ten trainings on 1, 2 or 4 GPUs, some with deadlines, and a cluster of one or two nodes."""
    made = []
    for number in range(draw(st.integers(1, 10))):
        workload = draw(st.sampled_from(workloads("gavel", "V100")))
        alone_s = draw(st.floats(60, 20_000))
        arrival_s = float(draw(st.integers(0, 10_000)))
        deadline = draw(st.sampled_from([math.inf, 1.05, 1.2, 2.0, 10.0]))
        gpus = draw(st.sampled_from([1, 1, 1, 2, 4]))
        made.append(
            Task(number, workload, alone_s / step(workload).step_s, arrival_s, gpus=gpus,
                 deadline_s=arrival_s + deadline * alone_s, epochs=draw(st.sampled_from([None, 5, 50])))
        )  # fmt: skip
    if elastic:
        made = [replace(task, widths=(1, 2, 4), epochs=None) for task in made]
    return tuple(made), Cluster.parse(f"{NODE * draw(st.integers(1, 2))}xV100")


def go(world, policy, start_cost_s=0.0):
    tasks, cluster = world
    options = {"predictor": DevicePredictor(), "rng": np.random.default_rng(0), "start_cost_s": start_cost_s}
    return run(tasks, cluster, policy, **options)


def gangs(result):
    """Return the GPUs of each interval, by task and start."""
    gpus = {}
    for interval in result.record.intervals:
        gpus.setdefault((interval.task, interval.start_s), set()).add(interval.gpu)
    return gpus


def check_gangs(result):
    """Assert that every gang is in one node, on a number of GPUs that its task allows."""
    for (task, _), gpus in gangs(result).items():
        assert len({gpu // NODE for gpu in gpus}) == 1
        assert len(gpus) in {result.tasks[task].gpus, *result.tasks[task].widths}


@settings(max_examples=40, **CALM)
@given(world=trainings(), jobs_max=st.integers(1, 4))
def test_eaco(world, jobs_max):
    """EaCO shares within its limits and keeps deadlines that can be met."""
    policy = Eaco(gpus_per_node=NODE, jobs_max=jobs_max)
    result = go(world, policy)
    check_run(result)
    check_gangs(result)
    assert all(len(each.residents) <= jobs_max for each in result.record.segments)
    began_s = {task: min(start_s for other, start_s in gangs(result) if other == task) for task in range(len(world[0]))}
    for task, done_s in zip(result.tasks, result.completion_s, strict=True):
        alone_s = task.iterations * step(task.workload).step_s
        # The predictor is exact, so that nothing is undone, and a task that starts in time completes in time.
        assert len([key for key in gangs(result) if key[0] == task.id]) == 1
        if began_s[task.id] + alone_s <= task.deadline_s:
            assert done_s <= task.deadline_s * (1 + 1e-6)


@settings(max_examples=60, **CALM)
@given(
    world=trainings(),
    policy=st.sampled_from([FifoPacked(gpus_per_node=NODE), Gandiva(gpus_per_node=NODE)]),
    start_cost_s=st.sampled_from([0.0, 10.0]),
)
def test_gavel(world, policy, start_cost_s):
    """Gavel's policies share a GPU between two at most, and keep gangs in a node."""
    result = go(world, policy, start_cost_s)
    check_run(result)
    check_gangs(result)
    assert all(len(each.residents) <= 2 for each in result.record.segments)


@settings(max_examples=60, **CALM)
@given(world=trainings(elastic=True), budget=st.none() | st.floats(0.5, 2.0), start_cost_s=st.sampled_from([0.0, 10.0]))
def test_power_flow(world, budget, start_cost_s):
    """PowerFlow never shares, and stays within nodes; as SRTF it sets no clocks and keeps the number of GPUs."""
    rigid = {"clocks": 1, "elastic": False} if budget is None else {"budget": budget}
    result = go(world, PowerFlow(gpus_per_node=NODE, **rigid), start_cost_s)
    check_run(result)
    check_gangs(result)
    assert all(len(each.residents) <= 1 for each in result.record.segments)
    if budget is None:
        assert {each.requested_mhz for each in result.record.segments} == {None}
        assert all(len(gpus) == result.tasks[task].gpus for (task, _), gpus in gangs(result).items())
        alone_s = np.array([task.iterations * step(task.workload).step_s for task in result.tasks])
        waited = start_cost_s > 0.0
        assert waited or result.execution_s == pytest.approx(alone_s, rel=1e-3), "a pause loses nothing"
