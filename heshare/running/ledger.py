"""The executor's journal: every decision and result, appended and synced before it counts, and read back to go on."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from heshare.errors import DeviceError, InputError
from heshare.files import journal_entry, journal_line

NAME = "journal.jsonl"
FULL_S = 60.0
"""How long to wait for room on a full disk, s."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Ledger:
    """The journal of a run, a line of JSON and its checksum for each entry; locked while it is open.

    Args:
        folder: the run's folder.
        run: what the run is, for a new one; None to go on with the one that is there.
        full_s: how long to wait for room on a full disk, s.

    Attributes:
        entries: what was there when it was opened, the run's first entry included.

    Raises:
        InputError: a new run where there is one already, none to go on with, a damaged one, or one that goes on.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any] | None, *, full_s: float = FULL_S) -> None:
        self.path = folder / NAME
        self.entries: list[dict[str, Any]] = []
        self._full_s = full_s
        there = self.path.exists() and self.path.stat().st_size > 0
        if run is None and not there:
            raise _unfit(self.path, "no journal of a run", "Name the folder of a run, or start one with its jobs.yaml.")
        self._handle = self._open(folder)
        try:
            self.entries = self._load()
            if run is not None and self.entries and not any("decision" in entry for entry in self.entries):
                # Nothing was decided, so nothing was started: a run that was refused may be begun anew.
                os.ftruncate(self._handle, 0)
                self.entries = []
            if run is not None and self.entries:
                action = f"Go on with it: heshare run --resume {folder}; or choose another folder with --out."
                raise _unfit(self.path, "the journal of a run", action)
            if run is not None:
                self.entries = [{"run": json.loads(json.dumps(run))}]
                self.add(self.entries[0])
            elif not self.entries or "run" not in self.entries[0]:
                raise _unfit(self.path, "no journal of a run", "Name another folder.")
        except BaseException:
            self.close()
            raise

    def add(self, entry: Mapping[str, Any], *, sync: bool = True) -> None:
        """Append an entry; with `sync` it is on disk when this returns, with all before it.

        A full disk is waited for, since what cannot be noted must not be done.

        Raises:
            DeviceError: the disk stays full, or fails; the run can go on later from what is there.
        """
        until = time.monotonic() + self._full_s
        while True:
            try:
                self._append(journal_line(entry), sync)
                return
            except OSError as error:
                if error.errno not in _FULL or time.monotonic() >= until:
                    raise DeviceError(
                        f"{self.path}: cannot be written ({error.strerror}). Make room, then go on with "
                        f"heshare run --resume {self.path.parent}."
                    ) from error
            time.sleep(min(0.5, self._full_s / 4))

    def close(self) -> None:
        """Let it go. May be repeated."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _append(self, text: bytes, sync: bool) -> None:
        start = os.lseek(self._handle, 0, os.SEEK_END)
        try:
            while text:
                text = text[os.write(self._handle, text) :]
            if sync:
                os.fsync(self._handle)
        except OSError:
            # Half a line must not stay, for a later one would be glued to it.
            with suppress(OSError):
                os.ftruncate(self._handle, start)
            raise

    def _open(self, folder: Path) -> int:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unfit(self.path, f"what cannot be opened ({error.strerror})", "Choose another folder.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise _unfit(self.path, "a run that goes on", "Wait for it to end, or end it.") from None
        return handle

    def _load(self) -> list[dict[str, Any]]:
        """The entries; a last line that a crash tore is cut off, for it never counted."""
        content = self.path.read_bytes()
        lines = content.split(b"\n")[:-1]
        if lines and journal_entry(lines[-1]) is None:
            lines.pop()
        kept = sum(len(each) + 1 for each in lines)
        found = [journal_entry(each) for each in lines]
        for number, each in enumerate(found, start=1):
            if each is None:
                raise InputError(
                    file=self.path,
                    row=number,
                    found="a damaged line",
                    expected="the journal of a run",
                    action="Restore the file, or start anew in another folder.",
                )
        if kept != len(content):
            os.ftruncate(self._handle, kept)
        return [each for each in found if each is not None]


def read(folder: Path) -> list[dict[str, Any]]:
    """The entries of a journal, without changing it; a torn last line is left out.

    Raises:
        InputError: there is none.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        raise _unfit(path, "no journal of a run", "Name the folder of a run.") from None
    return [entry for entry in map(journal_entry, lines) if entry is not None]


def _unfit(path: Path, found: str, action: str) -> InputError:
    return InputError(file=path, found=found, expected="a folder for this run", action=action)
