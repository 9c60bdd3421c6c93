"""Runs as an operator sees and steers them: lost and closed streams, events, status, the end by `stop`."""

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
pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path_factory, monkeypatch):
    one = CommandMachine(tmp_path_factory.mktemp("s"))
    monkeypatch.setenv("XDG_STATE_HOME", str(one.folder / "state"))  # where `jobs stop` finds the run
    return one


def write_jobs(machine, *commands):
    """Write jobs `j0` and so on."""
    rows = [job(f"j{number}", "sh", "-c", command) for number, command in enumerate(commands)]
    (machine.folder / "jobs.yaml").write_text(jobs_of(*rows))


def test_a_run_goes_on_when_nobody_reads_its_output_any_more(machine):
    """A terminal that was closed ends nothing."""
    write_jobs(machine, "sleep 1.5", "sleep 1.5")
    run = machine.start_run()
    machine.wait_for(machine.started(2))
    run.stderr.close()
    run.stdout.close()
    assert run.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_completes(machine, closed) -> None:
    """As under a supervisor that gives it none."""
    write_jobs(machine, "true", "true")
    shell = ("sh", "-c", f'"$@" {closed}', "sh")
    run = machine.start_run(before=shell, stdin=subprocess.DEVNULL)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, b"Traceback" in errors) == (0, False), errors
    assert (machine.run / "jobs.csv").read_text().count(",completed,") == 2


def test_the_operator_hears_of_failures_lost_gpus_and_refused_clocks(machine):
    """A line each, with the GPU or the job; none is missing at the end."""
    write_jobs(machine, "until [ -e lost ]; do sleep 0.1; done", "exit 3")
    machine.environment["FAKENVML_FAIL"] = "nvmlDeviceSetGpuLockedClocks=4,set:count=2"
    run = machine.start_run("--allow-clocks")
    machine.wait_for(machine.started(2))
    machine.set("lost0", 1)
    machine.set("lost1", 1)
    _, errors = run.communicate(timeout=PATIENCE_S)
    lines = errors.decode().splitlines()
    assert any("--allow-clocks is refused on every GPU" in line for line in lines)
    assert any(kill_drill.UUID in line and "lost:" in line for line in lines)
    assert any(" j1: " in line and "exit code 3" in line for line in lines)
    assert run.returncode == 1


def test_status_and_stop_of_a_run_that_goes_on(machine):
    """`stop` is SIGTERM: the run ends in order, writes its report, and can be continued."""
    write_jobs(machine, "true", "sleep 600")
    run = machine.start_run()
    machine.wait_for(lambda: machine.entries("end"))
    found = json.loads(CLI.invoke(app, ["jobs", "status", str(machine.run), "--json"]).stdout)
    assert (found["alive"], found["pid"]) == (True, run.pid)
    assert found["counts"] == {"waiting": 0, "running": 1, "completed": 1, "failed": 0}
    assert [(row["job"], row["gpu"]) for row in found["running"]] == [("j1", kill_drill.UUID)]
    assert f"runs, process {run.pid}" in CLI.invoke(app, ["jobs", "status", str(machine.run)]).stdout

    assert CLI.invoke(app, ["jobs", "stop", str(machine.run)]).exit_code == 0
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + signal.SIGTERM
    assert b"SIGTERM: jobs are ended" in errors
    assert (machine.run / "report.txt").read_text() == read_report(machine.run).text()
    assert (machine.run / "jobs.csv").read_text().count(",completed,") == 1

    again = CLI.invoke(app, ["jobs", "stop", str(machine.run)])
    assert (again.exit_code, "a run without an executor" in again.stderr) == (2, True)
    after = RunStatus(machine.run)
    assert (after.alive, after.state.counts()["waiting"], after.state.running) == (False, 1, [])
    assert "continue with: heshare jobs run --resume" in after.text(time.time())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_a_run_in_order_as_well(machine, number):
    """Also where two of them come in a row: the GPUs are given back all the same."""
    write_jobs(machine, "trap '' TERM; touch up; sleep 600 & wait; wait")
    run = machine.start_run(stdout=subprocess.DEVNULL)
    machine.wait_for((machine.folder / "up").exists)
    run.send_signal(number)
    time.sleep(0.2)
    run.send_signal(number)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + number
    assert f"ended by {number.name}; continue with: heshare jobs run --resume jobs-run".encode() in errors
    assert (machine.run / "report.txt").exists()
    assert list((machine.folder / "state" / "heshare").glob("*.json")) == []
