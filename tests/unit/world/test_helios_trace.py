"""Reader of Helios traces: both sets of columns, and an error for every kind of bad row."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world.helios_trace import TraceJob, read_trace

SAMPLE = "job_id,submit_time,duration_s,gpu_num"
GOOD = "1,2020-09-01 00:00:00,100,1"
LOG = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


@pytest.fixture
def write(tmp_path: Path):
    def write_lines(*lines: str, name: str = "trace.csv", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_text(end.join((*lines, "")), encoding="utf-8", newline="")
        return path

    return write_lines


def test_extract(write) -> None:
    """An extract is read."""
    path = write(SAMPLE, "765469,2020-09-01 00:00:52,102,1", "765470,2020-09-01 00:01:08,344.5,4")
    assert read_trace(path).jobs == (TraceJob(765469, 0.0, 102.0, 1), TraceJob(765470, 16.0, 344.5, 4))


def test_published_log(write) -> None:
    """The published log is read, with jobs without GPUs."""
    path = write(
        LOG,
        "7,ua,vcb,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0",
        "8,ub,vcb,0,16,1,FAILED,2020-06-10 18:41:01,,None,249,",
    )
    assert read_trace(path).jobs == (TraceJob(7, 0.0, 36848.0, 1), TraceJob(8, 86400.0, 249.0, 0))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_systems(write, end: str) -> None:
    """Files of other systems are read."""
    path = write("\ufeff" + SAMPLE, "", '"1", 2020-09-01T00:00:00 ,100,1.0', end=end)
    assert read_trace(path).jobs == (TraceJob(1, 0.0, 100.0, 1),)


BAD = [
    ("2,2020-09-01 00:00:01,,1", "duration_s", "an empty cell", "empty cell"),
    ("2,2020-09-31 00:00:01,100,1", "submit_time", "'2020-09-31 00:00:01'", "not a date"),
    ("2,2020-09-01,100,1", "submit_time", "'2020-09-01'", "not a date"),
    ("2,2020-09-01 00:00:01+08:00,100,1", "submit_time", "'2020-09-01 00:00:01+08:00'", "not a date"),
    ("2,2020-09-01 00:00:01,-5,1", "duration_s", "'-5'", "negative"),
    ("2,2020-09-01 00:00:01,1_0,1", "duration_s", "'1_0'", "not a number"),
    ("2,2020-09-01 00:00:01,nan,1", "duration_s", "'nan'", "not a finite number"),
    ("2,2020-09-01 00:00:01,100,1.5", "gpu_num", "'1.5'", "not a whole number"),
    ("2,2020-08-31 23:59:59,100,1", "submit_time", "'2020-08-31 23:59:59'", "earlier than the row above"),
    ("1,2020-09-01 00:00:01,100,1", "job_id", "'1'", "duplicate id"),
    ("one,2020-09-01 00:00:01,100,1", "job_id", "'one'", "not a number"),
    ("2,2020-09-01 00:00:01,100,1,9", None, "5 cells", "wrong number of cells"),
]


@pytest.mark.parametrize(("line", "column", "found", "reason"), BAD, ids=lambda part: str(part))
def test_bad_rows(write, line: str, column: str | None, found: str, reason: str) -> None:
    """A bad row is named, or skipped and counted."""
    path = write(SAMPLE, GOOD, "", line)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    error = caught.value
    assert (error.file, error.row, error.column, error.found) == (str(path), 4, column, found)
    trace = read_trace(write(SAMPLE, GOOD, line, "3,2020-09-01 00:01:00,5,8"), on_bad="skip")
    assert trace.jobs == (TraceJob(1, 0.0, 100.0, 1), TraceJob(3, 60.0, 5.0, 8))
    assert trace.skipped == {f"{column}: {reason}" if column else reason: 1}
    assert "1 rows skipped" in trace.report()


def test_lines(write) -> None:
    """Errors count rows as an editor counts lines."""
    path = write(SAMPLE + ",note", GOOD + ',"two\nlines"', '2,2020-09-01 00:00:01,"-5",1,"also\ntwo"')
    with pytest.raises(InputError, match="row 4, column duration_s"):
        read_trace(path)


@pytest.mark.parametrize("missing", SAMPLE.split(","))
@pytest.mark.parametrize("on_bad", ["raise", "skip"])
def test_missing_column(write, missing: str, on_bad: str) -> None:
    """Read trace names a missing column."""
    keep = [i for i, name in enumerate(SAMPLE.split(",")) if name != missing]
    path = write(*(",".join(line.split(",")[i] for i in keep) for line in (SAMPLE, GOOD)))
    with pytest.raises(InputError) as caught:
        read_trace(path, on_bad=on_bad)
    assert (caught.value.row, caught.value.column) == (1, missing)


@pytest.mark.parametrize("on_bad", ["raise", "skip"])
@pytest.mark.parametrize(
    ("lines", "found"),
    [((), "an empty file"), ((SAMPLE,), "no job|no row that could be used"), ((SAMPLE + ",gpu_num",), "twice")],
)
def test_no_jobs(write, lines: tuple[str, ...], found: str, on_bad: str) -> None:
    """A file without jobs is refused."""
    with pytest.raises(InputError, match=found):
        read_trace(write(*lines), on_bad=on_bad)


def test_other_files(write, tmp_path: Path) -> None:
    """Absent files, other bytes and open quotes are refused."""
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"job_id\xff\xfe\x00")
    open_quote = write(SAMPLE, GOOD, '2,"2020-09-01 00:00:01,100,1')
    for path, found in ((tmp_path / "absent.csv", "no such file"), (binary, "UTF-8"), (open_quote, "row 3")):
        with pytest.raises(InputError, match=found):
            read_trace(path)
    with pytest.raises(InputError, match="column duration:"):
        read_trace(write(LOG.replace("duration,", "")))
    with pytest.raises(InputError, match="argument on_bad"):
        read_trace(open_quote, on_bad="ignore")


def test_after_a_skipped_row(write) -> None:
    """A skipped row does not affect the rows after it."""
    lines = (SAMPLE, GOOD, "2,2021-01-01 00:00:00,bad,1", "2,2020-09-01 00:00:09,1,1")
    trace = read_trace(write(*lines), on_bad="skip")
    assert [(job.id, job.submit_s) for job in trace.jobs] == [(1, 0.0), (2, 9.0)]
