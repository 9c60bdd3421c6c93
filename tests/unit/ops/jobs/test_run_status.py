"""`heshare jobs status`: what is shown of a run, from its journal; and `stop` of a run that is not there to end."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from support.run_entries import ended, run_of, sampled, session, started, write_journal
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs import run_status
from heshare.ops.jobs.entries import Account, Decision, Note, Session, SessionGpu, Started
from heshare.ops.jobs.run_status import RunStatus
from heshare.ops.state.run_state_file import run_state_file_of_this_process
from heshare.shared.errors import DeviceError

CLI = CliRunner()
ENTRIES = [
    run_of(3, power_limit=[[0.0, 900.0], [60.0, 700.0]]),
    Session(1000.0, (SessionGpu("GPU-01234567-89ab", "T4"),), token="t", pid=os.getpid()),
    Decision(0.0, (Started("a-0", 0, 30), Started("a-1", 0, 70))),
    sampled(5.0, Account(900.0, 100.0, {"a-0": 200.0, "a-1": 600.0}, sm_mhz=900.0, power_w=60.0, requested_mhz=1000)),
]


@pytest.fixture
def run(tmp_path):
    return write_journal(tmp_path / "run", ENTRIES)


def test_status(run, monkeypatch):
    """The status of a run that goes on has its GPUs and jobs, as values and as text."""
    monkeypatch.setattr(run_status, "is_alive", lambda folder: True)
    view = RunStatus(run)
    text = view.text(1065.0)
    for shown in ("2 running", "60 W", "700 W", "900 J", "900 MHz", "1000 MHz", "GPU-01234567-89ab", "a-0", "30 %"):
        assert shown in text

    found = view.as_dict(1065.0)
    assert (found["alive"], found["pid"], found["account_age_s"]) == (True, os.getpid(), 60.0)
    assert found["counts"] == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    first = {"job": "a-0", "gpu": "GPU-01234567-89ab", "mps_pct": 30, "since_s": 65.0, "energy_j": 200.0}
    assert found["running"][0] == first
    assert found["gpus"][0]["energy_j"] == 900.0


def test_over(tmp_path):
    """A run is over if every job is, however that ended; else `--resume` is advised."""
    entries = [run_of(2), session(), started("a-0", "a-1"), ended("a-0")]
    assert "--resume" in RunStatus(write_journal(tmp_path, entries)).text(2000.0)
    entries.append(ended("a-1", "failed: crash", charged=True))
    text = RunStatus(write_journal(tmp_path, entries)).text(2000.0)
    assert "is complete" in text
    assert "--resume" not in text


def test_killed_run(run):
    """What a killed run ran is lost; nothing runs without an executor, and there is nothing to stop."""
    found = json.loads(CLI.invoke(app, ["jobs", "status", str(run), "--json"]).stdout)
    assert (found["alive"], found["running"]) == (False, [])
    assert (found["gpus"][0]["lost_j"], found["gpus"][0]["power_w"]) == (800.0, None)
    stopped = CLI.invoke(app, ["jobs", "stop", str(run)])
    assert stopped.exit_code == 2
    assert "without an executor" in stopped.stderr


@pytest.mark.parametrize("command", ["status", "stop", "report"])
def test_no_run(tmp_path, command):
    """A folder without a run is refused by every command."""
    done = CLI.invoke(app, ["jobs", command, str(tmp_path)])
    assert done.exit_code == 2
    assert "journal.jsonl" in done.stderr


@pytest.mark.parametrize("where", ["no note", "another user", "another container", "another process"])
def test_stop_elsewhere(run, monkeypatch, tmp_path, where):
    """`stop` refuses a run of another user or container, and signals no process of another start than the run's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run_status, "is_alive", lambda folder: True)
    if where == "another user":
        monkeypatch.setattr(run_status, "signal_process", lambda *_, **__: False)
    note = run_state_file_of_this_process(run, "t", []).write()
    if where != "no note":
        note.publish()
    with subprocess.Popen(["sleep", "60"]) as other:
        path = tmp_path / "state" / "heshare" / "run-t.json"
        if where.endswith(("container", "process")):
            facts = json.loads(path.read_text())
            changed = {"place": {**facts["place"], "pids": "1"}} if where.endswith("container") else {"pid": other.pid}
            path.write_text(json.dumps({**facts, **changed}))
        with pytest.raises(DeviceError, match=f"process {os.getpid()}"):
            run_status.stop(run)
        assert other.poll() is None
        other.kill()
    note.remove()


def test_printable(run):
    """Nothing of a journal reaches the terminal as a control character."""
    control = "x\x1b]0;owned\x07\x9b2J"
    more = [Session(1001.0, (SessionGpu(control, control),)), Note(control)]
    shown = RunStatus(write_journal(run, [*ENTRIES, *more])).text(1002.0)
    assert "owned" in shown
    assert all(line.isprintable() for line in shown.splitlines())
