"""What an operator is told: events while a run goes on, and its report, also on a full disk."""

from __future__ import annotations

import io
import json
import pickle
import resource
from contextlib import contextmanager
from datetime import UTC, datetime

import pandas as pd
import pytest
from msgspec.structs import replace
from support.run_entries import ended, run_of, sampled, session, started

from heshare.ops.executor import execute
from heshare.ops.executor.operator_log import Note, OperatorLog
from heshare.ops.jobs.entries import Account
from heshare.ops.jobs.run_journal import RunJournal
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor

REPORT = ["gpus.csv", "jobs.csv", "report.txt"]


def complete_journal(count):
    entries = [run_of(count), session(0.0)]
    for index in range(count):
        job = "a" if count == 1 else f"a-{index}"
        entries += [started(job, t=float(index)), ended(job, start_s=float(index), end_s=index + 1.0)]
    return entries


def write_journal(folder, entries):
    journal = RunJournal(folder, entries[0])
    for entry in entries[1:]:
        journal.append(entry)
    journal.close()


@contextmanager
def no_room():
    """No file may grow: the stand-in for a full disk that needs no rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("stale", [False, True])
def test_a_report_that_cannot_be_written_is_a_warning_and_leaves_no_half_file(tmp_path, stale):
    write_journal(tmp_path, complete_journal(3))
    if stale:
        (tmp_path / "jobs.csv").write_text("before")
    with no_room():
        outcome = execute.resume(tmp_path, predictor=ToyPredictor())
    assert outcome.complete
    assert outcome.unwritten == (
        f"{tmp_path}: the report could not be written (File too large). The journal has every result: make "
        f"room, then write it with heshare jobs run --resume {tmp_path}."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv"] * stale + ["journal.jsonl"]
    assert not stale or (tmp_path / "jobs.csv").read_text() == "before"
    assert execute.resume(tmp_path, predictor=ToyPredictor()).unwritten == ""
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "journal.jsonl") == REPORT
    assert (tmp_path / "jobs.csv").read_text().count("completed") == 3


def test_a_journal_without_the_second_way_of_dividing_energy_is_reported_and_resumed(tmp_path):
    entries = [*complete_journal(2)[:-2], started("a-1"), ended("a-1", "failed: crash")]
    entries += [started("a-1"), ended("a-1")]
    write_journal(tmp_path, entries)
    assert execute.resume(tmp_path, predictor=ToyPredictor()).complete
    jobs = pd.read_csv(tmp_path / "jobs.csv").set_index("job")
    assert jobs["energy_j"].tolist() == [1.0, 1.0]
    assert jobs["lost_j"].tolist() == [0.0, 1.0]
    assert jobs["energy_model_j"].isna().all()
    assert jobs["lost_model_j"].isna().tolist() == [False, True]
    assert "NaN: an older version wrote the journal" in (tmp_path / "report.txt").read_text()


NOON = datetime(2026, 5, 1, 12, 0, 1, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_tell_writes_one_line_with_the_time_of_day():
    stream = io.StringIO()
    log = OperatorLog(stream, now=lambda: NOON)
    log.tell("gpu-lost", "it has\nfallen off", gpu="GPU-1", job="a")
    log.show("3 s: 1 running")
    assert stream.getvalue() == "12:00:01 GPU-1, a: it has fallen off\n3 s: 1 running\n"


def test_tell_on_a_terminal_clears_the_progress_line_first():
    stream = Terminal()
    log = OperatorLog(stream, now=lambda: NOON)
    log.show("1 s")
    log.tell("note", "x")
    log.show("2 s", last=True)
    log.tell("note", "y")
    assert stream.getvalue() == "\r\033[K1 s\r\033[K12:00:01 x\n\r\033[K2 s\n12:00:01 y\n"


def test_json_log_has_one_object_a_line():
    stream = Terminal()
    log = OperatorLog(stream, as_json=True, now=lambda: NOON)
    log.tell("job-failed", "line\nbreak", gpu="GPU-1", job="a")
    log.show("2 s")
    first, second = map(json.loads, stream.getvalue().splitlines())
    time = "2026-05-01T12:00:01.000+00:00"
    assert first == {"time": time, "event": "job-failed", "gpu": "GPU-1", "job": "a", "text": "line\nbreak"}
    assert (second["event"], second["text"]) == ("progress", "2 s")


def test_tell_drops_what_cannot_be_written():
    for stream in (Gone(), None):
        OperatorLog(stream).tell("note", "x")
        OperatorLog(stream).show("x", last=True)


def test_note_keeps_its_event_between_processes():
    note = pickle.loads(pickle.dumps(Note.at(1.25, "lost", "gpu-lost")))
    assert (note, note.event, note.said) == ("1.2 s: lost", "gpu-lost", "lost")


def test_tell_writes_no_control_characters():
    stream = io.StringIO()
    OperatorLog(stream, now=lambda: NOON).tell(
        "job-failed", "dying \x1b]0;owned\x07\x9b2J \u202ebackwards", job="a\x1b[1m"
    )
    assert stream.getvalue().rstrip("\n").isprintable()


def test_the_energy_of_a_gpu_is_divided_into_accounts_and_each_job_has_its_log(tmp_path):
    cut = sampled(10.0, Account(12.0, idle_j=2.0, shares_j={"a-1": 2.0}, estimated_j=1.5))
    entries = [run_of(3), session(1000.0), started("a-0"), ended("a-0", "failed: crash", energy_j=3.0), started("a-0")]
    entries += [ended("a-0", energy_j=5.0), started("a-1"), cut, replace(session(1100.0), counters_j=(20.0,))]
    entries += [started("a-1"), ended("a-1", energy_j=4.0), started("a-2"), ended("a-2", log="a-2.1.log")]
    write_journal(tmp_path, entries)
    assert execute.resume(tmp_path, predictor=ToyPredictor()).complete
    (row,) = pd.read_csv(tmp_path / "gpus.csv").to_dict("records")
    names = ("completed_j", "lost_j", "idle_j", "energy_j", "between_j")
    assert [row[name] for name in names] == [10.0, 5.0, 2.0, 17.0, 8.0]
    assert pd.read_csv(tmp_path / "jobs.csv", keep_default_na=False)["log"].tolist() == ["", "", "a-2.1.log"]
    report = (tmp_path / "report.txt").read_text()
    assert "session 1, GPU 0: 1.5 J of its energy are integrals of power readings" in report


def test_a_damaged_journal_is_continued_on_request_alone(tmp_path):
    write_journal(tmp_path, complete_journal(2))
    lines = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_text("".join([*lines[:3], lines[3][1:], *lines[4:]]))
    with pytest.raises(InputError, match="journal"):
        execute.resume(tmp_path, predictor=ToyPredictor())
