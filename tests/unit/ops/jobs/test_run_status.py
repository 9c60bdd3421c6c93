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
from heshare.shared.journal import journal_line

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


def rows(text, *first):
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line.startswith(first)]


def test_status_shows_gpus_and_jobs_of_a_run_that_goes_on(run, monkeypatch):
    """The same as text and as values."""
    monkeypatch.setattr(run_status, "is_alive", lambda folder: True)
    view = RunStatus(run)
    text = view.text(1065.0)
    assert "jobs: 1 waiting, 2 running, 0 completed, 0 failed" in text
    assert "power 60 W (limit 700 W), energy 900 J; last account 60 s ago" in text
    assert rows(text, "0 ") == ["0 T4 GPU-01234567-89ab ok 60 W 900 MHz 1000 MHz 2 900 J 100 J 0 J"]
    assert rows(text, "a-0", "a-1") == ["a-0 0 30 % 1:05 200 J", "a-1 0 70 % 1:05 600 J"]

    found = view.as_dict(1065.0)
    assert (found["alive"], found["pid"], found["account_age_s"]) == (True, os.getpid(), 60.0)
    assert found["counts"] == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    first = {"job": "a-0", "gpu": "GPU-01234567-89ab", "mps_pct": 30, "since_s": 65.0, "energy_j": 200.0}
    assert found["running"][0] == first
    assert found["gpus"][0]["energy_j"] == 900.0


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (("completed", "completed"), "is complete"),
        (("completed", "failed: crash"), "is complete"),
        (("completed",), "has ended, or was killed"),
    ],
)
def test_status_says_whether_a_run_that_has_ended_is_over(tmp_path, outcomes, expected):
    """It is over if every job is, however that ended."""
    ends = [ended(f"a-{index}", outcome, charged=True) for index, outcome in enumerate(outcomes)]
    write_journal(tmp_path, [run_of(2), session(), started("a-0", "a-1"), *ends])
    text = RunStatus(tmp_path).text(2000.0)
    assert f": {expected}; policy" in text
    assert ("--resume" in text) == (len(outcomes) < 2)


def test_status_counts_what_a_killed_run_ran_as_lost(run):
    """Nothing runs, and no power is drawn, without an executor."""
    done = CLI.invoke(app, ["jobs", "status", str(run), "--json"])
    found = json.loads(done.stdout)
    assert (found["alive"], found["running"]) == (False, [])
    assert (found["gpus"][0]["lost_j"], found["gpus"][0]["power_w"]) == (800.0, None)


@pytest.mark.parametrize("command", ["status", "stop", "report"])
def test_a_folder_without_a_run_is_refused(tmp_path, command):
    """With one line, whatever is asked."""
    done = CLI.invoke(app, ["jobs", command, str(tmp_path)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "journal.jsonl" in done.stderr


def test_stop_of_a_run_that_has_ended_says_so(run):
    """There is nothing to end, and nothing is signalled."""
    done = CLI.invoke(app, ["jobs", "stop", str(run)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "a run without an executor" in done.stderr


@pytest.mark.parametrize("where", ["no note", "another user", "another container"])
def test_stop_refuses_a_run_that_it_cannot_signal(run, monkeypatch, tmp_path, where):
    """With one message that says where to send the signal; nobody is signalled instead."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run_status, "is_alive", lambda folder: True)
    note = run_state_file_of_this_process(run, "t", []).write()
    if where != "no note":
        note.publish()
    if where == "another container":
        path = tmp_path / "state" / "heshare" / "run-t.json"
        facts = json.loads(path.read_text())
        path.write_text(json.dumps({**facts, "place": {**facts["place"], "pids": "1"}}))
    if where == "another user":
        monkeypatch.setattr(run_status, "signal_process", lambda *_, **__: False)
    with pytest.raises(DeviceError, match=rf"process {os.getpid()}\) was not found.*on its host or in its container"):
        run_status.stop(run)
    note.remove()


def test_stop_signals_the_process_that_the_note_names(run, monkeypatch, tmp_path):
    """Only as long as it is that process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run_status, "is_alive", lambda folder: True)
    with subprocess.Popen(["sleep", "60"]) as other:
        note = run_state_file_of_this_process(run, "t", []).write()
        note.publish()
        path = tmp_path / "state" / "heshare" / "run-t.json"
        facts = json.loads(path.read_text())
        path.write_text(json.dumps({**facts, "pid": other.pid}))  # it began at another time
        with pytest.raises(DeviceError):
            run_status.stop(run)
        assert other.poll() is None
        other.kill()
    note.remove()


def test_a_journal_that_no_run_writes_is_refused(run):
    """It has right checksums, so nothing was damaged."""
    with (run / "journal.jsonl").open("ab") as stream:
        stream.write(journal_line({"sample": {"t": "x", "gpus": 7}}))
    done = CLI.invoke(app, ["jobs", "status", str(run)])
    assert done.exit_code == 2
    assert "an entry that no run writes" in done.stderr


def test_nothing_of_a_journal_reaches_the_terminal_as_a_control_character(run):
    """Names and notes may be anybody's."""
    evil = "x\x1b]0;owned\x07\x9b2J"
    more = [Session(1001.0, (SessionGpu(evil, evil),)), Note(evil)]
    shown = RunStatus(write_journal(run, [*ENTRIES, *more])).text(1002.0)
    assert "owned" in shown
    assert all(line.isprintable() for line in shown.splitlines())
