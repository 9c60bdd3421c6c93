"""A process of the simulated machine that changes real files: it can be killed before, amid and after each change."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from support.simulator.machine import Machine

from heshare.shared import signals

_CHANGES = ("write", "pwrite", "fsync", "ftruncate", "link", "unlink", "replace", "rename", "mkdir", "chmod", "fchmod")
WHERE = ("before", "amid", "after")
_MOST_STEPS = 100_000
_SHORT = 7
"""Every so many changes a write is short: the system may write less than it was given."""


class Crash(BaseException):
    """The process was killed: nothing that its code still does has any effect."""


class SimProcess:
    """A process: an executor or a cleanup process.

    Args:
        environment: variables that differ from those of this process.
        crash: at which change of a file it is killed, and where: `before`, `amid` or `after` it.
        signal_at: the change before which it gets SIGTERM.

    Attributes:
        changes: how many changes of files it has made.
        pending: what will be done in its code as soon as that waits.
        asked: is called when it gets SIGTERM; `releasing` when it is about to end an MPS session.
        inherited: descriptors that another process has of it, and that stay open at its end.
    """

    def __init__(
        self,
        machine: Machine,
        name: str,
        environment: Mapping[str, str],
        *,
        crash: tuple[int, str] | None = None,
        signal_at: int | None = None,
    ) -> None:
        self.machine, self.name = machine, name
        self.alive, self.killed = True, False
        self.changes = 0
        self.pending: Callable[[], None] | None = None
        self.asked: Callable[[], None] = lambda: None
        self.releasing: Callable[[], None] = lambda: None
        self.inherited: set[int] = set()
        self._environment, self._crash, self._signal_at = environment, crash, signal_at
        self._steps = 0

    def run(self, program: Callable[[], object]) -> BaseException | None:
        """Run it to its end; return what ended it, None for a return."""
        machine, before, open_before = self.machine, self.machine.process, _descriptors()
        machine.process = self
        error: BaseException | None = None
        with mock.patch.dict(os.environ, self._environment):
            try:
                program()
            except (Exception, Crash, signals.Interrupted) as raised:
                error = raised
            finally:
                machine.process = before
        self.alive = False
        left = _descriptors() - open_before - self.inherited
        if left and not self.killed:
            machine.violate(f"{self.name} has left {len(left)} descriptors open")
        for descriptor in left:
            os.close(descriptor)
        return Crash() if self.killed else error

    def check(self) -> None:
        """Raise `Crash` if it has been killed."""
        if self.killed:
            raise Crash

    def kill(self) -> None:
        self.killed = True
        self.machine.log("killed", self.name, self.changes)
        raise Crash

    def terminate(self) -> None:
        """Handle SIGTERM in its code, which may raise."""
        if self.killed:
            return
        self.machine.log("signal", self.name)
        self.asked()
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler):
            handler(signal.SIGTERM, None)
        else:
            self.kill()

    def advance(self, until_s: float, done: Callable[[], bool] = lambda: False) -> None:
        """Wait until a time, or until something is done."""
        self.check()
        self._count_step()
        while not done() and self.machine.now_s < until_s:
            self._count_step()
            self.machine.step(until_s)
            pending, self.pending = self.pending, None
            if pending is not None:
                pending()

    def change(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make one change of a file."""
        self.check()
        self.changes += 1
        at, where = self._crash or (0, "")
        if self.changes == self._signal_at:
            self.terminate()
        if self.changes != at:
            return function(*arguments, **options)

        if where == "before":
            self.kill()
        if where == "amid" and name == "write":
            descriptor, data = arguments
            function(descriptor, bytes(data)[: len(data) // 2])
            self.kill()
        function(*arguments, **options)
        self.kill()
        return None

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self.machine.violate(f"{self.name} does not end")
            self.kill()


class WatchedFiles:
    """Has every change of a file in a process of a machine made by `SimProcess.change`.

    Attributes:
        synced: how many bytes of a file are on disk, by its inode.
        removing: is called with the path of each file that is deleted.
    """

    def __init__(self, machine: Machine, root: Path) -> None:
        self._machine, self._root = machine, root
        self._open, self._fsync = os.open, os.fsync
        self.synced: dict[int, int] = {}
        self.removing: Callable[[Path], None] = lambda path: None

    @contextmanager
    def watched(self) -> Iterator[None]:
        changed = {name: self._watched(name, getattr(os, name)) for name in _CHANGES}
        changed |= {"open": self._opened, "fsync": self._watched("fsync", self._sync)}
        with mock.patch.multiple(os, **changed):
            yield

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            process = self._machine.process
            if process is None:
                return function(*arguments, **options)
            if name in ("link", "unlink", "replace", "rename", "mkdir"):
                self._require_inside(arguments[-1] if name != "mkdir" else arguments[0])
            if name == "unlink" and not process.killed:
                self.removing(Path(arguments[0]))
            if name == "write" and process.changes % _SHORT == 0:
                descriptor, data = arguments
                arguments = descriptor, bytes(data)[: max(1, len(data) // 2)]
            return process.change(name, function, *arguments, **options)

        return call

    def _sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.synced[found.st_ino] = found.st_size

    def _opened(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        process = self._machine.process
        if process is None or not flags & os.O_CREAT:
            return self._open(path, flags, mode, dir_fd=dir_fd)
        self._require_inside(path if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink() / path)
        created: int = process.change("open", self._open, path, flags, mode, dir_fd=dir_fd)
        return created

    def _require_inside(self, path: Any) -> None:
        place = os.fspath(path)
        if not place.startswith(str(self._root)):
            self._machine.violate(f"a file outside the folders of the run is changed: {place}")


def _descriptors() -> set[int]:
    """Return the descriptors of this process, without that of the look itself."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            os.fstat(int(path.name))
            found.add(int(path.name))
    return found
