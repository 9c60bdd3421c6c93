"""A timeline that goes to files while the run goes on, and is never in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from heshare.devices.device import Glance
from heshare.running.timeline import Interval, Recorder, Segment, Timeline
from heshare.running.totals import Accountant, Totals
from heshare.world.task import Task

SEGMENTS, INTERVALS = "segments.csv", "intervals.csv"


class Sink:
    """Takes rows where a list would, and writes them to a CSV file.

    A pickle of it knows how far the file has been written; read again, it cuts off what came after.

    Args:
        path: the file; what it holds is lost.
        columns: its header.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb")
        self._file.write((",".join(columns) + "\n").encode())

    def append(self, row: NamedTuple) -> None:
        """Write a row; numbers as the shortest text that reads back as the same number."""
        self._file.write((",".join(map(_cell, row)) + "\n").encode())

    def extend(self, rows: Iterable[NamedTuple]) -> None:
        """Write rows."""
        for row in rows:
            self.append(row)

    def __iter__(self) -> Iterator[Any]:
        """Nothing: the rows are in the file."""
        return iter(())

    def close(self) -> None:
        """All has been written."""
        self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        self._file.flush()
        return {"path": self._path, "length": self._file.tell()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._file = self._path.open("r+b")
        self._file.truncate(state["length"])
        self._file.seek(state["length"])


class Streamer:
    """Writes the timeline to `segments.csv` and `intervals.csv` of a folder, and adds up times and energies.

    Args:
        labels: of the GPUs.
        tasks: the task set.
        folder: where to.
    """

    def __init__(self, labels: tuple[str, ...], tasks: Sequence[Task], folder: Path) -> None:
        self._segments, self._intervals = (
            Sink(folder / name, kind._fields) for name, kind in ((SEGMENTS, Segment), (INTERVALS, Interval))
        )
        self._timeline = Recorder(labels, self._segments, self._intervals)
        self._totals = Accountant(labels, tasks)

    def observe(self, gpu: int, now_s: float, seen: Glance) -> None:
        """From `now_s` on, the GPU is as was seen."""
        self._timeline.observe(gpu, now_s, seen)
        self._totals.observe(gpu, now_s, seen)

    def alike(self, gpus: Sequence[int], now_s: float, seen: Glance) -> None:
        """From `now_s` on, all these GPUs are as was seen of one of them."""
        self._timeline.alike(gpus, now_s, seen)
        self._totals.alike(gpus, now_s, seen)

    def close(self, last: Interval, gpus: Sequence[int]) -> None:
        """A task has left its GPUs; `last` is its stretch on one of them."""
        self._timeline.close(last, gpus)
        self._totals.close(last, gpus)

    def finish(self, now_s: float) -> tuple[Timeline, Totals]:
        """An empty timeline, since it is in the files, and the totals up to `now_s`."""
        empty, _ = self._timeline.finish(now_s)
        self.release()
        return empty, self._totals.finish(now_s)[1]

    def release(self) -> None:
        """Close the files."""
        self._segments.close()
        self._intervals.close()


def _cell(value: object) -> str:
    """Text of a cell; residents as `task@MPS percentage@seconds per iteration`, a plus between them."""
    if isinstance(value, tuple):
        return "+".join("@".join(map(str, one)) for one in value)
    return "" if value is None else str(value)
