"""Timeline of a run, and the metrics that are computed from it: times of tasks (Eq. 8) and energy of GPUs (Eq. 6).

A timeline has segments (of a GPU: clock, power, residents) and intervals (of a task on a GPU). The paper sums power
over windows (Section II-A); here power is constant within a segment, so that the sum is exact.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from heshare.devices.device import Reading
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.task import Task


class Segment(NamedTuple):
    """A period in which nothing changed on one GPU.

    Attributes:
        gpu: the GPU's index in the cluster.
        start_s: begin, s.
        end_s: end, s.
        requested_mhz: the requested SM clock, MHz; None when the card chose it.
        sm_mhz: the SM clock reached, MHz.
        power_w: board power, W.
        residents: (task id, MPS percentage, seconds per iteration) of each task that ran.
    """

    gpu: int
    start_s: float
    end_s: float
    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    residents: tuple[tuple[int, int, float], ...]


class Interval(NamedTuple):
    """A period that a task spent on one GPU without a break; a task on several GPUs has one on each.

    Attributes:
        task: the task's id.
        gpu: the GPU's index in the cluster.
        start_s: begin, s.
        end_s: end, s.
        mps_pct: its MPS percentage.
        batch_size: its inference batch size.
        iterations: iterations (at the task's own batch size and number of GPUs) completed here, less those that it had
            not saved when it was taken off; each GPU of a gang did the same part.
        outcome: `completed`, `paused`, `migrated`, or `failed:` and the kind of failure.
    """

    task: int
    gpu: int
    start_s: float
    end_s: float
    mps_pct: int
    batch_size: int
    iterations: float
    outcome: str


@dataclass(frozen=True)
class Timeline:
    """Timeline of a run on k GPUs.

    Attributes:
        labels: a short name for each GPU, shape (k,).
        segments: for each GPU without gaps from the start to the makespan; by end.
        intervals: in order of their ends.
    """

    labels: tuple[str, ...]
    segments: tuple[Segment, ...]
    intervals: tuple[Interval, ...]

    def segment_frame(self) -> pd.DataFrame:
        """Return one row a segment: gpu, label, times, clocks, power, energy_j, number of tasks, residents as text."""
        frame = pd.DataFrame(self.segments, columns=list(Segment._fields))
        residents = frame.pop("residents")
        frame["requested_mhz"] = frame["requested_mhz"].astype("Int64")
        frame.insert(1, "label", [self.labels[gpu] for gpu in frame["gpu"]])
        frame["energy_j"] = frame["power_w"] * (frame["end_s"] - frame["start_s"])
        frame["tasks"] = [len(tasks) for tasks in residents]
        frame["residents"] = ["+".join(f"{task}@{pct}" for task, pct, _ in tasks) for tasks in residents]
        return frame.sort_values(["gpu", "start_s"], kind="stable", ignore_index=True)

    def interval_frame(self) -> pd.DataFrame:
        """Return one row an interval, by task and start."""
        frame = pd.DataFrame(self.intervals, columns=list(Interval._fields))
        frame.insert(2, "label", [self.labels[gpu] for gpu in frame["gpu"]])
        return frame.sort_values(["task", "start_s"], kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Totals:
    """Sums over a run of n tasks on k GPUs.

    Attributes:
        waiting_s: W_i of Eq. 8, s, shape (n,).
        execution_s: E_i of Eq. 8, s, shape (n,).
        completion_s: when each task completed, s, shape (n,); NaN for one that never did.
        last_gpu: the last GPU of each task, shape (n,).
        energy_active_j: each GPU's energy until its last task ends, J, shape (k,).
        energy_cluster_j: each GPU's energy until the end, J, shape (k,).
        busy_s: time that each GPU ran at least one task, s, shape (k,).
    """

    waiting_s: FloatArray
    execution_s: FloatArray
    completion_s: FloatArray
    last_gpu: FloatArray
    energy_active_j: FloatArray
    energy_cluster_j: FloatArray
    busy_s: FloatArray


_State = tuple[int | None, float, float, tuple[tuple[int, int, float], ...]]
"""What holds on a GPU during a segment: requested clock, clock, power and residents."""


@dataclass
class TimelineRecorder:
    """Recorder of a timeline: of each GPU the state that holds now, and what has ended.

    Attributes:
        labels: a short name for each GPU, shape (k,).
        segments: the segments that have ended.
        intervals: the intervals that have ended.
    """

    labels: tuple[str, ...]
    segments: list[Segment] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    _open: dict[int, tuple[float, _State]] = field(default_factory=dict)

    def observe(self, gpu: int, now_s: float, reading: Reading) -> None:
        """Record that the GPU is in this state from `now_s` on; a segment ends if it was in another one."""
        residents = tuple([(task.task_id, task.resident.mps_pct, task.time_s) for task in reading.residents.values()])
        state = reading.requested_mhz, reading.sm_mhz, reading.power_w, residents

        if gpu in self._open:
            if self._open[gpu][1] == state:
                return
            self._end(gpu, now_s)
        self._open[gpu] = now_s, state

    def finish(self, now_s: float) -> Timeline:
        """End every open segment at `now_s` and return the timeline."""
        for gpu in sorted(self._open):
            self._end(gpu, now_s)
        return Timeline(self.labels, tuple(self.segments), tuple(self.intervals))

    def _end(self, gpu: int, now_s: float) -> None:
        start_s, state = self._open.pop(gpu)
        if now_s > start_s:
            self.segments.append(Segment(gpu, start_s, now_s, *state))


def task_intervals(intervals: Iterable[Interval], /) -> list[Interval]:
    """Return one interval for each period in which a task ran, on however many GPUs; in the order given."""
    return list({(interval.task, interval.start_s, interval.end_s): interval for interval in intervals}.values())


def sum_up(record: Timeline, tasks: Sequence[Task], /) -> Totals:
    """Return the totals of a run (Eq. 8) from its timeline; task i has id i.

    The waiting time of a task is its time on no GPU between arrival and completion, pauses included; its execution time
    is its time on its GPU or GPUs. A GPU that never ran a task has no active energy.
    """
    waiting_s = np.zeros(len(tasks))
    execution_s = np.zeros(len(tasks))
    completion_s = np.full(len(tasks), math.nan)
    left_s = [task.arrival_s for task in tasks]
    for stay in task_intervals(record.intervals):
        waiting_s[stay.task] += stay.start_s - left_s[stay.task]
        execution_s[stay.task] += stay.end_s - stay.start_s
        left_s[stay.task] = stay.end_s
        if stay.outcome == "completed":
            completion_s[stay.task] = stay.end_s

    last_gpu = np.zeros(len(tasks))
    last_end_s = np.zeros(len(record.labels))
    for interval in record.intervals:
        last_gpu[interval.task] = interval.gpu
        last_end_s[interval.gpu] = max(last_end_s[interval.gpu], interval.end_s)

    busy_s = np.zeros(len(record.labels))
    for segment in record.segments:
        if segment.residents:
            busy_s[segment.gpu] += segment.end_s - segment.start_s

    return Totals(
        waiting_s,
        execution_s,
        completion_s,
        last_gpu,
        energy_active_j=energy_j(record.segments, last_end_s),
        energy_cluster_j=energy_j(record.segments, np.full(len(record.labels), last_end_s.max())),
        busy_s=busy_s,
    )


def energy_j(segments: Sequence[Segment], until_s: FloatArray, /) -> FloatArray:
    """Return the energy of each GPU, E^m of Eq. 6: the integral of its power from the start to `until_s`, J, (k,).

    Eq. 6 prints E^m = P^m; Section II-A sums power over time. The account of each GPU ends at `until_s`, s, shape (k,):
    the active account with its last task, the cluster account with the makespan.
    """
    gpu, start_s, end_s, power_w = _columns(segments)
    duration_s = np.clip(np.minimum(end_s, until_s[gpu]) - start_s, 0.0, None)
    total: FloatArray = np.bincount(gpu, weights=power_w * duration_s, minlength=len(until_s)).astype(np.float64)
    return total


def power_steps(segments: Sequence[Segment], /) -> tuple[FloatArray, FloatArray]:
    """Return the cluster's power as a step function: times, s, shape (m,), and power from each time on, W, (m,)."""
    if not segments:
        return np.zeros(0), np.zeros(0)
    _, start_s, end_s, power_w = _columns(segments)
    change_w = np.concatenate([power_w, -power_w])
    times_s, place = np.unique(np.concatenate([start_s, end_s]), return_inverse=True)
    # Rounding keeps the sum of +P and -P from showing as 1e-14 W once all is over.
    total_w: FloatArray = np.cumsum(np.bincount(place, weights=change_w, minlength=len(times_s))).astype(np.float64)
    return times_s, np.round(total_w, 9)


def _columns(segments: Sequence[Segment]) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    gpu, start_s, end_s, _, _, power_w, _ = zip(*segments, strict=True) if segments else ((),) * 7
    return np.array(gpu, dtype=np.int64), np.array(start_s, float), np.array(end_s, float), np.array(power_w, float)
