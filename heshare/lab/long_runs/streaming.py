"""Recorders of long runs: totals in place of a timeline, and a timeline that is streamed to files.

Memory depends on the number of tasks and GPUs, not on the length of the run.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from heshare.devices.device import BriefReading
from heshare.running.timeline import Interval, Segment, Timeline, TimelineRecorder, Totals
from heshare.world.task import Task


class TotalsRecorder:
    """Adds up the times and energies of a run; its timeline is empty. `labels` are those of the GPUs."""

    def __init__(self, labels: tuple[str, ...], tasks: Sequence[Task]) -> None:
        k, n = len(labels), len(tasks)
        self.labels = labels
        # When each GPU was seen, its power from then on, and whether it runs a task.
        self._seen = [(0.0, 0.0, False)] * k
        self._energy_j, self._active_j, self._busy_s = [0.0] * k, [0.0] * k, [0.0] * k
        self._left_s = [task.arrival_s for task in tasks]
        self._waiting_s, self._execution_s, self._completion_s = [0.0] * n, [0.0] * n, [math.nan] * n
        self._last_gpu = [-1] * n

    def observe(self, gpu: int, now_s: float, seen: BriefReading) -> None:
        """Account for a GPU's reading, which is valid from `now_s` on."""
        since_s, power_w, runs = self._seen[gpu]
        held_s = now_s - since_s
        self._energy_j[gpu] += power_w * held_s
        if runs:
            self._busy_s[gpu] += held_s
        self._seen[gpu] = now_s, seen.power_w, bool(seen.residents)

    def observe_all(self, gpus: Sequence[int], now_s: float, seen: BriefReading) -> None:
        """Account for one reading of several GPUs, which is valid from `now_s` on."""
        # The inner loop of long runs: local names are faster than attributes.
        before, energy_j, busy_s = self._seen, self._energy_j, self._busy_s
        now = now_s, seen.power_w, bool(seen.residents)
        for gpu in gpus:
            since_s, power_w, runs = before[gpu]
            held_s = now_s - since_s
            energy_j[gpu] += power_w * held_s
            if runs:
                busy_s[gpu] += held_s
            before[gpu] = now

    def add_interval(self, last: Interval, gpus: Sequence[int]) -> None:
        """Add the interval of a task that has left its GPUs; `last` is the one on the last of them."""
        task, start_s, end_s = last.task, last.start_s, last.end_s
        self._waiting_s[task] += start_s - self._left_s[task]
        self._execution_s[task] += end_s - start_s
        self._left_s[task] = end_s
        self._last_gpu[task] = gpus[-1]
        if last.outcome == "completed":
            self._completion_s[task] = end_s
        self._account_active(gpus, end_s)

    def _account_active(self, gpus: Sequence[int], end_s: float) -> None:
        """Set the active energy of GPUs to their energy until a task there ends, s."""
        active_j, energy_j, seen = self._active_j, self._energy_j, self._seen
        for gpu in gpus:
            since_s, power_w, _ = seen[gpu]
            active_j[gpu] = energy_j[gpu] + power_w * (end_s - since_s)

    def finish(self, now_s: float) -> tuple[Timeline, Totals]:
        """Return an empty timeline, and the totals up to `now_s`."""
        self.release()
        since_s, power_w, runs = map(np.array, zip(*self._seen, strict=True))
        held_s = now_s - since_s
        return Timeline(self.labels, (), ()), Totals(
            waiting_s=np.array(self._waiting_s),
            execution_s=np.array(self._execution_s),
            completion_s=np.array(self._completion_s),
            last_gpu=np.array(self._last_gpu, dtype=np.float64),
            energy_active_j=np.array(self._active_j),
            energy_cluster_j=np.array(self._energy_j) + power_w * held_s,
            busy_s=np.array(self._busy_s) + np.where(runs, held_s, 0.0),
        )

    def release(self) -> None:
        """Close the files of a recorder that has some."""


SEGMENTS, INTERVALS = "segments.csv", "intervals.csv"


class CsvSink:
    """Writes rows to a CSV file, in place of a list that collects them.

    Its pickle holds the length of the file; unpickling truncates the file to that length, so that a run that continues
    from a checkpoint writes no row twice. The earlier content of a file at `path` is lost.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb")
        self._file.write((",".join(columns) + "\n").encode())

    def append(self, row: NamedTuple) -> None:
        """Write a row; a number is the shortest text that reads back as the same number."""
        self._file.write((",".join(map(_cell, row)) + "\n").encode())

    def extend(self, rows: Iterable[NamedTuple]) -> None:
        """Write rows to the CSV file."""
        for row in rows:
            self.append(row)

    def __iter__(self) -> Iterator[Any]:
        """Return an empty iterator: the rows are in the file."""
        return iter(())

    def close(self) -> None:
        """Close the CSV file."""
        self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        self._file.flush()
        return {"path": self._path, "length": self._file.tell()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._file = self._path.open("r+b")
        self._file.truncate(state["length"])
        self._file.seek(state["length"])


class StreamingRecorder:
    """Writes the timeline to `segments.csv` and `intervals.csv` of a folder; `totals` adds up times and energies."""

    def __init__(self, labels: tuple[str, ...], totals: TotalsRecorder, folder: Path) -> None:
        self._segments, self._intervals = (
            CsvSink(folder / name, kind._fields) for name, kind in ((SEGMENTS, Segment), (INTERVALS, Interval))
        )
        self._timeline = TimelineRecorder(labels, self._segments, self._intervals)
        self.totals = totals

    def observe(self, gpu: int, now_s: float, seen: BriefReading) -> None:
        """Account for a GPU's reading, which is valid from `now_s` on."""
        self._timeline.observe(gpu, now_s, seen)
        self.totals.observe(gpu, now_s, seen)

    def observe_all(self, gpus: Sequence[int], now_s: float, seen: BriefReading) -> None:
        """Account for one reading of several GPUs, which is valid from `now_s` on."""
        self._timeline.observe_all(gpus, now_s, seen)
        self.totals.observe_all(gpus, now_s, seen)

    def add_interval(self, last: Interval, gpus: Sequence[int]) -> None:
        """Add the interval of a task that has left its GPUs; `last` is the one on the last of them."""
        self._timeline.add_interval(last, gpus)
        self.totals.add_interval(last, gpus)

    def finish(self, now_s: float) -> tuple[Timeline, Totals]:
        """Close the files; return an empty timeline and the totals up to `now_s`."""
        empty, _ = self._timeline.finish(now_s)
        self.release()
        return empty, self.totals.finish(now_s)[1]

    def release(self) -> None:
        """Close the files of the timeline."""
        self._segments.close()
        self._intervals.close()
        self.totals.release()


def _cell(value: object) -> str:
    """Return the text of a cell; residents are `task@MPS percentage@seconds per iteration`, joined by `+`."""
    if isinstance(value, tuple):
        return "+".join("@".join(map(str, resident)) for resident in value)
    return "" if value is None else str(value)
