"""Job traces in the format of Helios (Hu et al., SC'21): streamed and validated.

Two sets of columns are read: the published `cluster_log.csv` (job_id, user, vc, gpu_num, cpu_num, node_num, state,
submit_time, start_time, end_time, duration, queue) and its extract (job_id, submit_time, duration_s, gpu_num).
Only the id, the submission, the duration and the number of GPUs are used; other columns may hold anything.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from heshare.shared.errors import require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.csv_table import Header, Row, RowError, read_rows

ON_BAD = ("raise", "skip")
DURATIONS = ("duration_s", "duration")
_DATE = "a date and time such as 2020-09-01 00:00:52"
_PAGE_BITS = 4096


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        id: the trace's own number for it.
        submit_s: when it was submitted, seconds after the first job of the trace.
        duration_s: how long it ran, s.
        gpus: number of GPUs; 0 for a job without GPUs.
    """

    id: int
    submit_s: float
    duration_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Job trace that is held in memory.

    Attributes:
        file: the file.
        jobs: its good rows, by submission.
        skipped: number of rows left out, by column and reason; empty if there are none.
        origin: the source, which results name.
    """

    file: Path
    jobs: tuple[TraceJob, ...]
    skipped: Mapping[str, int]
    origin: str = "read from a file"

    def report(self) -> str:
        """Return one line with the number of jobs read, and of rows skipped for each reason."""
        reasons = "; ".join(f"{count} x {reason}" for reason, count in sorted(self.skipped.items()))
        total = sum(self.skipped.values())
        return f"{self.file}: {len(self.jobs)} jobs read, {total} rows skipped{f' ({reasons})' if reasons else ''}"


def read_trace(path: str | Path, *, on_bad: str = "raise", most_gpus: int | None = None) -> JobTrace:
    """Return a whole trace; arguments and errors as `stream_jobs`."""
    skipped: Counter[str] = Counter()
    jobs = tuple(stream_jobs(path, on_bad=on_bad, skipped=skipped, most_gpus=most_gpus))
    return JobTrace(Path(path), jobs, dict(sorted(skipped.items())))


def stream_jobs(
    path: str | Path, *, on_bad: str = "raise", skipped: Counter[str] | None = None, most_gpus: int | None = None
) -> Iterator[TraceJob]:
    """Yield the jobs of a trace one by one, so that a trace of any length can be read.

    It needs memory for one row, and about one bit for each job id seen.

    Args:
        path: a CSV file, UTF-8, sorted by `submit_time`.
        on_bad: `raise` stops at the first bad row; `skip` leaves bad rows out and counts them.
        skipped: receives the counts of skipped rows, by `column: reason`.
        most_gpus: number of GPUs in the cluster: a job for more is a bad row.

    Raises:
        InputError: no such file, a missing column, no (good) row, or another `on_bad`. With `raise` also the
        first bad row.
    """
    require("on_bad", repr(on_bad), on_bad in ON_BAD, " or ".join(ON_BAD), "Choose one of the two.")
    rows = read_rows(path)
    header = cast(Header, next(rows))
    reader = _RowReader(_duration_column(header), most_gpus)
    for row in rows:
        try:
            yield reader.job(row)
        except RowError as error:
            if on_bad == "raise":
                raise
            if skipped is not None:
                skipped[f"{error.column}: {error.reason}" if error.column else error.reason] += 1
    found, expected = (
        "no job" if on_bad == "raise" else "no row that could be used",
        "at least one row below the header",
    )
    require(None, found, reader.first is not None, expected, "Check that this is the right file.", file=path)


def _duration_column(header: Header) -> str:
    name = next((name for name in DURATIONS if name in header.columns), DURATIONS[0])
    if "start_time" in header.columns and name not in header.columns:
        name = "duration"
    header.require(("job_id", "submit_time", name, "gpu_num"))
    return name


class _RowReader:
    # Slurm numbers jobs in sequence, so the ids seen are bits of pages.
    def __init__(self, duration: str, most_gpus: int | None) -> None:
        self._most_gpus = most_gpus
        self.first: datetime | None = None
        self._last: datetime | None = None
        self._duration = duration
        self._pages: dict[int, int] = {}

    def job(self, row: Header | Row | RowError) -> TraceJob:
        if isinstance(row, RowError):
            raise row
        row = cast(Row, row)
        job_id = row.whole("job_id")
        page, bit = divmod(job_id, _PAGE_BITS)
        if self._pages.get(page, 0) >> bit & 1:
            raise row.error("job_id", "duplicate id", "an id that no row above has", "Remove one of the two rows.")
        submit = _date(row)
        duration_s = row.number_of(self._duration, most=MOST_S)
        gpus = row.whole("gpu_num")
        if self._most_gpus is not None and gpus > self._most_gpus:
            expected = f"at most the {self._most_gpus} GPUs of the cluster"
            raise row.error("gpu_num", "more GPUs than there are", expected, "Take a larger cluster, or skip bad rows.")
        if self._last is not None and submit < self._last:
            raise row.error(
                "submit_time",
                "earlier than the row above",
                f"a time not before that of the row above, {self._last:%Y-%m-%d %H:%M:%S}",
                "Sort the file by submit_time, or skip bad rows.",
            )
        self.first = self.first or submit
        self._last = submit
        self._pages[page] = self._pages.get(page, 0) | 1 << bit
        return TraceJob(job_id, (submit - self.first).total_seconds(), duration_s, gpus)


def _date(row: Row) -> datetime:
    text = row.text("submit_time", _DATE)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    # A bare date has no time of day, and a zone would make times of one trace incomparable.
    if parsed is None or parsed.tzinfo is not None or len(text) < len("2020-09-01 00:00:00"):
        raise row.error("submit_time", "not a date", _DATE, "Correct the date.")
    return parsed.replace(tzinfo=UTC)
