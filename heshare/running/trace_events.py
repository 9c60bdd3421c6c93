"""A run as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each GPU is a process; its threads are slots, as many as tasks ran on it at once. A slice is an interval of a task on a
GPU; counters are the GPU's SM clock and board power, and the cluster's power and numbers of tasks. Slices are in
whole microseconds, so that neighbours in a slot meet and never overlap; their exact seconds are in their arguments.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heshare.running.timeline import Interval, task_intervals
from heshare.shared import files
from heshare.shared.errors import require
from heshare.world.catalogue import load_class

if TYPE_CHECKING:
    from heshare.running.result import Run

_US = 1e6
CLUSTER = 0
"""The process id of the cluster; that of GPU i is i + 1."""


def trace_events(run: Run) -> dict[str, Any]:
    """Return a run as the JSON object of a trace: `traceEvents` in order of time, and the run's summary.

    Counters hold until their next event: power, integrated from counter to counter, is the run's energy by the
    cluster account.
    """
    events = _slices(run) + _gpu_counters(run) + _cluster_counters(run)
    events.sort(key=lambda event: (event["ts"], event["pid"], event["ph"], event.get("tid", 0), event["name"]))
    about = {name: value for name, value in run.summary().items() if name != "planning_s"}
    return {"traceEvents": _names(run) + events, "displayTimeUnit": "ms", "otherData": about}


def write_trace(run: Run, path: str | Path) -> Path:
    """Write a run's trace events to a JSON file, whole or not at all; an `InputError` for a folder."""
    require("path", path, not Path(path).is_dir(), "the path of a file", "Name a file, such as run.json.")
    return files.write_text(path, json.dumps(trace_events(run), separators=(",", ":")) + "\n")


def slots(intervals: Sequence[Interval]) -> list[int]:
    """Return, for each interval, the lowest slot of its GPU that is free at its begin, assigned in order of begin."""
    free_at: dict[int, list[float]] = defaultdict(list)
    chosen = [0] * len(intervals)
    order = sorted(range(len(intervals)), key=lambda i: (intervals[i].start_s, intervals[i].end_s, intervals[i].task))
    for index in order:
        each = intervals[index]
        ends = free_at[each.gpu]
        slot = next((i for i, end_s in enumerate(ends) if end_s <= each.start_s), len(ends))
        ends[slot : slot + 1] = [each.end_s]
        chosen[index] = slot
    return chosen


def _slices(run: Run) -> list[dict[str, Any]]:
    lanes = slots(run.record.intervals)
    events = []
    for each, slot in zip(run.record.intervals, lanes, strict=True):
        task = run.tasks[each.task]
        begin_us, end_us = round(each.start_s * _US), round(each.end_s * _US)
        events.append(
            {
                "ph": "X",
                "pid": each.gpu + 1,
                "tid": slot,
                "ts": begin_us,
                "dur": end_us - begin_us,
                "name": f"{task.workload.model}:{each.batch_size}",
                "cat": load_class(task.workload.model),
                "args": {
                    "task": each.task,
                    "workload": str(task.workload),
                    "mps_pct": each.mps_pct,
                    "start_s": each.start_s,
                    "end_s": each.end_s,
                    "iterations": each.iterations,
                    "outcome": each.outcome,
                    "arrival_s": task.arrival_s,
                },
            }
        )
    return events


def _gpu_counters(run: Run) -> list[dict[str, Any]]:
    # One event at every change, and zeros at the end.
    events = []
    for segment in run.record.segments:
        clock = {"reached": segment.sm_mhz}
        if segment.requested_mhz is not None:
            clock["asked"] = float(segment.requested_mhz)
        events.append(_counter(segment.gpu + 1, segment.start_s, "SM clock (MHz)", clock))
        events.append(_counter(segment.gpu + 1, segment.start_s, "power (W)", {"power": segment.power_w}))
    for gpu in range(len(run.cluster)):
        events.append(_counter(gpu + 1, run.makespan_s, "SM clock (MHz)", {"reached": 0.0}))
        events.append(_counter(gpu + 1, run.makespan_s, "power (W)", {"power": 0.0}))
    return events


def _cluster_counters(run: Run) -> list[dict[str, Any]]:
    steps = run.power_over_time()
    events = [
        _counter(CLUSTER, time_s, "power (W)", {"power": power_w})
        for time_s, power_w in zip(steps["time_s"].tolist(), steps["power_w"].tolist(), strict=True)
    ]
    change: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    waits_since = {task.id: task.arrival_s for task in run.tasks}
    for each in sorted(task_intervals(run.record.intervals), key=lambda one: (one.start_s, one.end_s, one.task)):
        change[waits_since[each.task]][0] += 1
        change[each.start_s][0] -= 1
        change[each.start_s][1] += 1
        change[each.end_s][1] -= 1
        waits_since[each.task] = each.end_s
    waiting = running = 0
    for time_s in sorted(change):
        waiting, running = waiting + change[time_s][0], running + change[time_s][1]
        events.append(_counter(CLUSTER, time_s, "tasks", {"running": running, "waiting": waiting}))
    return events


def _counter(pid: int, time_s: float, name: str, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": pid, "ts": time_s * _US, "name": name, "args": values}


def _names(run: Run) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for pid, name in enumerate((f"cluster {run.cluster}", *run.cluster.labels)):
        events.append(_meta(pid, "process_name", {"name": name}))
        events.append(_meta(pid, "process_sort_index", {"sort_index": pid}))
    used = {(each.gpu, slot) for each, slot in zip(run.record.intervals, slots(run.record.intervals), strict=True)}
    for gpu, slot in sorted(used):
        events.append({**_meta(gpu + 1, "thread_name", {"name": f"slot {slot}"}), "tid": slot})
        events.append({**_meta(gpu + 1, "thread_sort_index", {"sort_index": slot}), "tid": slot})
    return events


def _meta(pid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "name": name, "args": args}
