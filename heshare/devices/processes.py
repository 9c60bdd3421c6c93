"""Processes of this machine: whether one still lives, and ending all of a run by the mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "HESHARE_RUN"
"""The variable that every process of a run has in its environment."""


def started_at(pid: int) -> int:
    """When a process was started, in clock ticks since the machine was; 0 if there is no such process.

    Together with its id it names a process for good: ids are used again.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def alive(pid: int, started: int) -> bool:
    """Whether the very process that had this id and start runs; one that waits for its parent does not."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z" and int(fields[19]) == started


def marked(token: str) -> list[int]:
    """The processes of a run: those with its mark, and those in a session that one of them leads."""
    mark, found = f"{MARK}={token}".encode(), set()
    sessions: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        fields = _stat(pid)
        if pid == os.getpid() or not fields or fields[0] == "Z":
            continue
        sessions.setdefault(int(fields[3]), []).append(pid)
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    led = [pid for leader in found & set(sessions) for pid in sessions[leader]]
    return sorted(found | {pid for pid in led if pid != os.getpid()})


def end_marked(token: str, *, grace_s: float = 3.0, among: Iterable[int] | None = None) -> int:
    """End every process of a run, SIGTERM first; returns how many there were.

    A process that was being started when its run was killed shows its mark only a moment later, so two looks in a row
    must find nothing.

    Args:
        token: the run's.
        grace_s: how long a process may take to end by itself, s.
        among: further process ids, which belong to the run but hide their environment.
    """
    seen: set[int] = set()
    further = {pid: started_at(pid) for pid in among or ()}
    until = time.monotonic() + grace_s
    quiet = 0
    while quiet < 2:
        found = set(marked(token)) | {pid for pid, started in further.items() if started and alive(pid, started)}
        late = time.monotonic() >= until
        for pid in found if late else found - seen:
            _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        seen |= found
        quiet = 0 if found else quiet + 1
        if time.monotonic() > until + 10.0:
            break  # what even SIGKILL does not end is in the kernel's hands
        time.sleep(0.05)
    return len(seen)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none without such a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
