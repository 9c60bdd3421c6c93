"""Journals: read up to where they are cut off, refused if damaged before their end, written by one process only."""

from __future__ import annotations

import errno
import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.shared.errors import InputError
from heshare.shared.journal import Journal, journal_line, read_journal

ENTRIES = [{"run": {"policy": "random"}}, *({"decision": {"t": t, "jobs": ["a", "é"]}} for t in (0.0, 1.5, 2.25))]


def make(folder, content):
    path = folder / "journal.jsonl"
    path.write_bytes(content)
    return path


def test_append(tmp_path):
    """An entry is written to disk with its checksum."""
    journal = Journal(tmp_path / "new" / "journal.jsonl", "run")
    assert journal.entries == []
    for entry in ENTRIES:
        journal.append(entry)
        assert read_journal(journal.path, "run")[-1] == entry
    journal.close()
    assert journal.path.read_bytes().splitlines()[0] == b'{"run":{"policy":"random"}}\t7a5463d7'
    again = Journal(journal.path, "run")
    assert again.entries == ENTRIES
    again.clear()
    again.close()
    assert journal.path.read_bytes() == b""


@given(st.integers(0, len(b"".join(map(journal_line, ENTRIES)))))
@settings(max_examples=60, deadline=None)
def test_cut_off(tmp_path_factory, cut):
    """A journal that was cut anywhere keeps its whole lines; new entries follow them."""
    content = b"".join(map(journal_line, ENTRIES))[:cut]
    path = make(tmp_path_factory.mktemp("cut"), content)
    journal = Journal(path, "run")
    whole = ENTRIES[: content.count(b"\n")]
    assert journal.entries == read_journal(path, "run") == whole
    if whole:
        journal.append({"end": 1})
        assert read_journal(path, "run") == [*whole, {"end": 1}]
    journal.close()


@given(st.integers(0, 8 * len(b"".join(map(journal_line, ENTRIES))) - 1))
def test_flipped_bit(tmp_path_factory, bit):
    """A flipped bit is refused, or is in the last line, which is then taken for cut off."""
    content = bytearray(b"".join(map(journal_line, ENTRIES)))
    content[bit // 8] ^= 1 << (bit % 8)
    path = make(tmp_path_factory.mktemp("flip"), content)
    try:
        entries = read_journal(path, "run")
    except InputError:
        assert path.read_bytes() == content
        return
    assert entries == ENTRIES[: len(entries)]
    assert len(entries) >= len(ENTRIES) - 1


def damaged(row: int, new: bytes) -> list[bytes]:
    """Return the lines of a journal, of which one was replaced."""
    lines = [journal_line(entry) for entry in ENTRIES]
    return [*lines[: row - 1], new, *lines[row:]]


CHECKED = [text + b"\t%08x\n" % zlib.crc32(text) for text in (b"{", b"[" * 100_000, b"[]", b"\xff")]
"""Lines with right checksums that are no entries."""


@pytest.mark.parametrize(
    ("row", "new"),
    [
        (1, journal_line(ENTRIES[0]).replace(b"random", b"rendom")),
        (3, journal_line(ENTRIES[2]).replace(b"1.5", b"1.6")),
        *((2, line) for line in CHECKED),
    ],
    ids=["first line", "entry", "half a dictionary", "deep list", "list", "no text"],
)
def test_damaged_line(row, new, tmp_path):
    """A damaged line before the last one is refused with its row, and the file stays as it is."""
    content = b"".join(damaged(row, new))
    path = make(tmp_path, content)
    for read in (Journal, read_journal):
        with pytest.raises(InputError, match=f"row {row}: found a damaged"):
            read(path, "run")
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"gpu,provenance", b"gpu,provenance\n1,2\n", journal_line({"recording": {}})])
def test_other_file(tmp_path, content):
    """Another file is refused and stays unchanged."""
    path = make(tmp_path, content)
    for read in (Journal, read_journal):
        with pytest.raises(InputError, match="found no journal of a run"):
            read(path, "run")
    assert path.read_bytes() == content


def test_second_writer(tmp_path):
    """A second writer is refused until the first one closes; zeros, which a crash leaves, are no entry."""
    first = Journal(make(tmp_path, b"\0" * 40), "run")
    first.append(ENTRIES[0])
    with pytest.raises(InputError, match="another process"):
        Journal(first.path, "run")
    with pytest.raises(InputError, match="cannot be opened"):
        Journal(first.path / "journal.jsonl", "run")
    first.close()
    first.close()
    Journal(first.path, "run").close()
    assert first.path.read_bytes() == journal_line(ENTRIES[0])


def test_full_disk(tmp_path, monkeypatch):
    """On a full disk no half line is left."""
    write = os.write

    def half(handle, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[:20])

    journal = Journal(tmp_path / "journal.jsonl", "run")
    journal.append(ENTRIES[0])
    with monkeypatch.context() as patch:
        patch.setattr("os.write", half)
        with pytest.raises(OSError, match="No space left"):
            journal.append(ENTRIES[1])
        assert journal.path.read_bytes() == journal_line(ENTRIES[0])
        # Even where the half line could not be removed at once, the next entry takes its place.
        patch.setattr("os.ftruncate", lambda *_: None)
        with pytest.raises(OSError, match="No space left"):
            journal.append(ENTRIES[1])
        assert journal.path.read_bytes() != journal_line(ENTRIES[0])
    journal.append(ENTRIES[1])
    journal.close()
    assert read_journal(journal.path, "run") == ENTRIES[:2]
