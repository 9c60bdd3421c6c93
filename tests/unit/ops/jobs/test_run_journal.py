"""The executor's journal: a run begins once, is continued, and its jobs are counted once, wherever the file is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.run_entries import GPU, ended, run_of, sampled, session, started, state_of, write_journal

from heshare.ops.jobs.entries import Note, Run, Session, encode
from heshare.ops.jobs.run_journal import NAME, RunJournal, read, session_start
from heshare.shared.errors import InputError
from heshare.shared.journal import journal_line
from heshare.shared.version import __version__

RUN = run_of(3)
ENTRIES = [
    Session(0.0, (GPU,), counters_j=(None,)),
    started("a-0", "a-1"),
    ended("a-0"),
    started("a-2"),
    ended("a-1", "failed: crash", charged=True, again=True),
    started("a-1"),
    Session(9.0, (GPU,), counters_j=(None,)),
    started("a-1", "a-2"),
    ended("a-1"),
    ended("a-2", "failed: crash", charged=True),
]


def line_of(entry):
    return journal_line(encode(entry))


def test_append(tmp_path):
    """A resumed journal reads the entries that were appended."""
    journal = RunJournal(tmp_path, RUN)
    for entry in ENTRIES:
        journal.append(entry)
    assert read(tmp_path) == [RUN, *ENTRIES]
    journal.close()
    again = RunJournal(tmp_path, None)
    assert again.entries == [RUN, *ENTRIES]
    again.close()


def over(*entries):
    return {job.key: job.outcome for job in state_of(*entries).jobs.values() if job.over}


def test_attempts():
    """Every attempt and each finished job counts once over both sessions."""
    jobs = state_of(RUN, *ENTRIES).jobs
    assert over(RUN, *ENTRIES) == {"a-0": "completed", "a-1": "completed", "a-2": "failed"}
    assert [job.attempts for job in jobs.values()] == [1, 3, 2]
    assert [(job.charged, job.free) for job in jobs.values()] == [(0, 0), (1, 0), (1, 0)]


def test_begins_anew(tmp_path):
    """A journal begins anew only if nothing was decided."""
    first = RunJournal(tmp_path, RUN)
    first.append(ENTRIES[0])
    first.close()
    second = RunJournal(tmp_path, Run("morak"))
    second.append(ENTRIES[1])
    second.close()
    assert read(tmp_path) == [Run("morak"), ENTRIES[1]]
    with pytest.raises(InputError, match="--resume"):
        RunJournal(tmp_path, RUN)
    with pytest.raises(InputError, match="journal"):
        RunJournal(tmp_path / "none", None)
    assert not (tmp_path / "none").exists()


WHOLE = [line_of(entry) for entry in [RUN, *ENTRIES]]


@given(place=st.integers(0, 10**9))
def test_flipped_bit(tmp_path_factory, place):
    """A flipped bit is refused, or is in the last line, which is then taken for torn."""
    folder = tmp_path_factory.mktemp("flip")
    content = bytearray(b"".join(WHOLE))
    bit = place % (len(content) * 8)
    content[bit // 8] ^= 1 << (bit % 8)
    (folder / NAME).write_bytes(content)
    try:
        entries = read(folder)
    except InputError:
        assert (folder / NAME).read_bytes() == content
        return
    assert entries == [RUN, *ENTRIES][: len(entries)]
    assert len(entries) >= len(ENTRIES)


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
