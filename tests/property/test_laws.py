"""Laws of emulated GPUs and of runs on them: clocks, shares, energy, each task once, and predicted costs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import clusters, gpu_types, residents, task_sets

import heshare as hs
from heshare.devices.emulated_device import EmulatedDevice
from heshare.prediction.oracle import DevicePredictor
from heshare.running.evaluation import evaluation
from heshare.scheduling.plan import Batch
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident

ROUNDING = 1e-9
SEEDS = st.integers(0, 2**32 - 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), residents(), st.none() | st.floats(1.0, 500.0)),
        st.tuples(st.just("stop"), st.integers(0, 9)),
        st.tuples(st.just("clock"), st.none() | st.integers(0, 10**6)),
        st.tuples(st.just("advance"), st.floats(0.0, 30.0)),
    ),
    max_size=12,
)


def act(device: EmulatedDevice, step: tuple, number: int) -> None:
    """Start a task if it fits, stop one, or set a clock."""
    running = device.read().residents
    used_mib = sum(memory_mib(one.resident.workload) for one in running.values())
    match step:
        case "start", resident, iterations if used_mib + memory_mib(resident.workload) <= device.gpu.memory_mib:
            device.start(number, resident.workload, resident.mps_pct, iterations)
        case "stop", place if running:
            device.stop(sorted(running)[place % len(running)])
        case "clock", place:
            clocks_mhz = device.gpu.clocks_mhz
            device.set_clock(None if place is None else clocks_mhz[place % len(clocks_mhz)])


@given(gpu_types(), STEPS)
def test_energy(gpu: Gpu, steps: list[tuple]) -> None:
    """Whatever starts, stops and changes, the energy counter is the integral of the power, and never falls."""
    device, in_one_step = EmulatedDevice(gpu), EmulatedDevice(gpu)
    spent_j = 0.0
    for number, step in enumerate(steps):
        act(device, step, number)
        act(in_one_step, step, number)
        if step[0] != "advance":
            continue

        until_s = device.read().time_s + step[1]
        while device.read().time_s < until_s:
            before = device.read()
            after_s = min(until_s, device.next_event_s())
            device.advance(after_s)
            spent_j += before.power_w * (after_s - before.time_s)
            assert device.read().energy_j >= before.energy_j
        in_one_step.advance(until_s)

        assert device.read().energy_j == pytest.approx(spent_j, rel=1e-9)
        assert in_one_step.read().energy_j == pytest.approx(spent_j, rel=1e-6)


@given(
    st.lists(st.tuples(residents(), st.floats(1, 500), st.floats(0, 0.5)), min_size=1, max_size=4),
    st.sampled_from(["mps", "time-slice"]),
)
def test_held_tasks(tasks: list[tuple[Resident, float, float]], sharing: str) -> None:
    """Energy is power over time also while tasks are held back to the pace of others, in both ways of sharing."""
    device = EmulatedDevice(hs.Cluster.parse("1xH200").gpus[0])
    for index, (resident, iterations, least_s) in enumerate(tasks):
        device.start_as(index, Resident(resident.workload, 100, sharing), iterations)
        device.hold(index, least_s)

    spent_j, done = 0.0, 0
    while device.read().residents:
        before = device.read()
        assert all(progress.time_s >= tasks[task][2] for task, progress in before.residents.items())
        after_s = device.next_event_s()
        done += len(device.advance(after_s))
        spent_j += before.power_w * (after_s - before.time_s)
        assert device.read().energy_j == pytest.approx(spent_j, rel=1e-9)
    assert done == len(tasks)


def random_queues(tasks: tuple[Task, ...], cluster: Cluster, rng: np.random.Generator) -> list[list[Batch]]:
    """Every task on a random GPU, in batches that fit, at random shares and clocks."""
    on_gpu: list[list[Task]] = [[] for _ in cluster.gpus]
    for place in rng.permutation(len(tasks)):
        on_gpu[int(rng.integers(len(cluster)))].append(tasks[place])

    queues = []
    for gpu, own in zip(cluster.gpus, on_gpu, strict=True):
        parts: list[list[Task]] = []
        for task in own:
            fits = parts and sum(memory_mib(one.workload) for one in [*parts[-1], task]) <= gpu.memory_mib
            if fits and rng.random() < 0.6:
                parts[-1].append(task)
            else:
                parts.append([task])
        queues.append(
            [
                Batch(
                    tuple(task.id for task in part),
                    tuple(int(pct) for pct in rng.integers(10, 101, len(part))),
                    [None, *gpu.clocks_mhz][int(rng.integers(len(gpu.clocks_mhz) + 1))],
                )
                for part in parts
            ]
        )
    return queues


@given(task_sets(), clusters(max_gpus=3), SEEDS)
def test_costs_are_predicted(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    """With the device model as predictor the run of any plan takes the predicted energy and time, each task once."""
    queues = random_queues(tasks, cluster, np.random.default_rng(seed))

    found = evaluation(queues, tasks, cluster, DevicePredictor())

    assert found.run.energy_active_j == pytest.approx(found.plan.energy_j, rel=1e-6)
    assert found.run.avg_jct_s == pytest.approx(found.plan.jct_s, rel=1e-6)

    intervals = found.run.record.intervals
    assert Counter(each.task for each in intervals) == Counter(task.id for task in tasks)
    assert [each.iterations for each in sorted(intervals)] == pytest.approx([task.iterations for task in tasks])


@given(gpu_types(), residents(), st.floats(1.0, 1e5))
def test_cost_alone(gpu: Gpu, resident: Resident, iterations: float) -> None:
    """A task alone takes its iterations times the predicted time of one, at the predicted power."""
    predicted = DevicePredictor().co_run([(resident,)], gpu, [None])
    tasks = (Task(0, resident.workload, iterations),)
    queues = [[Batch((0,), (resident.mps_pct,))]]

    done = hs.evaluate(queues, tasks, Cluster((gpu,)), predictor=DevicePredictor()).run

    alone_s = iterations * predicted.time_s[0, 0]
    assert done.execution_s[0] == pytest.approx(alone_s, rel=1e-9)
    assert done.energy_active_j == pytest.approx(alone_s * predicted.power_w[0], rel=1e-9)
