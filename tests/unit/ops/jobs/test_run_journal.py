"""The executor's journal: a run begins once and is continued, and each attempt counts once over its sessions."""

from __future__ import annotations

import pytest
from support.run_entries import ended, run_of, sampled, session, started, state_of, write_journal

from heshare.ops.jobs.entries import Note, Run
from heshare.ops.jobs.run_journal import NAME, RunJournal, read, session_start
from heshare.shared.errors import InputError
from heshare.shared.journal import journal_line
from heshare.shared.version import __version__

RUN = run_of(3)
ENTRIES = [
    session(0.0),
    started("a-0", "a-1"),
    ended("a-0"),
    started("a-2"),
    ended("a-1", "failed: crash", charged=True, again=True),
    started("a-1"),
    session(9.0),
    started("a-1", "a-2"),
    ended("a-1"),
    ended("a-2", "failed: crash", charged=True),
]


def test_attempts(tmp_path):
    """A journal that is resumed has its entries: every attempt counts once, over both sessions."""
    journal = RunJournal(tmp_path, RUN)
    for entry in ENTRIES:
        journal.append(entry)
    journal.close()
    again = RunJournal(tmp_path, None)
    assert again.entries == read(tmp_path) == [RUN, *ENTRIES]
    again.close()

    jobs = state_of(*again.entries).jobs
    assert {key: job.outcome for key, job in jobs.items()} == {"a-0": "completed", "a-1": "completed", "a-2": "failed"}
    assert [job.attempts for job in jobs.values()] == [1, 3, 2]
    assert [(job.charged, job.free) for job in jobs.values()] == [(0, 0), (1, 0), (1, 0)]


def test_begins_anew(tmp_path):
    """A journal begins anew only if nothing was decided."""
    for run, entry in ((RUN, ENTRIES[0]), (Run("morak"), ENTRIES[1])):
        journal = RunJournal(tmp_path, run)
        journal.append(entry)
        journal.close()
    assert read(tmp_path) == [Run("morak"), ENTRIES[1]]
    with pytest.raises(InputError, match="--resume"):
        RunJournal(tmp_path, RUN)
    with pytest.raises(InputError, match="journal"):
        RunJournal(tmp_path / "none", None)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [("99.0.0", "heshare==99.0.0"), (__version__, "no run writes")],
)
def test_unknown_entry(tmp_path, version, message):
    """An unknown entry is refused, with the version that wrote it if that is another one."""
    write_journal(tmp_path, [run_of(1, version=version)])
    with (tmp_path / NAME).open("ab") as stream:
        stream.write(journal_line({"hibernate": {}}))
    for reading in (lambda: read(tmp_path), lambda: RunJournal(tmp_path, None)):
        with pytest.raises(InputError, match=message):
            reading()


@pytest.mark.parametrize(("now", "expected"), [(50.0, (109.5, 59.5)), (86400.0, (86400.0, 0.0))])
def test_session_start(monkeypatch, now, expected):
    """A session never starts before the last entry of the one before."""
    entries = [
        RUN, session(0.0), started("a-0", t=4.0), session(100.0), ended("a-0", end_s=9.5), sampled(2.0), Note(""),
    ]  # fmt: skip
    monkeypatch.setattr("time.time", lambda: now)
    assert session_start(entries) == expected
