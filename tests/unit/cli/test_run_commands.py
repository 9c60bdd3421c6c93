"""`heshare run` of Venus jobs on emulated GPUs: sources and files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from heshare.cli import app

VENUS = ("run", "--policy", "fifo", "--cluster", "16xV100")


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*VENUS, *words], catch_exceptions=True)
    return result.exit_code, result.stdout, result.stderr


def test_generated_trace(tmp_path: Path) -> None:
    """A generated trace says so, and the tasks and the timeline are written."""
    code, output, errors = call("--tasks", "venus:40@0.7", "--out", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(output)["tasks"] == 40
    assert "generated" in errors
    assert len(pd.read_csv(tmp_path / "timeline.csv")) >= 40
    assert len(pd.read_csv(tmp_path / "tasks.csv")) == 40


def test_trace_file(tmp_path: Path) -> None:
    """A trace is read from a file; a job larger than the cluster is left out and told."""
    path = tmp_path / "log.csv"
    rows = [f"{i},2020-09-01 00:{i:02d}:00,60,{1 + 39 * (i == 3)}" for i in range(4)]
    path.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *rows]), encoding="utf-8")
    code, output, errors = call("--tasks", "venus:all", "--trace", str(path), "--json")
    assert code == 0
    assert json.loads(output)["tasks"] == 3
    assert "4 rows read, 3 kept, 1 left out (1 x more than the 16 GPUs of the cluster)" in errors
    assert "read from a file" in errors


@pytest.mark.parametrize(
    "words", ["status my-run", "report my-run", "run --resume my-run", "run --tasks 4 --devices=nvml"]
)
def test_former_commands(words: str) -> None:
    """Former spellings of runs on real GPUs name the command of today."""
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert f"heshare jobs {words.split()[0]}" in " ".join(result.stderr.replace("\u2502", " ").split())
