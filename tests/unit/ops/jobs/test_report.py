"""The report of a run: each joule once, whatever was killed; the same energies in status, tables and text."""

from __future__ import annotations

import resource
from functools import partial
from itertools import pairwise

import pandas as pd
import pytest
from support.run_entries import ended, run_of, sampled, session, started, state_of, write_journal
from support.simulator.simulation import simulate
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs.entries import Account, End, Sample, Session, SessionGpu
from heshare.ops.jobs.report import read_report, run_report

near = partial(pytest.approx, rel=1e-9, abs=1e-6)


def sessions_of(entries, gpu):
    """The accounts of a GPU, those of each session together; a session begins with one of no energy."""
    sessions = []
    for entry in entries:
        if isinstance(entry, Session):
            sessions.append([Account(0.0, counter_j=entry.counters_j[gpu])])
        elif isinstance(entry, Sample):
            sessions[-1].append(entry.gpus[gpu])
        elif isinstance(entry, End) and entry.gpu == gpu:
            sessions[-1].append(entry.account)
    return sessions


@pytest.mark.parametrize("seed", range(8))
def test_energy_adds_up(seed):
    """Wherever a run is killed: parts, sessions and jobs add up to the energy of a GPU, and no counter is made up."""
    entries = simulate(seed).entries
    for length in range(2, len(entries) + 1, 5):
        state = state_of(*entries[:length])
        assert sum(state.counts().values()) == len(state.jobs)
        report = run_report(state)
        assert report.jobs[["energy_j", "lost_j"]].sum().sum() == near(
            report.gpus[["completed_j", "lost_j"]].sum().sum()
        )
        for gpu, row in report.gpus.iterrows():
            sessions = sessions_of(entries[:length], gpu)
            assert row["energy_j"] == near(sum(accounts[-1].energy_j for accounts in sessions))
            assert row["energy_j"] == near(row[["completed_j", "lost_j", "idle_j"]].sum())

            # A counter that is unknown, or that began again, says nothing of the time between two sessions.
            gaps = [(before[-1].counter_j, after[0].counter_j) for before, after in pairwise(sessions)]
            known = [pair for pair in gaps if None not in pair and pair[0] <= pair[1]]
            assert row["between_j"] == near(sum(after_j - before_j for before_j, after_j in known))
            told = any(note.startswith(f"GPU {gpu}:") and "between two sessions" in note for note in report.notes)
            assert told is (len(known) < len(gaps))


def test_counter_restart():
    """A counter that begins again adds no energy and is no contradiction."""
    first, again = session(0.0, counters_j=[1000.0]), session(100.0, counters_j=[5.0])
    entries = [run_of(1), first, sampled(9.0, Account(500.0, 500.0, counter_j=1500.0))]
    entries += [again, sampled(9.0, Account(3000.0, 3000.0, counter_j=3005.0))]
    report = run_report(state_of(*entries))
    (row,) = report.gpus.to_dict("records")
    assert (row["energy_j"], row["between_j"]) == (3500.0, 0.0)
    assert pd.isna(row["counter_j"])
    assert not any("counter says" in note for note in report.notes)


def test_killed_session():
    """4,854 J: a sample at 800 J, jobs that ended with 2,800 J more, and 1,254 J until the next session."""
    entries = [run_of(3), session(0.0, counters_j=[1000.0]), started("a-0", "a-1", "a-2", t=1.0)]
    running = {"a-0": 200.0, "a-1": 200.0, "a-2": 200.0}
    entries.append(sampled(5.0, Account(800.0, 200.0, running, 1800.0)))
    left = {"a-1": 1100.0, "a-2": 300.0}
    entries.append(ended("a-0", energy_j=600.0, account=Account(2200.0, 200.0, left, 3200.0)))
    entries.append(ended("a-1", energy_j=1500.0, account=Account(3600.0, 200.0, {"a-2": 1300.0}, 4600.0)))
    entries.append(session(60.0, counters_j=[5854.0]))
    (row,) = run_report(state_of(*entries)).gpus.to_dict("records")
    assert (row["completed_j"], row["lost_j"], row["idle_j"]) == (2100.0, 1300.0, 200.0)
    assert (row["energy_j"], row["between_j"], row["counter_j"]) == (3600.0, 1254.0, 4854.0)


def test_other_gpus():
    """A run that goes on with other GPUs has a row for each; energies and jobs stay with their GPU."""
    zero, one, two = (SessionGpu(f"GPU-{name}", "T4") for name in range(3))
    first = Session(0.0, (zero, one), counters_j=(0.0, 0.0))
    second = Session(100.0, (two, one), counters_j=(500.0, 900.0))
    entries = [run_of(2), first, started("a-0", gpu=1, t=1.0)]
    entries.append(ended("a-0", gpu=1, energy_j=300.0, account=Account(400.0, 100.0, counter_j=400.0)))
    entries += [second, started("a-1", gpu=0, t=1.0)]
    entries.append(ended("a-1", gpu=0, energy_j=50.0, account=Account(60.0, 10.0, counter_j=560.0)))
    report = run_report(state_of(*entries))
    assert report.jobs["gpu"].tolist() == [1, 2]
    assert report.gpus["uuid"].tolist() == ["GPU-0", "GPU-1", "GPU-2"]
    assert report.gpus["energy_j"].tolist() == [0.0, 400.0, 60.0]
    assert report.gpus["completed_j"].tolist() == [0.0, 300.0, 50.0]
    assert report.gpus["between_j"].tolist() == [0.0, 500.0, 0.0]


def test_notes():
    """Notes name estimates, gaps and pauses, and accounts that contradict their parts or their counter."""
    cut = Account(12.0, 12.0, estimated_j=1.5, unknown_s=3.0)
    entries = [run_of(1), session(0.0), sampled(10.0, cut), session(100.0, counters_j=[None], set_back_s=7.0)]
    notes = "\n".join(run_report(state_of(*entries)).notes)
    for text in ("1.5 J", "3.0 s is unknown", "between two sessions", "90 s", "set back, by 7 s"):
        assert text in notes

    account = Account(100.0, 40.0, counter_j=250.0)
    notes = run_report(state_of(run_of(1), session(0.0), sampled(1.0, account))).notes
    for parts_or_counter in ("40 J", "250 J"):
        assert any(parts_or_counter in note and "100 J" in note for note in notes)


@pytest.fixture
def run(tmp_path):
    """The folder of a run of three jobs that was killed before the end of the last one."""
    entries = [run_of(3), session(0.0, counters_j=[0.0])]
    for number in range(2):
        account = Account(number + 1.0, counter_j=number + 1.0)
        entries.append(started(f"a-{number}", t=float(number)))
        times = {"start_s": float(number), "end_s": number + 1.0}
        entries.append(ended(f"a-{number}", account=account, log=f"a-{number}.1.log", **times))
    return write_journal(tmp_path / "run", [*entries, started("a-2", t=2.0)])


def test_report_command(run):
    """`jobs report` writes the files of a killed run from its journal; a second call writes the same."""
    for _ in range(2):
        done = CliRunner().invoke(app, ["jobs", "report", str(run)])
        assert done.exit_code == 0, done.stderr
        assert done.stdout == (run / "report.txt").read_text()
    jobs = pd.read_csv(run / "jobs.csv", keep_default_na=False)
    assert jobs["outcome"].tolist() == ["completed", "completed", "left"]
    assert jobs["log"].tolist() == ["a-0.1.log", "a-1.1.log", ""]
    assert pd.read_csv(run / "gpus.csv")["energy_j"].tolist() == [2.0]


def test_full_disk(run):
    """A report that cannot be written says so, leaves no half file and keeps the one of before."""
    (run / "jobs.csv").write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file may grow, as on a full disk
    try:
        report = read_report(run).write(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "heshare jobs report" in report.unwritten
    assert sorted(path.name for path in run.iterdir()) == ["jobs.csv", "journal.jsonl"]
    assert (run / "jobs.csv").read_text() == "before"

    assert read_report(run).write(run).unwritten == ""
    assert {path.name for path in run.iterdir()} == {"journal.jsonl", "gpus.csv", "jobs.csv", "report.txt"}
