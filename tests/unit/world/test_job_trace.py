"""Traces of Helios: both sets of columns, rows that are refused or left out, and arrivals taken from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heshare.shared.errors import InputError
from heshare.shared.inputs.foreign_table import LeftOutWarning
from heshare.world.arrivals import arrivals_s
from heshare.world.job_trace import TraceJob, read_trace

SAMPLE = "job_id,submit_time,duration_s,gpu_num"
GOOD = "1,2020-09-01 00:00:00,100,1"
LOG = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_lines(*lines: str, name: str = "trace.csv", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_text(end.join((*lines, "")), encoding="utf-8", newline="")
        return path

    return write_lines


def test_extract(write) -> None:
    """An extract is read, by submission."""
    path = write(SAMPLE, "765470,2020-09-01 00:01:08,344.5,4", "765469,2020-09-01 00:00:52,102,1")
    assert read_trace(path).jobs == (TraceJob(0, 0.0, 102.0, 1), TraceJob(1, 16.0, 344.5, 4))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_systems(write, end: str) -> None:
    """Files of other systems are read."""
    path = write("\ufeff" + SAMPLE, "", '"1", 2020-09-01T00:00:00 ,100,1.0', end=end)
    assert read_trace(path).jobs == (TraceJob(0, 0.0, 100.0, 1),)


BAD = [
    ("2,2020-09-01 00:00:01,,1", "duration_s", "an empty cell"),
    ("2,2020-09-31 00:00:01,100,1", "submit_time", "'2020-09-31 00:00:01'"),
    ("2,2020-09-01,100,1", "submit_time", "'2020-09-01'"),
    ("2,2020-09-01 00:00:01+08:00,100,1", "submit_time", "'2020-09-01 00:00:01+08:00'"),
    ("2,2020-09-01 00:00:01,-5,1", "duration_s", "'-5'"),
    ("2,2020-09-01 00:00:01,0,1", "duration_s", "'0'"),
    ("2,2020-09-01 00:00:01,1_0,1", "duration_s", "'1_0'"),
    ("2,2020-09-01 00:00:01,100,x", "gpu_num", "'x'"),
    ("1,2020-09-01 00:00:01,100,1", "job_id", "'1'"),
    ("2,2020-09-01 00:00:01,100,1,9", None, "5 cells"),
]


@pytest.mark.parametrize(("line", "column", "found"), BAD, ids=lambda part: str(part))
def test_bad_rows(write, line: str, column: str | None, found: str) -> None:
    """A bad row is named, or left out and counted; the rows after it are read."""
    last = "3,2020-09-01 00:01:00,5,8"
    path = write(SAMPLE, GOOD, "", line, last)
    with pytest.raises(InputError) as caught:
        read_trace(path, skip_bad=False)
    error = caught.value
    assert (error.file, error.row, error.column, error.found) == (str(path), 4, column, found)
    trace = read_trace(path)
    assert [(job.submit_s, job.gpus) for job in trace.jobs] == [(0.0, 1), (60.0, 8)]
    assert sum(trace.left_out.values()) == 1


def test_lines(write) -> None:
    """Errors count rows as an editor counts lines."""
    path = write(SAMPLE + ",note", GOOD + ',"two\nlines"', '2,2020-09-01 00:00:01,"-5",1,"also\ntwo"')
    with pytest.raises(InputError, match="row 4, column duration_s"):
        read_trace(path, skip_bad=False)


@pytest.mark.parametrize("missing", ["job_id", "submit_time", "gpu_num"])
def test_missing_column(write, missing: str) -> None:
    """A missing column is named."""
    keep = [i for i, name in enumerate(SAMPLE.split(",")) if name != missing]
    path = write(*(",".join(line.split(",")[i] for i in keep) for line in (SAMPLE, GOOD)))
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert (caught.value.row, caught.value.column) == (1, missing)


@pytest.mark.parametrize(
    ("lines", "found"),
    [((), "an empty file"), ((SAMPLE,), "no job"), ((SAMPLE + ",gpu_num",), "twice"), ((LOG[:-6],), "column duration")],
)
def test_no_jobs(write, lines: tuple[str, ...], found: str) -> None:
    """A file without jobs, or without their durations, is refused."""
    lines = tuple(line.replace("duration", "took") if found == "column duration" else line for line in lines)
    with pytest.raises(InputError, match=found):
        read_trace(write(*lines))


def test_other_files(write, tmp_path: Path) -> None:
    """Absent files, other bytes and open quotes are refused."""
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"job_id\xff\xfe\x00")
    open_quote = write(SAMPLE, GOOD, '2,"2020-09-01 00:00:01,100,1')
    for path, found in ((tmp_path / "absent.csv", "no such file"), (binary, "UTF-8"), (open_quote, "row 3")):
        with pytest.raises(InputError, match=found):
            read_trace(path)


def test_arrivals(write) -> None:
    """Arrivals are those of the jobs with a GPU, and what is left out is told."""
    lines = [f"{job},2020-09-01 00:0{job}:00,60,{job % 2}" for job in range(1, 6)]
    with pytest.warns(LeftOutWarning, match="5 rows read, 3 kept, 2 left out"):
        found = arrivals_s(3, rng=np.random.default_rng(0), arrivals=str(write(SAMPLE, *lines)))
    assert found.tolist() == [0.0, 120.0, 240.0]
    for cells, message in (("5\n-1", "row 3, column arrival_s"), ("5\nx", "row 3, column arrival_s")):
        with pytest.raises(InputError, match=message):
            arrivals_s(2, rng=np.random.default_rng(0), arrivals=str(write("arrival_s", cells)))
