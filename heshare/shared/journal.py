"""Append-only journals in JSON lines that survive a crash: a checksum for each line, one writer at a time."""

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.file_lock import FileLock

REMEDY = "Restore the file, or begin again in another folder."
"""Default advice about a damaged line."""


def journal_line(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line of a journal: JSON, a tab, the CRC-32 of the JSON, a line end."""
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def journal_entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line without its end; None if the line is damaged."""
    text, _, checksum = line.rpartition(b"\t")
    if not text or checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):  # a line that no run wrote, with a correct checksum
        return None
    return entry if isinstance(entry, dict) else None


class Journal:
    """A journal that is open for writing, and locked until it is closed.

    Args:
        path: the file; it and its folder are created if they do not exist.
        subject: the key of the first entry, such as `run`; a file with another first key is refused.
        opener: opens the file instead of `os.open`, given its path and flags.
        remedy: what to do about a damaged line, for messages.

    Attributes:
        entries: the entries at the time of opening. A last line that a crash cut off is left out, and the next entry
            overwrites it.
    """

    def __init__(
        self,
        path: Path,
        subject: str,
        *,
        opener: Callable[[Path, int], int] | None = None,
        remedy: str = REMEDY,
    ) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path, flags=os.O_NOFOLLOW, opener=opener)
        except OSError as error:
            found = f"what cannot be opened ({error.strerror})"
            raise InputError(found, "a file that can be written", "Choose another folder.", file=path) from None
        try:
            if not self._lock.acquire():
                found = "a journal that another process writes"
                action = "Wait for the other one to end, or stop it."
                raise InputError(found, "one process at a time", action, file=path)
            self.entries, self._end = _parse(path.read_bytes(), path, subject, remedy)
        except BaseException:
            self.close()
            raise

    def append(self, entry: Mapping[str, Any], *, sync: bool = True) -> None:
        """Append an entry, completely or not at all; `sync` flushes it and all entries before it to the disk."""
        line = journal_line(entry)
        self._cut()
        try:
            rest = line
            while rest:
                rest = rest[os.write(self._lock.descriptor, rest) :]
            if sync:
                os.fsync(self._lock.descriptor)
        except OSError:
            # Remove the half-written line of a full disk: with another line after it, it would count as damaged.
            with suppress(OSError):
                self._cut()
            raise
        self._end += len(line)

    def clear(self) -> None:
        self.entries, self._end = [], 0
        self._cut()

    def close(self) -> None:
        self._lock.close()

    def _cut(self) -> None:
        os.ftruncate(self._lock.descriptor, self._end)
        os.lseek(self._lock.descriptor, self._end, os.SEEK_SET)


def read_journal(path: Path, subject: str, *, remedy: str = REMEDY) -> list[dict[str, Any]]:
    """Return the entries of a journal without locking or changing it; an incomplete last line is left out."""
    try:
        with files.open_input(path) as stream:
            content = stream.read()
    except OSError:
        raise _no_journal(path, subject) from None
    return _parse(content, path, subject, remedy)[0]


def _parse(content: bytes, path: Path, subject: str, remedy: str) -> tuple[list[dict[str, Any]], int]:
    # The lines without what a crash cut off: an unfinished line, or a damaged last one.
    lines = content.split(b"\n")[:-1]
    if lines and journal_entry(lines[-1]) is None:
        lines.pop()

    entries: list[dict[str, Any]] = []
    for row, entry in enumerate(map(journal_entry, lines), start=1):
        if row == 1:
            _check_first(entry, lines, path, subject)
        if entry is None:
            raise InputError("a damaged line", f"the journal of a {subject}", remedy, file=path, row=row)
        entries.append(entry)
    # Without a complete line this is the start of such a journal (a crash can leave zeros after it), or another file.
    start, torn = b'{"%s":' % subject.encode(), content.rstrip(b"\0")
    if not entries and torn[: len(start)] != start[: len(torn)]:
        raise _no_journal(path, subject, 1)
    return entries, sum(len(line) + 1 for line in lines)


def _check_first(entry: Mapping[str, Any] | None, lines: Sequence[bytes], path: Path, subject: str) -> None:
    if entry is None and any(journal_entry(line) is not None for line in lines):
        found, expected = f"a damaged first line, which describes the {subject}", f"a {subject} that is described"
        action = f"Restore the file from a copy; without one, begin another {subject} with what is left to do."
        raise InputError(found, expected, action, file=path, row=1)
    if entry is None or subject not in entry:
        raise _no_journal(path, subject, 1)


def _no_journal(path: Path, subject: str, row: int | None = None) -> InputError:
    action = "Name the folder of one, or an empty folder for a new one."
    return InputError(f"no journal of a {subject}", f"the journal of a {subject}", action, file=path, row=row)
