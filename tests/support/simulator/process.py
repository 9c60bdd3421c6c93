"""A process of the simulated machine that changes real files: it can be killed before, amid and after each change."""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
        self._environment, self._crash, self._signal_at = environment, crash, signal_at
        self._descriptors: set[int] = set()
        self._steps = 0

    def run(self, program: Callable[[], object]) -> BaseException | None:
        """Run it to its end; return what ended it, None for a return."""
        machine, before = self.machine, self.machine.process
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
        if self._descriptors and not self.killed:
            machine.violate(f"{self.name} has left {len(self._descriptors)} descriptors open")
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
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

    def own(self, descriptor: int) -> int:
        self._descriptors.add(descriptor)
        return descriptor

    def disown(self, descriptor: int) -> bool:
        """Forget a descriptor that is closed, or that somebody else closes; return whether it had it."""
        owned = descriptor in self._descriptors
        self._descriptors.discard(descriptor)
        return owned

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
        result = function(*arguments, **options)
        if name == "open":
            self.own(result)
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
        self._open, self._io_open, self._close, self._fsync = os.open, io.open, os.close, os.fsync
        self.synced: dict[int, int] = {}
        self.removing: Callable[[Path], None] = lambda path: None

    @contextmanager
    def watched(self) -> Iterator[None]:
        changed = {name: self._watched(name, getattr(os, name)) for name in _CHANGES}
        changed |= {"open": self._opened, "close": self._closed, "fsync": self._watched("fsync", self._sync)}
        with (
            mock.patch.multiple(os, **changed),
            mock.patch.object(io, "open", self._stream),
            mock.patch.object(builtins, "open", self._stream),
        ):
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
        if process is None:
            return self._open(path, flags, mode, dir_fd=dir_fd)
        if not flags & os.O_CREAT:
            return process.own(self._open(path, flags, mode, dir_fd=dir_fd))
        self._require_inside(path if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink() / path)
        return process.own(process.change("open", self._open, path, flags, mode, dir_fd=dir_fd))

    def _closed(self, descriptor: int) -> None:
        if self._machine.process is not None:
            self._machine.process.disown(descriptor)
        self._close(descriptor)

    def _stream(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        process = self._machine.process
        if process is None or not set("wax+") & set(mode):
            stream = self._io_open(file, mode, buffering, *more, **options)
            if process is not None and isinstance(file, int) and options.get("closefd", True):
                process.disown(file)
            return stream

        names = ("encoding", "errors", "newline", "closefd")
        given = {**dict(zip(names, more, strict=False)), **options}
        closes = given.pop("closefd", True)
        flags = {"w": os.O_TRUNC, "a": os.O_APPEND, "x": os.O_EXCL}[mode[0]] | os.O_CREAT | os.O_WRONLY
        raw = _WatchedStream(process, file if isinstance(file, int) else os.open(file, flags, 0o666), closes=closes)
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **given)

    def _require_inside(self, path: Any) -> None:
        place = os.fspath(path)
        if not place.startswith(str(self._root)):
            self._machine.violate(f"a file outside the folders of the run is changed: {place}")


class _WatchedStream(io.RawIOBase):
    """A file that is written by `os.write`, which is watched; Python's own streams write by themselves."""

    def __init__(self, process: SimProcess, descriptor: int, *, closes: bool) -> None:
        self._process, self._descriptor, self._closes = process, descriptor, closes

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        if self._process.killed:
            return len(data)  # the stream is closed once more when it is collected
        return os.write(self._descriptor, data)

    def close(self) -> None:
        if not self.closed and self._closes and self._process.disown(self._descriptor):
            os.close(self._descriptor)
        super().close()
