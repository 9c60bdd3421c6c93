"""Job traces in the format of Helios (Hu et al., SC'21): streamed, validated, as frozen jobs.

Two sets of columns are read: the published `cluster_log.csv` (job_id, user, vc, gpu_num, cpu_num, node_num, state,
submit_time, start_time, end_time, duration, queue) and its extract (job_id, submit_time, duration_s, gpu_num).
Only the id, the submission, the duration and the number of GPUs are used; other columns may hold anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from heshare.errors import InputError
from heshare.world.table import Header, Row, RowError, read_rows

ON_BAD = ("raise", "skip")
DURATIONS = ("duration_s", "duration")
_DATE = "a date and time such as 2020-09-01 00:00:52"
_PAGE_BITS = 4096


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace.

    Attributes:
        id: the trace's own number for it.
        submit_s: when it was submitted, seconds after the first job of the trace.
        duration_s: how long it ran, s.
        gpus: how many GPUs it had; 0 for a job of CPUs alone.
    """

    id: int
    submit_s: float
    duration_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace in memory.

    Attributes:
        file: where it came from.
        jobs: its good rows, by submission.
        skipped: how many rows were left out, by column and reason; empty if none were.
        origin: what to say of it beside results.
    """

    file: Path
    jobs: tuple[Job, ...]
    skipped: Mapping[str, int]
    origin: str = "read from a file"

    def report(self) -> str:
        """One line: how many jobs were read, how many rows were skipped and why."""
        why = "; ".join(f"{count} x {reason}" for reason, count in sorted(self.skipped.items()))
        total = sum(self.skipped.values())
        return f"{self.file}: {len(self.jobs)} jobs read, {total} rows skipped{f' ({why})' if why else ''}"


def read_trace(path: str | Path, *, on_bad: str = "raise", most_gpus: int | None = None) -> Trace:
    """Read a whole trace; arguments and errors as in `stream_jobs`."""
    skipped: Counter[str] = Counter()
    jobs = tuple(stream_jobs(path, on_bad=on_bad, skipped=skipped, most_gpus=most_gpus))
    return Trace(Path(path), jobs, dict(sorted(skipped.items())))


def stream_jobs(
    path: str | Path, *, on_bad: str = "raise", skipped: Counter[str] | None = None, most_gpus: int | None = None
) -> Iterator[Job]:
    """Yield the jobs of a trace one by one, so that a trace of any length can be read.

    Memory: one row, and about one bit for each job id seen (Slurm numbers jobs in sequence).

    Args:
        path: a CSV file, UTF-8, sorted by `submit_time`.
        on_bad: `raise` stops at the first bad row; `skip` leaves bad rows out and counts them.
        skipped: receives the counts of skipped rows, by `column: reason`.
        most_gpus: how many GPUs the cluster has: a job for more is a bad row.

    Raises:
        InputError: no such file; a column is missing; the file has no (good) row; `on_bad` is neither. With
            `raise` also the first bad row: an empty cell, a date that is none, a duration or a number of GPUs that
            is not a number or is negative, more GPUs than there are, a submission before that of the row above, an id
            seen before.
    """
    if on_bad not in ON_BAD:
        raise InputError(
            column="on_bad", found=repr(on_bad), expected=" or ".join(ON_BAD), action="Choose one of the two."
        )
    rows = read_rows(path)
    header = cast(Header, next(rows))
    checker = _Checker(_duration_column(header), most_gpus)
    for row in rows:
        try:
            yield checker.job(row)
        except RowError as error:
            if on_bad == "raise":
                raise
            if skipped is not None:
                skipped[f"{error.column}: {error.reason}" if error.column else error.reason] += 1
    if checker.first is None:
        raise InputError(
            file=path,
            found="no job" if on_bad == "raise" else "no row that could be used",
            expected="at least one row below the header",
            action="Check that this is the right file.",
        )


def _duration_column(header: Header) -> str:
    name = next((name for name in DURATIONS if name in header.columns), DURATIONS[0])
    if "start_time" in header.columns and name not in header.columns:
        name = "duration"
    header.need(("job_id", "submit_time", name, "gpu_num"))
    return name


class _Checker:
    """Turns rows into jobs; remembers the ids seen and the last submission."""

    def __init__(self, duration: str, most_gpus: int | None) -> None:
        self._most_gpus = most_gpus
        self.first: datetime | None = None
        self._last: datetime | None = None
        self._duration = duration
        self._pages: dict[int, int] = {}

    def job(self, row: Header | Row | RowError) -> Job:
        """The job in this row, if all of it is good; a bad row changes nothing that is remembered."""
        if isinstance(row, RowError):
            raise row
        row = cast(Row, row)
        number = row.whole("job_id")
        if self._seen(number):
            raise row.bad("job_id", "duplicate id", "an id that no row above has", "Remove one of the two rows.")
        submit = _date(row)
        duration_s = row.number_of(self._duration)
        gpus = row.whole("gpu_num")
        if self._most_gpus is not None and gpus > self._most_gpus:
            expected = f"at most the {self._most_gpus} GPUs of the cluster"
            raise row.bad("gpu_num", "more GPUs than there are", expected, "Take a larger cluster, or skip bad rows.")
        if self._last is not None and submit < self._last:
            raise row.bad(
                "submit_time",
                "time runs backwards",
                f"a time not before that of the row above, {self._last:%Y-%m-%d %H:%M:%S}",
                "Sort the file by submit_time, or skip bad rows.",
            )
        self.first = self.first or submit
        self._last = submit
        self._remember(number)
        return Job(number, (submit - self.first).total_seconds(), duration_s, gpus)

    def _seen(self, number: int) -> bool:
        page, bit = divmod(number, _PAGE_BITS)
        return bool(self._pages.get(page, 0) >> bit & 1)

    def _remember(self, number: int) -> None:
        page, bit = divmod(number, _PAGE_BITS)
        self._pages[page] = self._pages.get(page, 0) | 1 << bit


def _date(row: Row) -> datetime:
    text = row.text("submit_time", _DATE)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    # A bare date has no time of day, and a zone would make times of one trace incomparable.
    if parsed is None or parsed.tzinfo is not None or len(text) < len("2020-09-01 00:00:00"):
        raise row.bad("submit_time", "not a date", _DATE, "Correct the date.")
    return parsed.replace(tzinfo=UTC)
