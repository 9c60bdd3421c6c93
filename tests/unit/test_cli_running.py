"""`heshare run` on emulated GPUs at length: Venus, files as it goes on, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.running import checkpoint

VENUS = ("run", "--policy", "fifo", "--cluster", "16xV100")


def call(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*VENUS, *words], catch_exceptions=True)
    return done.exit_code, done.stdout, done.stderr


def test_venus_says_where_its_jobs_come_from_and_streams(tmp_path: Path) -> None:
    code, said, where = call("--tasks", "venus:40@0.7", "--out", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(said)["tasks"] == 40
    assert "generated to meet the published figures" in where
    assert len(pd.read_csv(tmp_path / "intervals.csv")) >= 40
    assert len(pd.read_csv(tmp_path / "tasks.csv")) == 40


def test_venus_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{i},2020-09-01 00:{i:02d}:00,60,{1 + 39 * (i == 3)}" for i in range(10)]
    path.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *rows]), encoding="utf-8")
    code, _, said = call("--tasks", "venus:all", "--trace", str(path))
    assert code == 2
    assert "row 5, column gpu_num: found '40'; expected at most the 16 GPUs of the cluster" in said
    code, said, where = call("--tasks", "venus:all", "--trace", str(path), "--json", "--skip-bad")
    assert code == 0
    assert json.loads(said)["tasks"] == 9
    assert "read from a file" in where
    assert "1 x gpu_num: more GPUs than there are" in where


@pytest.mark.parametrize("text", ["venus:", "venus:many", "venus:3@half", "venus:0"])
def test_another_form_is_one_message(text: str) -> None:
    code, _, said = call("--tasks", text)
    assert code == 2
    assert said.count("\n") == 1


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--tasks", "venus:40@0.7", "--json", "--checkpoint", str(tmp_path / "c"))
    _, whole, _ = call(*words[:-2])
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Checkpoints, "between", _die_at_twenty)
        code, _, said = call(*words)
    assert code == 130
    assert said.endswith("heshare: interrupted: at twenty\n")
    assert (tmp_path / "c").exists()
    _, resumed, _ = call(*words)
    found = [
        {key: value for key, value in json.loads(each).items() if key != "planning_s"} for each in (whole, resumed)
    ]
    assert found[0] == found[1]
    assert not (tmp_path / "c").exists()


def _die_at_twenty(self: checkpoint.Checkpoints, course: checkpoint.Course) -> None:
    if course.loop.events == 20:
        self.save(course)
        raise KeyboardInterrupt("at twenty")
