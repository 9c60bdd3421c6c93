"""Chrome trace events: slots without overlap, the durations of the run, counters that integrate to its energy."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.policy_runs import run_emulated, run_on_toys
from support.scripted_policy import ScriptedPolicy

from heshare.devices.task_sizes import draw
from heshare.policies.policy import Event, Migrate, Pause, SetClock, Start, View, Wait
from heshare.running.result import Run
from heshare.running.timeline import Interval
from heshare.running.trace_events import CLUSTER, slots, trace_events, write_trace
from heshare.testing.toy import toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


def run_with_sharing() -> Run:
    tasks = draw(14, rng=np.random.default_rng(3), arrivals="miso")
    return run_emulated(tasks, "sched-only:all-at-once", "2xT4,1xA100")


def run_with_migration() -> Run:
    """Two tasks on one of two toy cards; one is paused at 3 s, resumed at 5 s, moved at 6 s; a clock changes."""

    def decide(event: Event, view: View) -> list[Any]:
        answers: dict[float, list[Any]] = {
            0.0: [Start(0, 0, 50), Start(1, 0, 60), Wait(3.0)],
            3.0: [Pause(1), SetClock(0, 500), Wait(5.0)],
            5.0: [Start(1, 0, 40), Wait(6.0)],
            6.0: [Migrate(1, 1, 100)],
        }
        return answers.get(view.now_s, [])

    tasks = (Task(0, Workload("resnet18", 4), 8.0), Task(1, Workload("bert_large", 8), 6.0))
    return run_on_toys(tasks, ScriptedPolicy(decide), (toy_gpu(),) * 2)


@pytest.fixture(params=[run_with_sharing, run_with_migration], scope="module")
def done(request: pytest.FixtureRequest) -> Run:
    return request.param()


def slices(done: Run) -> list[dict[str, Any]]:
    return [event for event in trace_events(done)["traceEvents"] if event["ph"] == "X"]


def counters(done: Run, pid: int, name: str) -> list[tuple[float, dict[str, float]]]:
    events = trace_events(done)["traceEvents"]
    return [(e["ts"] / 1e6, e["args"]) for e in events if e["ph"] == "C" and e["pid"] == pid and e["name"] == name]


def test_write_trace(done: Run, tmp_path: Path) -> None:
    """A trace is JSON in order of time, and names its processes and threads."""
    path = write_trace(done, tmp_path / "out.json")
    read = json.loads(path.read_text())
    assert read == json.loads(json.dumps(trace_events(done)))
    events = read["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)
    assert timed[0] == 0
    named = {(event["pid"], event.get("tid")) for event in events if event["ph"] == "M"}
    assert {(event["pid"], event.get("tid")) for event in events} <= named
    assert read["otherData"]["energy_cluster_j"] == done.energy_cluster_j
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len(processes) == len(done.cluster) + 1
    assert set(done.cluster.labels) < set(processes.values())


def test_slots_do_not_overlap(done: Run) -> None:
    """Slices of a slot do not overlap, and no slot is unused."""
    lanes = defaultdict(list)
    for event in slices(done):
        assert isinstance(event["ts"], int)
        assert isinstance(event["dur"], int)
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for lane in lanes.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(lane))
    for gpu in range(len(done.cluster)):
        most = max(len(each.residents) for each in done.record.segments if each.gpu == gpu)
        assert {tid for pid, tid in lanes if pid == gpu + 1} == set(range(most))


def test_durations(done: Run) -> None:
    """Durations of slices sum to the time on GPUs."""
    exact, whole = np.zeros(len(done.tasks)), np.zeros(len(done.tasks))
    for event in slices(done):
        exact[event["args"]["task"]] += event["args"]["end_s"] - event["args"]["start_s"]
        whole[event["args"]["task"]] += event["dur"] / 1e6
        assert event["name"].split(":")[0] == done.tasks[event["args"]["task"]].workload.model
    np.testing.assert_allclose(exact, done.execution_s, rtol=1e-12)
    np.testing.assert_allclose(whole, done.execution_s, atol=1e-6 * len(done.record.intervals))
    # The union of a GPU's slices is its busy time.
    busy_s = done.utilisation * done.makespan_s
    for gpu in range(len(done.cluster)):
        until = total = 0.0
        for event in slices(done):
            if event["pid"] == gpu + 1:
                begin, end = event["args"]["start_s"], event["args"]["end_s"]
                total += max(end - max(begin, until), 0.0)
                until = max(until, end)
        assert total == pytest.approx(busy_s[gpu], rel=1e-12)


def test_power_counters(done: Run) -> None:
    """Power counters integrate to the energy."""
    expected_j = [done.energy_cluster_j, *done.gpu_energy_cluster_j]
    for pid in range(len(done.cluster) + 1):
        steps = counters(done, pid, "power (W)")
        total_j = sum(args["power"] * (end_s - begin_s) for (begin_s, args), (end_s, _) in pairwise(steps))
        assert total_j == pytest.approx(expected_j[pid - CLUSTER], rel=1e-9)
        assert steps[-1] == (pytest.approx(done.makespan_s), {"power": 0.0})


def test_slots() -> None:
    """Slots reuse a freed slot."""

    def interval(gpu: int, start_s: float, end_s: float) -> Interval:
        return Interval(0, gpu, start_s, end_s, 100, 4, 1.0, "completed")

    some = [
        interval(0, 0, 4),
        interval(0, 0, 2),
        interval(0, 2, 3),
        interval(1, 1, 9),
        interval(0, 2.5, 5),
        interval(0, 4, 6),
    ]
    assert slots(some) == [1, 0, 0, 0, 2, 0]


def test_counters_of_tasks() -> None:
    """Counters of tasks follow starts, pauses and ends."""
    found = counters(run_with_migration(), CLUSTER, "tasks")
    counts = [(round(time_s, 9), args["running"], args["waiting"]) for time_s, args in found]
    assert counts == [(0, 2, 0), (3, 1, 1), (5, 2, 0), (6, 2, 0), (10.25, 1, 0), (16.5, 0, 0)]
