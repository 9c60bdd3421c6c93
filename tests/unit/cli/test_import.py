"""`heshare import`: a trace becomes a task file, and one line says what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.shared.files import sha256

TRACE = "submit,took,gpus\n0,60,0\n10,1500,2\n12,-1,1\n"
COLUMNS = ["--column", "arrival=submit", "--column", "duration=took", "--column", "gpus=gpus"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def call(*words: str):
    return CliRunner().invoke(app, ["import", *words])


def test_task_file(trace: Path, tmp_path: Path) -> None:
    """The tasks are written, and the line counts the rows that are not among them."""
    out = tmp_path / "tasks.csv"
    done = call(str(trace), *COLUMNS, "--unit", "duration=ms", "--skip-bad", "--out", str(out), "--workload", "vgg16:4")
    assert done.exit_code == 0
    assert "3 rows read, 1 kept, 2 left out (1 x no GPU, 1 x took: negative duration)" in done.stdout
    assert done.stderr == ""
    (task,) = hs.read_tasks(out)
    assert (str(task.workload), task.gpus) == ("vgg16:4", 2)
    assert task.iterations == pytest.approx(hs.iterations("vgg16:4", 1.5))


def test_record(trace: Path, tmp_path: Path) -> None:
    """Beside the task file stands what made it; the file of another command, or of none, is not replaced."""
    words = [str(trace), *COLUMNS, "--skip-bad", "--out"]
    out = tmp_path / "tasks.csv"
    for _ in range(2):
        assert call(*words, str(out)).exit_code == 0
    about = json.loads((tmp_path / "tasks.run.json").read_text())
    assert about["inputs"] == {str(trace): sha256(trace)}
    assert about["outputs"] == {"tasks.csv": sha256(out)}

    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for more in ([str(out), "--seed", "1"], [str(trace)]):
        done = call(*words, *more)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_json(trace: Path) -> None:
    """Without a task file to write, the report alone is printed."""
    said = json.loads(call(str(trace), *COLUMNS, "--skip-bad", "--json").stdout)
    assert (said["rows"], said["kept"], said["gpu_hours"]) == (3, 1, pytest.approx(1500 * 2 / 3600))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (COLUMNS, "row 4, column took"),
        (["--column", "arrival"], "KEY=NAME"),
        (["--recipe", "helios"], "column job_id"),
        (["--recipe", "helois"], "Did you mean 'helios'"),
        ([], "either columns or a recipe"),
        ([*COLUMNS, "--unit", "gpus=ms"], "argument units"),
    ],
)
def test_refusals(trace: Path, tmp_path: Path, words: list[str], message: str) -> None:
    """What is refused is one line and exit code 2, and nothing is written."""
    done = call(str(trace), *words, "--out", str(tmp_path / "tasks.csv"))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert not (tmp_path / "tasks.csv").exists()
