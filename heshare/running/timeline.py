"""The timeline: who ran where, when, at which clock and share, at what power. Every metric is computed from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import pandas as pd

from heshare.devices.device import Glance

if TYPE_CHECKING:
    from heshare.running.totals import Totals


T = TypeVar("T")


class Segment(NamedTuple):
    """A stretch of time in which nothing changed on one GPU.

    Attributes:
        gpu: the GPU's index in the cluster.
        start_s: begin, s.
        end_s: end, s.
        requested_mhz: the SM clock asked for, MHz; None when the card was left to itself.
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
    """A stretch of time that a task spent on one GPU without a break; a task on several has one on each.

    Attributes:
        task: the task's id.
        gpu: the GPU's index in the cluster.
        start_s: begin, s.
        end_s: end, s.
        mps_pct: its MPS percentage.
        batch_size: its inference batch size.
        iterations: iterations of the task (as it is on its own batch size and number of GPUs) completed here, less
            what it had not saved when it was taken off; the members of a gang did the same part each.
        outcome: how it ended, `completed`, `paused` or `migrated`.
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
    """What happened on a cluster.

    Attributes:
        labels: a short name for each GPU, shape (k,).
        segments: for each GPU without gaps from the start to the makespan; by end, then GPU.
        intervals: in order of their ends.
    """

    labels: tuple[str, ...]
    segments: tuple[Segment, ...]
    intervals: tuple[Interval, ...]

    def segment_frame(self) -> pd.DataFrame:
        """One row a segment: gpu, label, times, clocks, power, energy_j, tasks (how many) and residents as text."""
        frame = pd.DataFrame(self.segments, columns=list(Segment._fields))
        residents = frame.pop("residents")
        frame["requested_mhz"] = frame["requested_mhz"].astype("Int64")
        frame.insert(1, "label", [self.labels[gpu] for gpu in frame["gpu"]])
        frame["energy_j"] = frame["power_w"] * (frame["end_s"] - frame["start_s"])
        frame["tasks"] = [len(each) for each in residents]
        frame["residents"] = ["+".join(f"{task}@{pct}" for task, pct, _ in each) for each in residents]
        return frame.sort_values(["gpu", "start_s"], kind="stable", ignore_index=True)

    def interval_frame(self) -> pd.DataFrame:
        """One row an interval, by task and start."""
        frame = pd.DataFrame(self.intervals, columns=list(Interval._fields))
        frame.insert(2, "label", [self.labels[gpu] for gpu in frame["gpu"]])
        return frame.sort_values(["task", "start_s"], kind="stable", ignore_index=True)


class Rows(Protocol[T]):
    """Where a recorder puts its rows: a list, or a file."""

    def append(self, row: T, /) -> object:
        """Take a row."""
        ...

    def extend(self, rows: Iterable[T], /) -> object:
        """Take rows."""
        ...

    def __iter__(self) -> Iterator[T]:
        """Those that are kept in memory."""
        ...


class Recording(Protocol):
    """What the event loop tells of a run; a recorder keeps what it wants of it."""

    def observe(self, gpu: int, now_s: float, seen: Glance) -> None:
        """From `now_s` on, the GPU is as was seen."""
        ...

    def alike(self, gpus: Sequence[int], now_s: float, seen: Glance) -> None:
        """From `now_s` on, all these GPUs are as was seen of one of them."""
        ...

    def close(self, last: Interval, gpus: Sequence[int]) -> None:
        """A task has left its GPUs; `last` is its stretch on one of them."""
        ...

    def finish(self, now_s: float) -> tuple[Timeline, Totals | None]:
        """The run is over: the timeline, and the totals if they were added up."""
        ...


@dataclass
class Recorder:
    """Collects a timeline while the event loop runs; a look that shows nothing new makes no new segment."""

    labels: tuple[str, ...]
    segments: Rows[Segment] = field(default_factory=list)
    intervals: Rows[Interval] = field(default_factory=list)
    _open: dict[int, Segment] = field(default_factory=dict)

    def observe(self, gpu: int, now_s: float, seen: Glance) -> None:
        """From `now_s` on, the GPU is as was seen."""
        before = self._open.get(gpu)
        if before is not None:
            if (
                before.power_w == seen.power_w
                and before.residents == seen.residents
                and before.sm_mhz == seen.sm_mhz
                and before.requested_mhz == seen.requested_mhz
            ):
                return
            self._close(before, now_s)
        self._open[gpu] = Segment(gpu, now_s, math.nan, seen.requested_mhz, seen.sm_mhz, seen.power_w, seen.residents)

    def alike(self, gpus: Sequence[int], now_s: float, seen: Glance) -> None:
        """From `now_s` on, all these GPUs are as was seen of one of them."""
        for gpu in gpus:
            self.observe(gpu, now_s, seen)

    def close(self, last: Interval, gpus: Sequence[int]) -> None:
        """A task has left its GPUs; `last` is its stretch on one of them."""
        self.intervals.extend([last._replace(gpu=gpu) for gpu in gpus])

    def finish(self, now_s: float) -> tuple[Timeline, None]:
        """Close every open segment at `now_s`; the timeline, from which everything else can be added up."""
        for gpu in sorted(self._open):
            self._close(self._open.pop(gpu), now_s)
        return Timeline(self.labels, tuple(self.segments), tuple(self.intervals)), None

    def _close(self, segment: Segment, now_s: float) -> None:
        if now_s > segment.start_s:
            gpu, start_s, _, asked, reached, power_w, residents = segment
            self.segments.append(Segment(gpu, start_s, now_s, asked, reached, power_w, residents))
