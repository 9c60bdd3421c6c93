"""What puts a machine in order when a run was killed: `python -m heshare.devices.watchdog`.

It waits for the end of its standard input, whose other end only the run holds: that end comes however the run dies. It
has inherited the locks of the run's GPUs, so nobody else gets them before it is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heshare.devices.processes import MARK, alive, end_marked, started_at
from heshare.errors import DeviceError, HeShareError
from heshare.files import PACKAGE

_DONE = b"done\n"
_WAITS_S = (0.01, 0.05, 0.2, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class RunNote:
    """What is needed to put a machine in order after a run that was killed; on disk before the run changes anything.

    Attributes:
        path: the note.
        token: the mark of the run's processes.
        pid: the run's process.
        started: when that was started (`processes.started_at`).
        folder: the run's folder.
    """

    path: Path
    token: str
    pid: int
    started: int
    folder: str

    def said(self) -> dict[str, str | int]:
        """What it says."""
        return {"token": self.token, "pid": self.pid, "started": self.started, "folder": self.folder}

    def write(self) -> None:
        """Put it on disk, whole and synced.

        Raises:
            DeviceError: the folder cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(f".{os.getpid()}.part")
            with part.open("w", encoding="utf-8") as stream:
                json.dump(self.said(), stream)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(self.path)
        except OSError as error:
            raise DeviceError(
                f"{self.path}: cannot note the run there ({error.strerror}). Set XDG_STATE_HOME to a folder that can "
                "be written."
            ) from error

    @classmethod
    def parse(cls, path: Path, text: str) -> RunNote:
        """What a text says."""
        said = json.loads(text)
        return cls(path, str(said["token"]), int(said["pid"]), int(said["started"]), str(said["folder"]))

    @classmethod
    def read(cls, path: Path) -> RunNote:
        """Read a note.

        Raises:
            DeviceError: it is none.
        """
        try:
            return cls.parse(path, path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{path}: not a note of a run ({error!r}). Delete it.") from error


class Watchdog:
    """The watchdog of a run, seen from the run.

    Args:
        note: the run's note. It need not be on disk: whoever is killed before it is has changed nothing.
        inherit: file descriptors that it keeps open, the locks of the run's GPUs.
    """

    def __init__(self, note: RunNote, inherit: Sequence[int]) -> None:
        path = os.pathsep.join(part for part in (str(PACKAGE.parent), os.environ.get("PYTHONPATH")) if part)
        environment = {key: value for key, value in os.environ.items() if key != MARK}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "heshare.devices.watchdog", json.dumps(note.said()), str(note.path)],
            env={**environment, "PYTHONPATH": path},
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

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def dismiss(self) -> None:
        """The run has put everything in order itself. May be repeated."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(_DONE)
                self._process.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


def notes() -> list[Path]:
    """The notes of runs that go on, or were killed and not put in order."""
    from heshare.devices.saved import state_folder

    return sorted(state_folder().glob("run-*.json"))


@dataclass(frozen=True, slots=True)
class Ordered:
    """What was done for a run that was killed.

    Attributes:
        folder: of the run.
        ended: how many processes were ended.
        restored: the UUIDs of the GPUs whose clocks were given back.
    """

    folder: str
    ended: int
    restored: tuple[str, ...]


def put_in_order(note: RunNote) -> Ordered:
    """End what a killed run left running, its jobs first, then its MPS daemons; give its clocks back; forget it.

    Raises:
        DeviceError: the run still goes on, or a card refuses; the note stays.
    """
    from heshare.devices import mps, saved

    if alive(note.pid, note.started):
        raise DeviceError(f"The run of process {note.pid} ({note.folder}) goes on. End it first.")
    ended = end_marked(note.token)
    mps.sweep()
    restored = saved.restore(of_pid=note.pid)
    note.path.unlink(missing_ok=True)
    return Ordered(note.folder, ended, tuple(restored))


def here(folder: Path, token: str) -> RunNote:
    """The note of this process's run."""
    from heshare.devices.saved import state_folder

    return RunNote(state_folder() / f"run-{token}.json", token, os.getpid(), started_at(os.getpid()), str(folder))


def main(said: str, path: str) -> int:
    """Watch; returns the exit code: 0 if the run or the watchdog has put everything in order."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    note = RunNote.parse(Path(path), said)
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    if sys.stdin.buffer.read() == _DONE:
        return 0
    for wait_s in _WAITS_S:
        # The end of the pipe comes a moment before the end of the process.
        time.sleep(wait_s)
        with contextlib.suppress(HeShareError, OSError):
            put_in_order(note)
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
