"""Errors of every command: full disks, JSON, Ctrl-C; progress bars of commands, notebooks and the library."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.waiting import until
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app, options
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.shared.progress import bar, line_after_a_second
from heshare.testing.toy import ToyPredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

RUN = CliRunner()
TASKS = [Task(number, Workload("resnet50", 8), 1000) for number in range(2)]
SMALL = ("--cluster", "1xT4", "--tasks", "2")


def test_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of the file system is one message."""

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("heshare.shared.files.write_text", full)
    done = RUN.invoke(app, ["run", *SMALL, "--policy", "random", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path / 'tasks.csv'}: No space left" in done.stderr


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        (("estimate", "V10", "resnet50:8"), "InputError", ("action", "Did you mean 'V100'?")),
        (("plan", *SMALL, "--arrivals", "miso"), "InputError", ("column", "arrival_s")),
        (("plan", "--seed", "x"), "UsageError", None),
        (("compare", *SMALL, "--policy", "random", "--seeds", "999999999999"), "UsageError", None),
        (("profile", "--device", "emulated:T4", "--dry-run", "\udcff"), "UsageError", None),
    ],
)
def test_json_errors(words: tuple[str, ...], kind: str, part: tuple[str, str] | None) -> None:
    """With `--json` errors are JSON, too."""
    done = RUN.invoke(app, [*words, "--json"])
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == kind
    assert error["message"]
    if part is not None:
        assert error[part[0]] == part[1]


def test_json_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user's own policy prints is not between the JSON."""
    base = "from heshare.policies.random_placement import Random\nprint('made')\n\n\nclass Loud(Random):\n"
    decide = (
        "    def decide(self, event, view):\n        print('decides')\n        return super().decide(event, view)\n"
    )
    (tmp_path / "loud_policy.py").write_text(base + decide)
    monkeypatch.chdir(tmp_path)
    for words in (["run"], ["compare", "--seeds", "1"]):
        done = RUN.invoke(app, [*words, *SMALL, "--policy", "loud_policy:Loud", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"]
        assert "decides" in done.stderr


def test_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with exit code 130 and no output."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heshare.api.plan_tasks", interrupt)
    done = RUN.invoke(app, ["plan", *SMALL, "-q"])
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
    assert done.stdout == ""


def test_notebook_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, bars and lines go to the cell and not to the terminal of the server."""
    with (tmp_path / "terminal").open("w") as terminal:

        class CellStderr(io.StringIO):
            """The stderr of a cell in Jupyter, whose descriptor is that of the server's terminal."""

            def fileno(self) -> int:
                return terminal.fileno()

        monkeypatch.setattr("heshare.shared.progress.LINE_AFTER_S", 0.05)
        monkeypatch.setattr(sys, "stderr", cell := CellStderr())
        with bar("plan", "generation", True) as update, line_after_a_second("working", True):
            update(3, 3)
            assert until(lambda: "working\n" in cell.getvalue(), 60)
        rng = np.random.default_rng(0)
        run(TASKS, Cluster.parse("1xT4"), make("random"), predictor=ToyPredictor(), rng=rng, progress=True)
    assert "working\n" in cell.getvalue()
    assert "3/3" in cell.getvalue()
    assert "2/2" in cell.getvalue()
    assert (tmp_path / "terminal").read_text() == ""


def test_library_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` and `optimise` of the library show a bar if asked to, which changes no result."""
    front = hs.plan(2, "1xT4", progress=True)
    assert "plan: 100%" in capsys.readouterr().err
    for budget_s in (None, 0.01):
        hs.optimise(2, "1xT4", budget_s=budget_s, progress=True)
        assert "optimise: " in capsys.readouterr().err
    assert (hs.plan(2, "1xT4").objectives == front.objectives).all()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("quiet", "terminal", "shown"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_quiet(quiet: bool, terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands show a bar on a terminal unless they are quiet."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert options.shows_bar(quiet) is shown
