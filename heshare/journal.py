"""Append-only journals in JSON lines that survive a crash: a checksum for each line, one writer at a time."""

import json
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from heshare.errors import InputError
from heshare.file_lock import FileLock


def journal_line(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line of a journal: JSON, a tab, the CRC-32 of the JSON, a line end."""
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def journal_entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line without its end; None if the line is damaged."""
    text, _, checksum = line.rpartition(b"\t")
    if not text or checksum != b"%08x" % zlib.crc32(text):
        return None
    entry = json.loads(text)
    return entry if isinstance(entry, dict) else None


class Journal:
    """A journal that is open for writing, and locked until it is closed.

    Args:
        path: the file; made with its folder if it is not there.
        subject: the key of its first entry, such as `run`; a file that begins with anything else is refused.
        opener: opens the file instead of `os.open`, given its path and flags.

    Attributes:
        entries: the entries that it had when it was opened. A last line that a crash cut off is left out, and the next
            entry overwrites it.

    Raises:
        InputError: it cannot be opened, another process writes it, it is no journal of the subject, or a line before
            the last is damaged. The file is left as it is.
    """

    def __init__(self, path: Path, subject: str, *, opener: Callable[[Path, int], int] | None = None) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path, flags=os.O_NOFOLLOW, opener=opener)
        except OSError as error:
            found = f"what cannot be opened ({error.strerror})"
            raise InputError(found, "a file that can be written", "Choose another folder.", file=path) from None
        try:
            if not self._lock.acquire():
                found, action = "a journal that another process writes", "Wait for the other one to end, or stop it."
                raise InputError(found, "one process at a time", action, file=path)
            self.entries, self._end = _parse(path.read_bytes(), path, subject)
        except BaseException:
            self.close()
            raise

    def append(self, entry: Mapping[str, Any], *, sync: bool = True) -> None:
        """Write an entry, whole or not at all; with `sync` it and all entries before it are on disk when this returns.

        Raises:
            OSError: the disk is full, or fails.
        """
        line = journal_line(entry)
        self._cut()
        try:
            rest = line
            while rest:
                rest = rest[os.write(self._lock.descriptor, rest) :]
            if sync:
                os.fsync(self._lock.descriptor)
        except OSError:
            # Half a line must not stay on a full disk, since another line behind it would make it a damaged one.
            with suppress(OSError):
                self._cut()
            raise
        self._end += len(line)

    def clear(self) -> None:
        """Remove every entry."""
        self.entries, self._end = [], 0
        self._cut()

    def close(self) -> None:
        """Close the file and release its lock. May be repeated."""
        self._lock.close()

    def _cut(self) -> None:
        """Remove everything behind the last whole entry, and move to its end."""
        os.ftruncate(self._lock.descriptor, self._end)
        os.lseek(self._lock.descriptor, self._end, os.SEEK_SET)


def read_journal(path: Path, subject: str) -> list[dict[str, Any]]:
    """Return the entries of a journal without locking or changing it; an incomplete last line is left out.

    Raises:
        InputError: there is no such file, it is no journal of the subject, or a line before the last is damaged.
    """
    try:
        content = path.read_bytes()
    except OSError:
        raise _no_journal(path, subject) from None
    return _parse(content, path, subject)[0]


def _parse(content: bytes, path: Path, subject: str) -> tuple[list[dict[str, Any]], int]:
    """Return the entries, and how many bytes of the content they are."""
    # A crash has cut off what follows the last line end, and a last line whose checksum is wrong.
    lines = content.split(b"\n")[:-1]
    if lines and journal_entry(lines[-1]) is None:
        lines.pop()
    entries: list[dict[str, Any]] = []
    for row, entry in enumerate(map(journal_entry, lines), start=1):
        if row == 1 and (entry is None or subject not in entry):
            raise _no_journal(path, subject, row)
        if entry is None:
            action = "Restore the file, or begin again in another folder."
            raise InputError("a damaged line", f"the journal of a {subject}", action, file=path, row=row)
        entries.append(entry)
    # Without a whole line this is the beginning of such a journal (a crash can leave zeros behind it), or another file.
    start, torn = b'{"%s":' % subject.encode(), content.rstrip(b"\0")
    if not entries and torn[: len(start)] != start[: len(torn)]:
        raise _no_journal(path, subject, 1)
    return entries, sum(len(line) + 1 for line in lines)


def _no_journal(path: Path, subject: str, row: int | None = None) -> InputError:
    action = "Name the folder of one, or an empty folder for a new one."
    return InputError(f"no journal of a {subject}", f"the journal of a {subject}", action, file=path, row=row)
