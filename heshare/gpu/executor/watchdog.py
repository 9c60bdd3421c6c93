"""Cleanup after runs that were killed: a note on disk, and a watchdog, `python -m heshare.gpu.executor.watchdog`.

The watchdog waits for the end of its standard input, whose other end only the run holds: that end comes however the
run ends. It has inherited the locks of the run's GPUs, so that no other run gets them before it is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heshare import files, signals
from heshare.errors import DeviceError, HeShareError
from heshare.processes import MARK, alive, child_environment, end_marked, started_at

# What a cleanup needs of NVML and MPS is imported in the functions: a run waits until its watchdog has started.

_DONE = b"done\n"
_WAITS_S = (0.01, 0.05, 0.2, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class RunNote:
    """The note that a cleanup after a run needs; on disk before the run changes anything.

    Attributes:
        token: the mark of the run's processes.
        pid: the run's process.
        started: when that was started (`processes.started_at`).
        folder: the run's folder.
    """

    token: str
    pid: int
    started: int
    folder: str

    @property
    def path(self) -> Path:
        """File of the note of a run."""
        return _notes_folder() / f"run-{self.token}.json"

    def as_json(self) -> str:
        """Return the text of the note's file."""
        return json.dumps(asdict(self))

    def write(self) -> None:
        """Put the note on disk, whole and synced.

        Raises:
            DeviceError: the folder cannot be written.
        """

        def write_synced(path: Path) -> None:
            with path.open("w", encoding="utf-8") as stream:
                stream.write(self.as_json())
                stream.flush()
                os.fsync(stream.fileno())

        try:
            files.write_atomic(self.path, write_synced, private=True)
        except OSError as error:
            raise DeviceError(
                f"{self.path}: cannot note the run there ({error.strerror}). Set XDG_STATE_HOME to a folder that can "
                "be written."
            ) from error

    @classmethod
    def parse(cls, text: str) -> RunNote:
        """Return the note whose file holds this text."""
        note = json.loads(text)
        return cls(str(note["token"]), int(note["pid"]), int(note["started"]), str(note["folder"]))

    @classmethod
    def read(cls, path: Path) -> RunNote:
        """Read the note of a run from its file.

        Raises:
            DeviceError: it is none.
        """
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{path}: not a note of a run ({error!r}). Delete it.") from error


def _notes_folder() -> Path:
    from heshare.gpu.nvml.clock_lock import state_folder

    return state_folder()


def note_of_this_process(folder: Path, token: str) -> RunNote:
    """Return the note of a run of this process."""
    return RunNote(token, os.getpid(), started_at(os.getpid()), str(folder))


def run_notes() -> list[Path]:
    """Return the notes of runs that continue, or were killed and not cleaned up."""
    return sorted(_notes_folder().glob("run-*.json"))


class Watchdog:
    """The watchdog process of a run, started with this object.

    Args:
        note: the run's note. It need not be on disk: a run that is killed before it is has changed nothing.
        inherit: file descriptors that it keeps open, the locks of the run's GPUs.

    Raises:
        DeviceError: it does not start.
    """

    def __init__(self, note: RunNote, inherit: Sequence[int]) -> None:
        environment = child_environment()
        environment.pop(MARK, None)  # it must not be ended with the run's processes
        self._process = subprocess.Popen(
            [sys.executable, "-m", "heshare.gpu.executor.watchdog", note.as_json()],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(inherit),
            start_new_session=True,
            cwd="/",
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"watching\n":
            raise DeviceError("The watchdog that would put the GPUs back does not start. Check this Python.")

    def dismiss(self) -> None:
        """End it without a cleanup: the run has done that itself. May be repeated."""
        if self._process.returncode is None:
            self._process.communicate(_DONE)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The result of a cleanup after a run that was killed.

    Attributes:
        folder: of the run.
        ended: how many processes were ended.
        restored: the UUIDs of the GPUs whose clocks were unlocked.
    """

    folder: str
    ended: int
    restored: tuple[str, ...]


def clean_up(note: RunNote) -> CleanupReport:
    """End the processes that a killed run left, then its MPS daemons; unlock its clocks; delete its note.

    Raises:
        DeviceError: the run is still alive, or a GPU refuses; the note stays.
    """
    from heshare.gpu import mps
    from heshare.gpu.nvml import clock_lock

    if alive(note.pid, note.started):
        raise DeviceError(f"The run of process {note.pid} ({note.folder}) still runs. End it first.")
    ended = end_marked(note.token)
    mps.sweep()
    restored = clock_lock.restore(of_pid=note.pid)
    # Last, so that a cleanup that is killed itself is done again.
    note.path.unlink(missing_ok=True)
    return CleanupReport(note.folder, ended, tuple(restored))


def clean_up_killed_runs() -> list[CleanupReport]:
    """Clean up after every run that was killed, where its watchdog could not; notes that cannot be used are left."""
    reports = []
    for path in run_notes():
        with contextlib.suppress(DeviceError):
            note = RunNote.read(path)
            if not alive(note.pid, note.started):
                reports.append(clean_up(note))
    return reports


def main(note_text: str) -> int:
    """Watch a run; return the exit code, 0 if the run or the watchdog has cleaned up."""
    signals.ignore()
    note = RunNote.parse(note_text)
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    if sys.stdin.buffer.read() == _DONE:
        return 0
    for wait_s in _WAITS_S:
        # The end of the pipe comes a moment before the end of the process.
        time.sleep(wait_s)
        with contextlib.suppress(HeShareError, OSError):
            clean_up(note)
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
