"""Runs on the command line: closed streams, status, `stop` and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from support import kill_drill
from support.command_runs import PATIENCE_S, CommandMachine
from support.job_rows import job, jobs_of
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs.report import read_report
from heshare.ops.jobs.run_status import RunStatus

CLI = CliRunner()
pytestmark = pytest.mark.nightly


@pytest.fixture
def machine(tmp_path_factory, monkeypatch):
    one = CommandMachine(tmp_path_factory.mktemp("s"))
    monkeypatch.setenv("XDG_STATE_HOME", str(one.folder / "state"))  # where `jobs stop` finds the run
    return one


def write_jobs(machine, *commands):
    """Write jobs `j0` and so on."""
    rows = [job(f"j{number}", "sh", "-c", command) for number, command in enumerate(commands)]
    (machine.folder / "jobs.yaml").write_text(jobs_of(*rows))


def test_closed_streams(machine) -> None:
    """A run without standard streams completes."""
    write_jobs(machine, "true", "true")
    shell = ("sh", "-c", '"$@" <&- >&- 2>&-', "sh")
    run = machine.start_run(before=shell, stdin=subprocess.DEVNULL)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, b"Traceback" in errors) == (0, False), errors
    assert (machine.run / "jobs.csv").read_text().count(",completed,") == 2


def test_status_and_stop(machine):
    """`status` shows a run; `stop` ends it in order, with a report, to be continued."""
    write_jobs(machine, "true", "sleep 600")
    run = machine.start_run()
    machine.wait_for(lambda: machine.entries("end"))
    found = json.loads(CLI.invoke(app, ["jobs", "status", str(machine.run), "--json"]).stdout)
    assert (found["alive"], found["pid"]) == (True, run.pid)
    assert found["counts"] == {"waiting": 0, "running": 1, "completed": 1, "failed": 0}
    assert [(row["job"], row["gpu"]) for row in found["running"]] == [("j1", kill_drill.UUID)]

    assert CLI.invoke(app, ["jobs", "stop", str(machine.run)]).exit_code == 0
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + signal.SIGTERM
    assert b"SIGTERM" in errors
    assert (machine.run / "report.txt").read_text() == read_report(machine.run).text()
    assert (machine.run / "jobs.csv").read_text().count(",completed,") == 1

    again = CLI.invoke(app, ["jobs", "stop", str(machine.run)])
    assert again.exit_code == 2
    after = RunStatus(machine.run)
    assert (after.alive, after.state.counts()["waiting"], after.state.running) == (False, 1, [])


def test_signals(machine):
    """Signals end a run in order, also if two come in a row."""
    write_jobs(machine, "trap '' TERM; touch up; sleep 600 & wait; wait")
    run = machine.start_run(stdout=subprocess.DEVNULL)
    machine.wait_for((machine.folder / "up").exists)
    run.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    run.send_signal(signal.SIGHUP)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + signal.SIGHUP
    assert b"SIGHUP" in errors
    assert (machine.run / "report.txt").exists()
    assert list((machine.folder / "state" / "heshare").glob("*.json")) == []
