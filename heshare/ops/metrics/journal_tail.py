"""Reads the journal of a run as it grows, without a lock, and nothing of it twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heshare.ops.executor import run_journal
from heshare.shared import files
from heshare.shared.journal import journal_entry


class JournalTail:
    """The entries of a run's journal that are new since the last look.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inode, self._offset = -1, 0

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Return whether the journal begins anew (at the first look, and after it was replaced), and its new entries.

        Raises:
            InputError: no run there, or a damaged journal.
        """
        try:
            with files.open_input(self._folder / run_journal.NAME) as stream:
                about = os.fstat(stream.fileno())
                anew = about.st_ino != self._inode or about.st_size < self._offset
                self._inode, self._offset = about.st_ino, 0 if anew else self._offset
                stream.seek(self._offset)
                lines = stream.read().split(b"\n")[:-1]
        except OSError:
            anew, lines = True, []
        entries: list[dict[str, Any]] = []
        for line in lines:
            entry = journal_entry(line)
            if entry is None:
                break
            entries.append(entry)
            self._offset += len(line) + 1
        damaged = len(entries) < len(lines) - 1  # the last line may be one that is being written
        if damaged or (anew and not (entries and "run" in entries[0])):
            run_journal.read(self._folder)  # says what is wrong
        return anew, entries
