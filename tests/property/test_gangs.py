"""Random gangs that train and share: the invariants of a run hold, and each GPU does its part of the work."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_actions import RandomActions

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.shared import training
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTERS = tuple(map(Cluster.parse, ("3xV100", "1xT4,1xV100,2xA100", "2xV100-SXM2,1xV100")))
KINDS = st.deferred(
    lambda: st.sampled_from((*training.workloads("eaco"), *training.workloads("miso")[::6], Workload("resnet50", 8)))
)


@st.composite
def gang_sets(draw: st.DrawFn) -> list[Task]:
    """One to eight tasks of one to three GPUs, with or without epochs."""
    tasks = []
    for index in range(draw(st.integers(1, 8))):
        gpus = draw(st.integers(1, 3))
        tasks.append(
            Task(
                index,
                draw(KINDS),
                draw(st.floats(1.0, 2000.0)),
                float(draw(st.integers(0, 120))),
                gpus=gpus,
                widths=tuple(range(1, gpus)) if draw(st.booleans()) else (),
                epochs=draw(st.sampled_from([None, 1, 3, 10])),
            )
        )
    return tasks


@settings(max_examples=60)
@given(
    tasks=gang_sets(),
    cluster=st.sampled_from(CLUSTERS),
    seed=st.integers(0, 2**32 - 1),
    sharing=st.sampled_from(["mps", "time-slice"]),
    start_cost_s=st.sampled_from([0.0, 8.0]),
)
def test_gangs(tasks, cluster, seed, sharing, start_cost_s):
    """Runs with gangs keep the invariants."""
    devices = [EmulatedDevice(gpu) for gpu in cluster.gpus]
    policy = RandomActions(seed, sharing=sharing, calm_after=40).policy
    result = run(
        tasks,
        cluster,
        policy,
        predictor=DevicePredictor(),
        rng=np.random.default_rng(0),
        devices=devices,
        start_cost_s=start_cost_s,
    )
    check_run(result)
    parts_of: dict[tuple[int, float], list[float]] = {}
    for interval in result.record.intervals:
        parts_of.setdefault((interval.task, interval.start_s), []).append(interval.iterations)
    # Each GPU of a gang does the same part of the work.
    assert all(np.ptp(parts) == 0 for parts in parts_of.values())
    assert all(
        len(parts) in (task.gpus, *task.widths) for (task_id, _), parts in parts_of.items() for task in [tasks[task_id]]
    )
    assert all(gpu.read().residents == {} for gpu in devices)
