"""Timeline of a run, and the metrics that are computed from it: times of tasks (Eq. 8) and energy of GPUs (Eq. 6).

A timeline has segments (of a GPU: clock, power, residents) and intervals (of a task on a GPU). The paper sums power
over windows (Section II-A); here power is constant within a segment, so that the sum is exact.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from heshare.devices.device import Alone, BriefReading
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


@dataclass(frozen=True, eq=False)
class Timeline:
    """Timeline of a run on k GPUs.

    Attributes:
        labels: a short name for each GPU, shape (k,).
    """

    labels: tuple[str, ...]
    _segments: Iterable[Segment]
    _intervals: Iterable[Interval]

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Segments, for each GPU without gaps from the start to the makespan; by end."""
        return tuple(self._segments)

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Intervals, in order of their ends."""
        return tuple(self._intervals)

    def __reduce__(self) -> tuple[Any, ...]:
        return Timeline, (self.labels, self.segments, self.intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timeline) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

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


_State = tuple[int | None, float, float, tuple[tuple[int, int, float], ...]]
_Ended = tuple[float, _State, float] | tuple[float, _State, Sequence[Alone], _State]
"""Start, state and end of a segment; or start and state of the one before tasks that had the GPU to themselves, these
tasks, and the GPU's state without them. A state is the clocks, power and residents of a `Segment`."""


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


@dataclass
class TimelineRecorder:
    """Recorder of a timeline, which makes segments and intervals when it is asked for them.

    Attributes:
        times_s: times in the order of events.
        places: at each of these times, the GPUs of which a segment may end.
        left: of each task that has left its GPUs the fields of an interval, with all its GPUs; and, if it had these to
            itself, the rest of an `Alone`.
    """

    labels: tuple[str, ...]
    times_s: list[float] = field(default_factory=list)
    places: list[Sequence[int]] = field(default_factory=list)
    left: list[tuple[Any, ...]] = field(default_factory=list)
    _open: dict[int, tuple[float, _State]] = field(default_factory=dict)
    _ended: defaultdict[int, list[_Ended]] = field(default_factory=lambda: defaultdict(list))

    def place(self, now_s: float, gpus: Sequence[int]) -> None:
        """Record that a segment of each of these GPUs may end now."""
        self.times_s.append(now_s)
        self.places.append(gpus)

    def observe(self, gpu: int, now_s: float, state: BriefReading) -> None:
        """Record that the GPU is in this state from `now_s` on."""
        before, found = self._open.get(gpu), state[:4]
        if before is not None:
            if before[1] == found:
                return
            self._end(gpu, before, now_s)
        self._open[gpu] = now_s, found

    def add_alone(self, gpu: int, ended: Sequence[Alone], idle: BriefReading) -> None:
        """Record tasks that had the GPU to themselves, one after the other, and that it is idle since the last one."""
        self._ended[gpu].append((*self._open[gpu], ended, idle[:4]))
        self._open[gpu] = ended[-1][3], idle[:4]
        self.place(ended[-1][3], (gpu,))

    def finish(self, now_s: float) -> Timeline:
        """End every open segment at `now_s` and return the timeline."""
        for gpu in sorted(self._open):
            self._end(gpu, self._open.pop(gpu), now_s)
        return Timeline(self.labels, self._segments(), self._intervals())

    def _end(self, gpu: int, since: tuple[float, _State], now_s: float) -> None:
        if now_s > since[0]:
            self._ended[gpu].append((*since, now_s))
            self.place(now_s, (gpu,))

    def _intervals(self) -> Iterator[Interval]:
        make = Interval._make
        for task, gpus, *rest in self.left:
            for gpu in gpus:
                yield make((task, gpu, *rest[:6]))

    def _segments(self) -> Iterator[Segment]:
        # Of segments that end at one moment, the first is that of the GPU that has the first place.
        of_gpu = {gpu: _made(gpu, ended) for gpu, ended in self._ended.items()}
        following = {gpu: next(segments, None) for gpu, segments in of_gpu.items()}
        for time_s, gpus in zip(self.times_s, self.places, strict=True):
            for gpu in gpus:
                segment = following.get(gpu)
                if segment is not None and segment.end_s <= time_s:
                    following[gpu] = next(of_gpu[gpu], None)
                    yield segment


def _made(gpu: int, ended: Iterable[_Ended]) -> Iterator[Segment]:
    # The segments of one GPU, in order.
    make = Segment._make
    for each in ended:
        if len(each) == 3:
            yield make((gpu, each[0], each[2], *each[1]))
            continue
        since_s, rest, tasks, asleep = each
        for task, _, start_s, end_s, mps_pct, _, _, _, _, clock_mhz, sm_mhz, power_w, time_s in tasks:
            state = clock_mhz, sm_mhz, power_w, ((task, mps_pct, time_s),)
            if state != rest:  # a task that was paused and started again at one moment has changed nothing
                if start_s > since_s:
                    yield make((gpu, since_s, start_s, *rest))
                since_s = start_s
            if end_s > since_s:
                yield make((gpu, since_s, end_s, *state))
            since_s, rest = end_s, asleep


def task_intervals(intervals: Iterable[Interval], /) -> list[Interval]:
    """Return one interval for each period in which a task ran, on however many GPUs; in the order given."""
    return list({(interval.task, interval.start_s, interval.end_s): interval for interval in intervals}.values())


def sum_up(record: Timeline, tasks: Sequence[Task], /) -> Totals:
    """Return the totals of a run (Eq. 8) from its timeline; task i has id i.

    The waiting time of a task is its time on no GPU between arrival and completion, pauses included; its execution time
    is its time on its GPU or GPUs. A GPU that never ran a task has no active energy.
    """
    n, k = len(tasks), len(record.labels)
    waiting_s, execution_s, completion_s, last_gpu = [0.0] * n, [0.0] * n, [math.nan] * n, [0] * n
    left_s, last_end_s, busy_s = [task.arrival_s for task in tasks], [0.0] * k, [0.0] * k
    for task, _, start_s, end_s, _, _, _, outcome in task_intervals(record.intervals):
        waiting_s[task] += start_s - left_s[task]
        execution_s[task] += end_s - start_s
        left_s[task] = end_s
        if outcome == "completed":
            completion_s[task] = end_s
    for task, gpu, _, end_s, _, _, _, _ in record.intervals:
        last_gpu[task] = gpu
        last_end_s[gpu] = max(last_end_s[gpu], end_s)
    for gpu, start_s, end_s, _, _, _, residents in record.segments:
        if residents:
            busy_s[gpu] += end_s - start_s
    times_s, ended_s = (np.array(waiting_s), np.array(execution_s)), np.array(completion_s)
    active_j = energy_j(record.segments, np.array(last_end_s))
    cluster_j = energy_j(record.segments, np.full(k, ended_s.max()))
    return Totals(*times_s, ended_s, np.array(last_gpu, float), active_j, cluster_j, np.array(busy_s))


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
