"""Hostile inputs of a seed: each is refused with one message or rightly accepted, in time (`support.hostile_runs`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import hostile_inputs, hostile_runs
from typer.testing import CliRunner

from heshare.cli import app
from heshare.paper.notebooks import notebook_parameters
from heshare.shared.errors import SYSTEM_ERRORS, HeShareError, InputError, from_system
from heshare.world.task_file import read_tasks

SEED, COUNT = 16, 312


@pytest.mark.slow
def test_hostile_inputs_are_refused_or_rightly_accepted():
    # In a process of its own: its workers are forked, and have a limit of memory.
    command = [sys.executable, "-m", "support.hostile_runs", "--seed", str(SEED), "--count", str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    assert f"| **total** | {COUNT} |" in done.stdout


def test_hostile_inputs_of_a_seed_are_the_same_each_time():
    valid = hostile_inputs.Valid(*[b"a,b\n1,2\n"] * 5, "00")
    for index in range(2 * len(hostile_inputs.MAKERS)):
        one, two = (hostile_inputs.make_case(3, index, valid) for _ in range(2))
        assert one == two


def test_hostile_runs_see_a_traceback_a_hang_and_a_file_that_was_changed(monkeypatch):
    """The drill can fail: functions that do wrong are put in the place of the package's."""
    case = hostile_inputs.Case("notations", ["call", "check_hosts", "x"], {"jobs.yaml": b"a file"})
    assert hostile_runs.run_case(case, 0).outcome == "refused"
    monkeypatch.setattr(
        hostile_runs.host_offers, "check_address", lambda text, column: Path("jobs.yaml").write_text("b")
    )
    assert hostile_runs.run_case(case, 0).outcome == "accepted wrongly"
    monkeypatch.setattr(hostile_runs.host_offers, "check_address", lambda text, column: [][1])
    assert hostile_runs.run_case(case, 0).outcome == "traceback"
    monkeypatch.setattr(hostile_runs, "LIMIT_S", 0.0)
    monkeypatch.setattr(hostile_runs, "prepare", lambda: hostile_inputs.Valid(*[b"a,b\n1,2\n"] * 5, "00"))
    assert [each.outcome for each in hostile_runs.run_cases(1, 1)] == ["hang"]


DIGITS = "9" * 4400
REVIEWED = {
    "digits in tasks": ("run", "--tasks", DIGITS),
    "digits in a cluster": ("run", "--cluster", f"{DIGITS}xT4"),
    "digits in an estimate": ("estimate", "A100", f"resnet50:{DIGITS}"),
    "digits in a percentage": ("estimate", "A100", f"resnet50:8@{DIGITS}"),
    "a number of tasks for which no memory suffices": ("run", "--tasks", "10000000000"),
    "another alphabet's number": ("run", "--tasks", "\u00b2"),
    "two signs": ("run", "--tasks=--5"),
    "a device as tasks": ("run", "--tasks", "/dev/zero"),
    "a device as a trace": ("run", "--tasks", "3", "--trace", "/dev/zero"),
    "a device as a plan": ("run", "--plan", "/dev/zero"),
    "a device as jobs": ("run", "/dev/zero", "--cluster", "1xA100"),
    "a device as a grid": ("compare", "--grid", "/dev/zero"),
    "a hundred million GPUs": ("run", "--cluster", "100000000xT4"),
    "a budget of ages": ("profile", "--device", "emulated:T4", "--dry-run", "--budget", "99999999999999999999"),
    "samples without end": ("profile", "--device", "emulated:T4", "--dry-run", "--samples", "99999999999999999999"),
    "a batch that fits no card": ("estimate", "A100", "resnet50:99999999@50"),
    "a hundred residents": ("estimate", "A100", *["resnet50:1@1"] * 100),
    "a folder below a file": ("run", "--tasks", "2", "--out", "/etc/passwd/x"),
    "a timeline below a file": ("run", "--tasks", "2", "--timeline", "/etc/passwd/x/t.json"),
    "a byte that is no text": ("profile", "--device", "emulated:T4", "--dry-run", "--json", "\udcff"),
    "repetitions without end": ("compare", "--tasks", "2", "--policy", "random", "--seeds", "999999999999"),
}


@pytest.mark.parametrize("name", REVIEWED)
def test_what_the_review_found_is_refused_with_one_message(name):
    done = CliRunner().invoke(app, [*REVIEWED[name], "-q"] if REVIEWED[name][0] != "estimate" else list(REVIEWED[name]))
    assert done.exit_code == 2, done.exception
    assert isinstance(done.exception, SystemExit)
    assert len(done.stderr) < 1000


def test_a_notebook_whose_cells_lack_fields_is_refused(tmp_path):
    (tmp_path / "n.ipynb").write_text('{"cells": [{}, 3]}')
    with pytest.raises(InputError, match="something that is no notebook"):
        notebook_parameters.read(tmp_path / "n.ipynb")


@pytest.mark.parametrize("column", ["iterations", "arrival_s", "batch_size"])
def test_task_files_have_upper_bounds(column, tmp_path):
    cells = {"id": "0", "workload": "resnet50", "batch_size": "8", "iterations": "1", "arrival_s": "0", column: "1e300"}
    if column == "batch_size":
        cells[column] = "9999999"
    path = tmp_path / "t.csv"
    path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(InputError, match=f"row 2, column {column}: .*at most"):
        read_tasks(path)


@pytest.mark.parametrize("kind", SYSTEM_ERRORS)
def test_from_system_makes_an_error_of_the_package(kind):
    assert isinstance(from_system(kind("why")), HeShareError)


def test_from_system_names_the_file():
    assert str(from_system(OSError(28, "No space left on device", "/x/y"))) == "/x/y: No space left on device"
