"""Runs under random but possible actions keep their invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_actions import RandomActions
from support.strategies import clusters, task_sets

from heshare.devices.emulated_device import EmulatedDevice
from heshare.policies.policy import EventKind
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running import timeline
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import ToyDevice, ToyPredictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


def fits(task, cluster):
    return any(gpu.memory_mib > memory_mib(task.workload) + 1e-6 for gpu in cluster.gpus)


def check(tasks, cluster, seed, tick_s, start_cost_s, devices):
    tasks = [task for task in tasks if fits(task, cluster)]
    if not tasks:
        return
    # Up to a thousand iterations: short ticks over a year of work take too long.
    tasks = [Task(index, task.workload, task.iterations % 999 + 1, task.arrival_s) for index, task in enumerate(tasks)]
    policy = RandomActions(seed, tick_s=tick_s).policy
    result = run(
        tasks,
        cluster,
        policy,
        predictor=ToyPredictor(),
        rng=np.random.default_rng(0),
        devices=devices,
        start_cost_s=start_cost_s,
    )
    check_run(result)
    events = [(time_s, EventKind[kind].value) for time_s, kind, _, _ in policy.trace]
    assert [time_s for time_s, _ in events] == sorted(time_s for time_s, _ in events)
    completed = [task for _, kind, ids, _ in policy.trace if kind == "COMPLETION" for task in ids]
    arrived = [task for _, kind, ids, _ in policy.trace if kind == "ARRIVAL" for task in ids]
    assert sorted(completed) == sorted(arrived) == list(range(len(tasks)))


options = {
    "cluster": clusters(max_gpus=4),
    "seed": st.integers(0, 2**32 - 1),
    "tick_s": st.sampled_from([None, 30.0, 333.0]),
    "start_cost_s": st.sampled_from([0.0, 0.0, 8.0]),
}


@settings(max_examples=30)
@given(tasks=task_sets(max_size=20, online=True), **options)
def test_toy_devices(tasks, cluster, seed, tick_s, start_cost_s):
    """Runs on toy devices keep the invariants."""
    devices = [ToyDevice(gpu, base_s=0.1) for gpu in cluster.gpus]
    check(tasks, cluster, seed, tick_s, start_cost_s, devices)


@settings(max_examples=25)
@given(tasks=task_sets(max_size=12, online=True), **options)
@pytest.mark.slow
def test_emulated_devices(tasks, cluster, seed, tick_s, start_cost_s):
    """Runs on emulated devices keep the invariants."""
    devices = [EmulatedDevice(gpu) for gpu in cluster.gpus]
    check(tasks, cluster, seed, tick_s, start_cost_s, devices)


@settings(max_examples=20)
@given(
    task_sets(online=True),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["random", "random:all-at-once", "srtf", "gandiva", "morak"]),
)
def test_energy_of_a_run(tasks, seed, policy):
    """Energy adds up over segments, GPUs, tasks with idle time, and the parts before and after a time."""
    tasks = [Task(task.id, task.workload, task.iterations % 999 + 1, task.arrival_s) for task in tasks]
    options = {"predictor": DevicePredictor(), "rng": np.random.default_rng(seed)}
    done = run(tasks, Cluster.parse("2xV100,1xA100"), make(policy), **options)
    segments = done.record.segments
    spent_j = [each.power_w * (each.end_s - each.start_s) for each in segments]

    assert done.energy_cluster_j == pytest.approx(sum(spent_j), rel=1e-9)
    assert done.energy_cluster_j == pytest.approx(done.gpu_energy_cluster_j.sum(), rel=1e-9)
    assert done.energy_cluster_j == pytest.approx(done.device_energy_j.sum(), rel=1e-6)

    idle_j = sum(energy_j for each, energy_j in zip(segments, spent_j, strict=True) if not each.residents)
    by_task_j = done.energy_by_task()["energy_j"].sum()
    assert by_task_j + idle_j == pytest.approx(done.energy_cluster_j, rel=1e-9)

    middle_s = done.makespan_s / 3
    before_j = timeline.energy_j(segments, np.full(3, middle_s)).sum()
    after = [each._replace(start_s=max(each.start_s, middle_s)) for each in segments if each.end_s > middle_s]
    after_j = timeline.energy_j(after, np.full(3, np.inf)).sum()
    assert before_j + after_j == pytest.approx(done.energy_cluster_j, rel=1e-9)
