"""The recorder's journal: each visit and each kernel trace goes to disk as soon as it is over, whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

from heshare.errors import InputError
from heshare.files import journal_entry, journal_line
from heshare.profiles.kernels import KernelRow
from heshare.profiles.visit import Visit
from heshare.world.workload import Workload


class Journal:
    """Visits and kernel traces so far, in memory and (with a path) on disk, a line of JSON and its checksum each.

    The file is locked while the journal is open. A last line that a crash tore is dropped; the visit is made again.

    Args:
        path: the journal's file, or None to keep visits in memory alone.
        identity: what the recording is; a file of another recording is refused.

    Attributes:
        visits: by setting and number, in the order in which they were made.
        kernels: rows of the kernel traces, by workload.
        kernels_s: the device's time that each trace took, s.
        idle_w: power with nothing running, W, or None as long as it is not known.
        idle_s: the device's time that finding it took, s.
        spent_s: the device's time that everything in the journal took, s.

    Raises:
        InputError: the file holds another recording, is damaged before its last line, or another process writes it.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        self.visits: dict[tuple[str, int], Visit] = {}
        self.kernels: dict[str, tuple[KernelRow, ...]] = {}
        self.kernels_s: dict[str, float] = {}
        self.idle_w: float | None = None
        self.idle_s = self.spent_s = 0.0
        self._path = None if path is None else Path(path)
        self._handle: int | None = None
        if self._path is not None:
            self._open(self._path, json.loads(json.dumps(identity)))

    def add_idle(self, idle_w: float, took_s: float) -> None:
        """Keep the power with nothing running."""
        self._write({"idle_w": idle_w, "took_s": took_s})
        self._keep_idle(idle_w, took_s)

    def add(self, visit: Visit) -> None:
        """Keep a visit."""
        self._write({"visit": visit.as_dict()})
        self._keep(visit)

    def add_kernels(self, workload: Workload, rows: Sequence[KernelRow], took_s: float) -> None:
        """Keep a kernel trace."""
        self._write({"traced": str(workload), "rows": [astuple(row) for row in rows], "took_s": took_s})
        self._keep_kernels(str(workload), tuple(rows), took_s)

    def close(self) -> None:
        """Let the file go; may be repeated."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _keep_idle(self, idle_w: float, took_s: float) -> None:
        self.idle_w, self.idle_s = idle_w, took_s
        self.spent_s += took_s

    def _keep_kernels(self, workload: str, rows: tuple[KernelRow, ...], took_s: float) -> None:
        self.kernels[workload], self.kernels_s[workload] = rows, took_s
        self.spent_s += took_s

    def _keep(self, visit: Visit) -> None:
        self.visits[visit.setup, visit.number] = visit
        self.spent_s += visit.took_s

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._handle is None:
            return
        line = journal_line(entry)
        start = os.lseek(self._handle, 0, os.SEEK_END)
        try:
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)
        except OSError:
            # A full disk must not leave half a line that a later one would be glued to.
            with suppress(OSError):
                os.ftruncate(self._handle, start)
            raise

    def _open(self, path: Path, identity: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(path)
            self._load(path, identity)
        except BaseException:
            self.close()
            raise

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._handle or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                file=path,
                found="a journal that another process writes",
                expected="one recording at a time in a folder",
                action="Wait for the other one to end, or stop it.",
            ) from None

    def _load(self, path: Path, identity: dict[str, Any]) -> None:
        content = path.read_bytes()
        lines = content.split(b"\n")
        # What follows the last line end was torn off by a crash; so was a last line whose checksum is wrong.
        whole = lines[:-1]
        if whole and journal_entry(whole[-1]) is None:
            whole.pop()
        kept = sum(len(line) + 1 for line in whole)
        entries = [journal_entry(line) for line in whole]
        if entries:
            self._check_identity(path, entries[0], identity)
        elif content and not content.startswith(journal_line({"recording": {}})[:14]):
            raise _foreign(path, 1, f"the line {content[:40]!r}")
        for number, entry in enumerate(entries[1:], start=2):
            self._take(path, number, entry)
        if kept != len(content):
            os.ftruncate(self._handle or 0, kept)
        if not entries:
            self._write({"recording": identity})

    def _check_identity(self, path: Path, entry: dict[str, Any] | None, identity: dict[str, Any]) -> None:
        found = (entry or {}).get("recording")
        if not isinstance(found, dict):
            raise _foreign(path, 1, "no journal of a recording")
        wrong = [key for key in sorted(found.keys() | identity.keys()) if found.get(key) != identity.get(key)]
        if wrong:
            raise _foreign(
                path,
                1,
                "a recording with " + ", ".join(f"{key}={found.get(key)}" for key in wrong),
                ", ".join(f"{key}={identity.get(key)}" for key in wrong),
            )

    def _take(self, path: Path, number: int, entry: dict[str, Any] | None) -> None:
        try:
            if entry is not None and "idle_w" in entry:
                self._keep_idle(float(entry["idle_w"]), float(entry["took_s"]))
                return
            if entry is not None and "traced" in entry:
                rows = tuple(KernelRow(*cells) for cells in entry["rows"])
                if entry["traced"] in self.kernels:
                    raise _foreign(path, number, f"the kernels of {entry['traced']} a second time")
                self._keep_kernels(str(entry["traced"]), rows, float(entry["took_s"]))
                return
            visit = Visit.from_dict((entry or {})["visit"])
        except (KeyError, TypeError, ValueError):
            raise _foreign(path, number, "a damaged line") from None
        if (visit.setup, visit.number) in self.visits:
            raise _foreign(path, number, f"visit {visit.number} to {visit.setup} a second time")
        self._keep(visit)


def _foreign(path: Path, number: int, found: str, expected: str = "the recording that is asked for") -> InputError:
    return InputError(
        file=path,
        row=number,
        found=found,
        expected=expected,
        action="Record with the same options to go on, record into another folder, or delete the journal.",
    )
