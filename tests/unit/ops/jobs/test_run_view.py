"""`heshare jobs status`: what is shown of a run, from its journal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from support.run_entries import ended, run_of, sampled, session, started
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs.entries import Account, Decision, Note, Session, SessionGpu, Started, encode
from heshare.ops.views.run_view import RunView
from heshare.shared.journal import journal_line

CLI = CliRunner()
ENTRIES = [
    run_of(3),
    Session(1000.0, (SessionGpu("GPU-01234567-89ab", "T4"),)),
    Decision(0.0, (Started("a", 0, 30), Started("b", 0, 70))),
]
SHARES = {"shares_j": {"a": 400.0, "b": 400.0}, "model_shares_j": {"a": 200.0, "b": 600.0}}
SAMPLE = sampled(5.0, Account(900.0, 100.0, **SHARES, sm_mhz=900.0, power_w=60.0, requested_mhz=1000))


def line_of(entry):
    return journal_line(encode(entry))


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(map(line_of, ENTRIES)))
    return path


def test_view_shows_gpus_and_jobs_with_both_energies(journal, monkeypatch):
    monkeypatch.setattr("heshare.ops.views.run_view.is_alive", lambda folder: True)
    view = RunView(journal.parent)
    with journal.open("ab") as stream:
        stream.write(line_of(SAMPLE))
    view.update()
    text = view.text(1065.0)
    assert "jobs: 1 waiting, 2 running, 0 completed, 0 failed" in text
    assert "power 60 W, energy 900 J; last account 60 s ago" in text
    (gpu,) = [" ".join(line.split()) for line in text.splitlines() if "GPU-01234567" in line]
    assert gpu == "0 T4 GPU-01234567 ok 60 W 900 MHz 1000 MHz 2 900 J 100 J 0 J"
    found = view.as_dict(1065.0)
    assert (found["alive"], found["pid"], found["account_age_s"]) == (True, None, 60.0)
    assert found["counts"] == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    assert found["running"][0] == {"job": "a", "gpu": "GPU-01234567-89ab", "mps_pct": 30, "since_s": 65.0}
    assert found["gpus"][0]["energy_j"] == 900.0
    rows = [line.split() for line in text.splitlines() if line.startswith(("a ", "b "))]
    assert rows == [
        ["b", "0", "70", "%", "1:05", "30", "W", "400", "J", "45", "W", "600", "J"],
        ["a", "0", "30", "%", "1:05", "30", "W", "400", "J", "15", "W", "200", "J"],
    ]


@pytest.mark.parametrize(("width", "wide"), [(80, False), (120, True)])
def test_tables_fit_the_terminal(journal, width, wide):
    with journal.open("ab") as stream:
        stream.write(line_of(SAMPLE))
    view = RunView(journal.parent)
    with (console := Console(width=width, file=StringIO())).capture() as shown:
        console.print(view.screen(1065.0, width))
    assert ("GPU-01234567" in shown.get()) == wide
    assert "…" not in shown.get().replace(str(journal.parent), "")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (("completed", "completed"), "is complete"),
        (("completed", "failed: crash"), "is complete"),
        (("completed",), "has ended, or was killed"),
    ],
)
def test_status_says_how_much_of_a_run_that_has_ended_is_over(tmp_path, outcomes, expected):
    ends = [ended(f"a-{index}", outcome, charged=True) for index, outcome in enumerate(outcomes)]
    entries = [run_of(2), session(), started("a-0", "a-1"), *ends]
    (tmp_path / "journal.jsonl").write_bytes(b"".join(line_of(entry) for entry in entries))
    assert f": {expected}; policy" in RunView(tmp_path).head(2000.0)[0]


def test_status_of_a_run_and_of_none(journal):
    done = CLI.invoke(app, ["jobs", "status", str(journal.parent)])
    assert done.exit_code == 0
    assert "has ended, or was killed; policy random" in done.stdout
    assert CLI.invoke(app, ["jobs", "status", str(journal.parent / "none")]).exit_code == 2


def test_a_journal_that_no_run_writes_is_refused(journal):
    with journal.open("ab") as stream:
        stream.write(journal_line({"sample": {"t": "x", "gpus": 7}}))
    done = CLI.invoke(app, ["jobs", "status", str(journal.parent)])
    assert done.exit_code == 2
    assert "an entry that no run writes" in done.stderr


def test_nothing_of_a_journal_reaches_the_terminal_as_a_control_character(journal):
    evil = "x\x1b]0;owned\x07\x9b2J"
    with journal.open("ab") as stream:
        stream.write(line_of(Session(1001.0, (SessionGpu(evil, evil),))))
        stream.write(line_of(Decision(1.0, (Started(evil, 0, 30),))))
        stream.write(line_of(Note(evil)))
    shown = RunView(journal.parent).text(1002.0)
    assert "owned" in shown
    assert all(line.isprintable() for line in shown.splitlines())
