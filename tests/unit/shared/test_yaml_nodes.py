"""YAML files: types of YAML 1.2 in every reader, and each key once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from heshare.lab.sweeps.grid import read_grid
from heshare.ops.jobs.job_file import read_jobs
from heshare.shared.errors import InputError
from heshare.shared.yaml_nodes import read_values

JOB = "jobs: [{{name: 007, command: [echo, 010, yes], like: low, expected_time_s: {}, count: {}}}]\n"
GRID = "policies: fifo\nclusters: 1xT4\ntasks: 2\nintervals_s: {}\nseeds: {}\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("010", 10), ("-017", -17), ("+3", 3), ("0o17", 15), ("0x1F", 31), ("'010'", "010")],
        *[("1e3", 1000.0), ("-.5", -0.5), ("5.", 5.0), ("-.INF", -math.inf)],
        *[(text, text) for text in ("1:30", "1_000", "0b1", "2020-01-01", "yes", "off", "tRue", "inf", "0o8", "<<")],
        *[("TRUE", True), ("false", False), ("~", None), ("", None)],
    ],
)
def test_types(text: str, value: Any, tmp_path: Path) -> None:
    """A plain scalar has the type that YAML 1.2 gives it."""
    path = tmp_path / "values.yaml"
    path.write_text(f"a: {text}\n")
    found = read_values(path, "values", "Correct them.")["a"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("time", "count"), [("1e1", "010"), ("010", "0o12"), ("10.", "0xA")])
def test_grids_and_jobs(time: str, count: str, tmp_path: Path) -> None:
    """Numbers mean the same in a grid and in a file of jobs; texts of jobs stay as they are written."""
    (grid := tmp_path / "grid.yaml").write_text(GRID.format(time, count))
    (jobs := tmp_path / "jobs.yaml").write_text(JOB.format(time, count))
    job = read_jobs(jobs)[0]
    assert (job.expected_time_s, job.count) == (10, 10)
    assert (job.name, job.command) == ("007", ("echo", "010", "yes"))
    assert (read_grid(grid).scenarios[0].labels["interval_s"], read_grid(grid).seeds) == (10, 10)


@pytest.mark.parametrize("text", ["1:30", "1_0", "yes", "2020-01-01", ".inf", ".nan", "'10'", "!!binary MTA="])
def test_no_numbers(text: str, tmp_path: Path) -> None:
    """What YAML 1.2 does not read as a finite number is refused as one, in a grid and in a file of jobs."""
    (grid := tmp_path / "grid.yaml").write_text(GRID.format(text, 1))
    (jobs := tmp_path / "jobs.yaml").write_text(JOB.format(text, 1))
    with pytest.raises(InputError, match="intervals_s"):
        read_grid(grid)
    if text != "'10'":  # a file of jobs may quote its numbers
        with pytest.raises(InputError, match="expected_time_s"):
            read_jobs(jobs)
