"""The report of a run: each joule once, whatever was killed; the same energies in status, tables and text."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from itertools import count, pairwise

import pandas as pd
import pytest
from support.run_entries import RandomRun, ended, run_of, sampled, session, started, state_of, write_journal
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs.entries import Account, End, Sample, Session, SessionGpu
from heshare.ops.jobs.report import read_report, run_report
from heshare.ops.jobs.run_status import RunStatus

PARTS = ["completed_j", "lost_j", "idle_j"]
REPORT = ["gpus.csv", "jobs.csv", "report.txt"]
SEEDS = range(12)


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


@pytest.mark.parametrize("seed", SEEDS)
def test_gpu_energy_adds_up(seed):
    """The energy of a GPU is its counter's and the sum of its parts, wherever a run was killed."""
    entries = RandomRun(seed).entries
    for length in range(2, len(entries) + 1, 7):
        gpus = run_report(state_of(*entries[:length])).gpus
        for gpu, row in gpus.iterrows():
            sessions = sessions_of(entries[:length], gpu)
            spent_j = sessions[-1][-1].counter_j - sessions[0][0].counter_j
            in_sessions_j = sum(accounts[-1].energy_j for accounts in sessions)
            assert row["energy_j"] == pytest.approx(in_sessions_j, rel=1e-9, abs=1e-6)
            assert row["energy_j"] + row["between_j"] == pytest.approx(spent_j, rel=1e-9, abs=1e-6)
            assert row["counter_j"] == pytest.approx(spent_j, rel=1e-9, abs=1e-6)
            assert row[PARTS].sum() == pytest.approx(row["energy_j"], rel=1e-9, abs=1e-6)
            assert (row[[*PARTS, "between_j"]] >= 0.0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_job_energy_adds_up(seed):
    """The energies of jobs sum to what the GPUs gave to jobs, also with faults of counters."""
    state = state_of(*RandomRun(seed, faults=True).entries)
    report = run_report(state)
    of_jobs_j = sum(job.energy_j + job.lost_j for job in state.jobs.values())
    assert of_jobs_j == pytest.approx(report.gpus[["completed_j", "lost_j"]].sum().sum())
    assert report.jobs["lost_j"].sum() == pytest.approx(report.gpus["lost_j"].sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_status_agrees(seed, tmp_path):
    """Status and report agree: they are two views of one fold."""
    write_journal(tmp_path, RandomRun(seed, faults=True).entries)
    shown, report = RunStatus(tmp_path).as_dict(0.0), read_report(tmp_path)
    for name in ("energy_j", "idle_j", "lost_j"):
        assert [gpu[name] for gpu in shown["gpus"]] == report.gpus[name].tolist()
    counts, totals = shown["counts"], report.totals
    assert (counts["running"], shown["running"]) == (0, [])
    for of_status, of_report in (("waiting", "left"), ("completed", "completed"), ("failed", "failed")):
        assert counts[of_status] == totals[of_report]


@pytest.mark.parametrize("seed", SEEDS)
def test_unknown_counter(seed):
    """No energy is made up for a counter that is unknown or began again."""
    entries = RandomRun(seed, faults=True).entries
    report = run_report(state_of(*entries))
    for gpu, row in report.gpus.iterrows():
        sessions = sessions_of(entries, gpu)
        gaps = [(before[-1].counter_j, after[0].counter_j) for before, after in pairwise(sessions)]
        known = [pair for pair in gaps if None not in pair and pair[0] <= pair[1]]

        accounts_j = sum(accounts[-1].energy_j for accounts in sessions)
        between_j = sum(after_j - before_j for before_j, after_j in known)
        assert row["energy_j"] == pytest.approx(accounts_j)
        assert row["between_j"] == pytest.approx(between_j)
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
    assert [row[name] for name in PARTS] == [2100.0, 1300.0, 200.0]
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
    """Notes name estimates, gaps and pauses."""
    cut = Account(12.0, 12.0, estimated_j=1.5, unknown_s=3.0)
    entries = [run_of(1), session(0.0), sampled(10.0, cut), session(100.0, counters_j=[None], set_back_s=7.0)]
    notes = "\n".join(run_report(state_of(*entries)).notes)
    for text in ("1.5 J", "3.0 s is unknown", "between two sessions", "90 s", "set back, by 7 s"):
        assert text in notes


def test_contradictions():
    """Accounts that contradict their parts or their counter are noted."""
    account = Account(100.0, 40.0, counter_j=250.0)
    report = run_report(state_of(run_of(1), session(0.0), sampled(1.0, account)))
    assert any("40 J" in note and "100 J" in note for note in report.notes)
    assert any("250 J" in note and "100 J" in note for note in report.notes)


def complete_run(jobs=3):
    """The entries of a run in which every job completed."""
    entries, numbers = [run_of(jobs), session(0.0, counters_j=[0.0])], count()
    for job in [f"a-{number}" for number in range(jobs)]:
        place = float(next(numbers))
        account = Account(place + 1.0, counter_j=place + 1.0)
        end = ended(job, start_s=place, end_s=place + 1.0, account=account, log=f"{job}.1.log")
        entries += [started(job, t=place), end]
    return entries


def test_report_command(tmp_path):
    """`jobs report` writes the files of a killed run from its journal; a second call writes the same."""
    write_journal(tmp_path, complete_run()[:-1])
    for _ in range(2):
        done = CliRunner().invoke(app, ["jobs", "report", str(tmp_path)])
        assert done.exit_code == 0, done.stderr
        assert done.stdout == (tmp_path / "report.txt").read_text()
    jobs = pd.read_csv(tmp_path / "jobs.csv", keep_default_na=False)
    assert jobs["outcome"].tolist() == ["completed", "completed", "left"]
    assert jobs["log"].tolist() == ["a-0.1.log", "a-1.1.log", ""]
    assert pd.read_csv(tmp_path / "gpus.csv")["energy_j"].tolist() == [2.0]
    shown = CliRunner().invoke(app, ["jobs", "report", str(tmp_path / "none")])
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)


@contextmanager
def no_room():
    """No file may grow: the stand-in for a full disk that needs no rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk(tmp_path):
    """A report that cannot be written says so, leaves no half file and keeps the one of before."""
    write_journal(tmp_path, complete_run())
    (tmp_path / "jobs.csv").write_text("before")
    with no_room():
        report = read_report(tmp_path).write(tmp_path)
    assert report.complete
    assert "heshare jobs report" in report.unwritten
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "journal.jsonl"]
    assert (tmp_path / "jobs.csv").read_text() == "before"
    assert read_report(tmp_path).write(tmp_path).unwritten == ""
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "journal.jsonl") == REPORT
