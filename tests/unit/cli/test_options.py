"""Options that mean the same in every command; outputs checked before the work; errors as JSON; progress."""

from __future__ import annotations

import inspect
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from support.waiting import until
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
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


def refused(*words: str) -> str:
    """Return the one message of a command that exits with 2."""
    done = RUN.invoke(app, list(words))
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("run", *SMALL, "--out", "FILE"), "--out"),
        (("compare", *SMALL, "--cells", "FILE"), "--cells"),
        (("profile", "--device", "emulated:T4", "--out", "FILE"), "--out"),
        (("notebook", "run", "01", "--out", "FILE/x"), "--out"),
        (("live", "--work", "FILE"), "--work"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_work(
    words: tuple[str, ...], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heshare.policies.registry.make", lambda text: pytest.fail("the work has begun"))
    file = tmp_path / "file"
    file.touch()
    message = refused(*(word.replace("FILE", str(file)) for word in words))
    assert f"argument {option}: found {file}, which is a file" in message
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_of_the_file_system_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("heshare.shared.files.write_text", full)
    done = RUN.invoke(app, ["run", *SMALL, "--policy", "random", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.endswith(f"heshare: {tmp_path / 'tasks.csv'}: No space left on device\n")


def test_claims_refuses_a_folder_without_claims(tmp_path: Path) -> None:
    message = refused("notebook", "claims", "--out", str(tmp_path / "typo"))
    assert "no claims/*.json" in message
    assert not (tmp_path / "typo").exists()


def test_plan_refuses_arrivals_and_names_what_takes_them() -> None:
    message = refused("plan", *SMALL, "--arrivals", "miso")
    assert "Run the policy, heshare:trade-off" in message


def test_run_refuses_two_policies() -> None:
    assert "random and morak; expected one policy" in refused("run", *SMALL, "--policy", "random", "--policy", "morak")


def test_plan_takes_budgets_that_are_durations() -> None:
    assert "a time such as 90s, 15m or 2h" in refused("plan", *SMALL, "--improved", "--budget=soon")


def test_seeds_have_the_same_default_in_a_shell_and_in_python() -> None:
    from heshare.cli.compare_command import compare
    from heshare.lab.sweeps.grid import make_grid

    default = inspect.signature(compare).parameters["seeds"].default
    assert default == inspect.signature(hs.compare).parameters["seeds"].default
    assert default == make_grid("random", "1xT4", 2).seeds


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        (("estimate", "V10", "resnet50:8"), "InputError", ("action", "Did you mean 'V100'?")),
        (("plan", *SMALL, "--arrivals", "miso"), "InputError", ("column", "arrival_s")),
        (("plan", "--seed", "x"), "UsageError", None),
        (("nonsense",), "UsageError", None),
    ],
)
def test_errors_are_json_with_json(words: tuple[str, ...], kind: str, part: tuple[str, str] | None) -> None:
    done = RUN.invoke(app, [*words, "--json"])
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == kind
    assert error["message"]
    if part is not None:
        assert error[part[0]] == part[1]


def test_an_interrupt_is_told_without_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heshare.api.plan_tasks", interrupt)
    done = RUN.invoke(app, ["plan", *SMALL, "-q"])
    assert done.exit_code == 130
    assert done.stderr == "heshare: interrupted\n"


def test_doctor_reports_no_clock_control_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from heshare.ops import probe
    from heshare.ops.nvml.binding import NvmlError

    def no_driver() -> None:
        raise NvmlError("nvmlInit", 12, "no driver")

    monkeypatch.setattr(probe, "Nvml", no_driver)
    monkeypatch.setattr(probe, "has_sys_admin", lambda: True)
    assert probe.probe()["clock_control"] is False


def test_the_bar_counts_to_the_number_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("plan", "generation", True) as update:
        assert capsys.readouterr().err.strip() == "plan"
        for done in (1, 2, 3):
            update(done, 3)
    assert "3/3" in capsys.readouterr().err
    with bar("plan", "generation", False) as update:
        update(1, 3)
    assert capsys.readouterr().err == ""


def test_bars_and_lines_go_to_a_stderr_whose_descriptor_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_plan_and_optimise_of_the_library_show_a_bar_if_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    front = hs.plan(2, "1xT4", progress=True)
    assert "plan: 100%" in capsys.readouterr().err
    hs.optimise(2, "1xT4", progress=True)
    assert "optimise: " in capsys.readouterr().err
    hs.optimise(2, "1xT4", budget_s=0.01, progress=True)
    assert re.search(r"optimise: \d+round", capsys.readouterr().err)
    assert (hs.plan(2, "1xT4").objectives == front.objectives).all(), "a bar changes no result"
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(("more", "shown"), [((), True), (("-q",), False)])
def test_plan_shows_a_bar_on_a_terminal_unless_quiet(more: tuple[str, ...], shown: bool) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 100))
    command = [sys.executable, "-c", "from heshare.cli import main; main()", "plan", *SMALL, *more]
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        text = os.read(ours, 100_000).decode()
    except (BlockingIOError, OSError):
        text = ""
    os.close(ours)
    assert (b"Trade-off" in done.stdout, "plan" in text) == (True, shown)
