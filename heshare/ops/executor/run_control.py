"""Requests to a run that goes on, by a file in its folder: start nothing more (`drain`), or end now (`stop`).

A file needs no signal: nothing can be sent to the wrong process, and whoever may write the run's folder may steer it.
"""

import os
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Entry
from heshare.policies.policy import Action, Event, Migrate, Pause, Policy, Start, View
from heshare.shared.errors import InputError, require
from heshare.shared.file_lock import is_locked
from heshare.shared.signals import Interrupted
from heshare.world.task import Task

NAME = "control"
DRAIN, STOP = "drain", "stop"
_LONGEST = 64


class RunDrained(Exception):  # noqa: N818 (no error: what was requested has happened)
    """Nothing runs any more after a request to start nothing more."""


class RunControl:
    """The executor's side: requests are read from the file, and taken away when a session begins."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.draining = False
        self.clear()  # a request to an earlier session does not concern this one

    def check(self) -> bool:
        """Return whether the file has just brought a request to drain; `Interrupted` if the run is to end now."""
        request = _read(self._path)
        if request == STOP:
            raise Interrupted(signal.SIGTERM)
        fresh = request == DRAIN and not self.draining
        self.draining = self.draining or fresh
        return fresh

    def clear(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class SteeredPolicy(FaultTolerantPolicy):
    """A policy that starts, moves and pauses nothing any more once the run is to drain."""

    def __init__(self, policy: Policy, control: RunControl, news: Callable[[Sequence[Task]], bool]) -> None:
        super().__init__(policy, news)
        self._control = control

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        for action in super().decide(event, view):
            if not (self._control.draining and isinstance(action, Start | Migrate | Pause)):
                yield action


def is_alive(folder: Path) -> bool:
    """Return whether an executor works on the run: it holds the lock of the journal as long as it lives."""
    return is_locked(folder / run_journal.NAME)


def ask(folder: Path, request: str) -> None:
    """Ask the executor of a run to drain or to stop.

    Raises:
        InputError: no run in the folder, none that goes on, or the folder cannot be written.
    """
    run_journal.read(folder)
    action = "There is nothing to end. `heshare jobs run --resume` continues it, `heshare jobs status` shows it."
    require(None, "a run without an executor", is_alive(folder), "a run that goes on", action, file=folder)
    try:
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as stream:
            stream.write(request + "\n")
        # The executor reads it also where root has written it. The rename replaces a link, and never follows one.
        Path(name).chmod(0o644)
        Path(name).replace(folder / NAME)
    except OSError as error:
        found, action = f"cannot be written ({error.strerror})", "Do it as the user of the run."
        raise InputError(found, "a folder that may be written", action, file=folder / NAME) from None


def pending_request(folder: Path) -> str:
    """Return the request that lies in a run's folder, `drain`, `stop` or nothing."""
    request = _read(folder / NAME)
    return request if request in (DRAIN, STOP) else ""


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.geteuid()):
            return ""
        return os.read(descriptor, _LONGEST).decode(errors="replace").strip()
    finally:
        os.close(descriptor)


@dataclass
class RunSteering:
    """The connections of a run to its operator: what is told, what is requested, and where metrics go."""

    log: OperatorLog
    control: RunControl
    meter: Callable[[Entry], object] | None = None

    def hear(self, *, idle: bool) -> None:
        """Do what is requested: `Interrupted` to end now, `RunDrained` once nothing runs (`idle`) while it drains."""
        if self.control.check():
            self.log.tell("drain", "nothing more is started; the run ends when what runs has ended")
        if self.control.draining and idle:
            raise RunDrained
