"""Pipes, sockets, processes and threads of the machine in memory, as the modules of `ops` use them."""

from __future__ import annotations

import errno
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from support.simulator.disk import USER, failure
from support.simulator.kernel import Machine, Process, Thread, Waitable

_PEEK = int(socket.MSG_PEEK)


class End(Waitable):
    """One end of a pipe or socket; `on_data` and `on_close` are the program behind it where that is modelled."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine, self.references = machine, 0
        self.inbox: list[bytes] = []
        self.peer: End | None = None
        self.owner: Process | None = None
        self.shut = False
        self.on_data: Callable[[bytes], None] | None = None
        self.on_close: Callable[[], None] | None = None

    def ready(self) -> bool:
        return bool(self.inbox) or self.ended

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self.shut or self.peer is None or self.peer.shut

    def closed(self) -> None:
        """End it; the other end hears of it."""
        if not self.shut:
            self.shut = True
            self.wake()
            if self.peer is not None:
                self.peer.wake()
                if self.peer.on_close is not None:
                    self.machine.at(self.machine.now, self.peer.on_close)

    def write(self, data: bytes) -> int:
        self.machine.alive()
        if self.shut or self.peer is None or self.peer.shut:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if self.peer.on_data is not None:
            self.peer.on_data(data)
        else:
            self.peer.inbox.append(data)
            self.peer.wake()
        return len(data)

    def read(self, size: int) -> bytes:
        """Return what has come, once something has; nothing at the end."""
        self.machine.wait(self)
        return self.take(size)

    def take(self, size: int, *, peek: bool = False) -> bytes:
        if not self.inbox:
            return b""
        data = self.inbox[0]
        if not peek:
            self.inbox[:1] = [data[size:]] if len(data) > size else []
        return data[:size]


def pair(machine: Machine) -> tuple[End, End]:
    one, other = End(machine), End(machine)
    one.peer, other.peer = other, one
    return one, other


def pipe(machine: Machine) -> tuple[End, End]:
    return pair(machine)


class Handle:
    """A pipe's end as a file object, or as a socket."""

    def __init__(self, machine: Machine, number: int) -> None:
        self._machine, self._number, self._timeout_s = machine, number, None

    @property
    def closed(self) -> bool:
        return self._number < 0

    @property
    def _end(self) -> End:
        self._machine.alive()
        if self._number < 0:
            raise ValueError("closed")
        try:
            end: End = self._machine.process.files[self._number]
        except KeyError:
            raise failure(errno.EBADF) from None
        return end

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        self._machine.alive()
        if self._number >= 0:
            number, self._number = self._number, -1
            if number in self._machine.process.files:
                self._machine.process.close(number)

    def write(self, data: bytes) -> int:
        return self._end.write(bytes(data))

    def flush(self) -> None:
        pass

    def readline(self) -> bytes:
        end, line = self._end, b""
        while not line.endswith(b"\n") and (piece := end.read(1 << 16)):
            line += piece
        return line

    def read(self) -> bytes:
        end, content = self._end, b""
        while piece := end.read(1 << 16):
            content += piece
        return content

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # As a socket

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s  # type: ignore[assignment]

    def setblocking(self, blocking: bool) -> None:
        self._timeout_s = None if blocking else 0.0  # type: ignore[assignment]

    def recv(self, size: int, flags: int = 0) -> bytes:
        end = self._end
        if not self._machine.wait(end, self._timeout_s):
            raise BlockingIOError if self._timeout_s == 0 else TimeoutError("timed out")
        return end.take(size, peek=bool(int(flags) & _PEEK))

    def send(self, data: bytes) -> int:
        return self._end.write(data)

    def sendall(self, data: bytes) -> None:
        self._end.write(data)

    def shutdown(self, _: int) -> None:
        self._end.closed()

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        if option != socket.SO_PEERCRED:
            raise failure(errno.ENOPROTOOPT)
        peer = self._end.peer
        assert peer is not None
        assert peer.owner is not None
        return struct.pack("3i", peer.owner.pid, USER, USER)


class SimSocket:
    """What `socket` is."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        if name.isupper():
            setattr(self, name, getattr(socket, name))
            return getattr(socket, name)
        raise AttributeError(f"the machine in memory has no socket.{name}")

    def socketpair(self, *_: Any) -> tuple[Handle, Handle]:
        self._machine.alive()
        ends = pair(self._machine)
        for end in ends:
            end.owner = self._machine.process
        one, other = (Handle(self._machine, self._machine.number(self._machine.process, end)) for end in ends)
        return one, other

    def socket(self, *_: Any, fileno: int = -1) -> Handle:
        return Handle(self._machine, fileno)


class SimSelect:
    """What `select` is, and `multiprocessing.connection` with its `wait`."""

    POLLIN = select.POLLIN

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def poll(self) -> SimPoll:
        return SimPoll(self._machine)

    def wait(self, numbers: Iterable[int], timeout_s: float | None = None) -> list[int]:
        return _ready(self._machine, list(numbers), timeout_s)


class SimPoll:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._numbers = machine, list[int]()

    def register(self, what: Any, _: int) -> None:
        self._numbers.append(what if isinstance(what, int) else what.fileno())

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        return [(number, select.POLLIN) for number in _ready(self._machine, self._numbers, timeout_s)]


def _ready(machine: Machine, numbers: Sequence[int], timeout_s: float | None) -> list[int]:
    machine.alive()
    files = machine.process.files
    until_s = None if timeout_s is None else machine.now + max(0.0, timeout_s)
    while True:
        ready = [number for number in numbers if number not in files or files[number].ready()]
        if ready or (until_s is not None and machine.now >= until_s):
            return ready
        machine.block([files[number] for number in numbers], until_s)


class SimThread:
    """What `threading.Thread` is."""

    machine: Machine

    def __init__(
        self,
        *,
        target: Callable[..., object],
        name: str = "",
        daemon: bool = False,
        args: Sequence[Any] = (),
    ) -> None:
        self._target, self._arguments = target, args
        self._thread: Thread | None = None

    def start(self) -> None:
        self.machine.alive()
        self._thread = self.machine.process.run(lambda: self._target(*self._arguments))

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.done

    def join(self, timeout_s: float | None = None) -> None:
        assert self._thread is not None
        self.machine.wait(self._thread, timeout_s)


class SimLock(Waitable):
    """What `threading.Lock` is."""

    machine: Machine

    def __init__(self) -> None:
        super().__init__()
        self._held: Process | None = None

    def ready(self) -> bool:
        return self._held is None or not self._held.alive

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self.machine.wait(self, None if timeout < 0 else timeout):
            return False
        self._held = self.machine.process
        return True

    def release(self) -> None:
        self._held = None
        self.wake()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition(SimLock):
    """What `threading.Condition` is."""

    def __init__(self) -> None:
        super().__init__()
        self._news = _News()

    def notify(self) -> None:
        self._news.wake()

    def wait(self, timeout_s: float | None = None) -> None:
        self.release()
        self.machine.block([self._news], None if timeout_s is None else self.machine.now + timeout_s)
        self.acquire()


class _News(Waitable):
    def ready(self) -> bool:
        return False


class SimThreading:
    """What `threading` is."""

    Thread, Lock, Condition = SimThread, SimLock, SimCondition
    current_thread, main_thread = staticmethod(threading.current_thread), staticmethod(threading.main_thread)


Program = Callable[["Popen"], None]


class Popen:
    """What `subprocess.Popen` is: `programs` has what starts, by module, script or name."""

    machine: Machine
    programs: Mapping[str, Program]
    begin: Callable[[str], None]

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        **_: Any,
    ) -> None:
        machine = self.machine
        machine.alive()
        self.args = [str(word) for word in arguments]
        words = self.args
        name = words[2] if words[1:2] == ["-m"] else words[3] if words[1:2] == ["-I"] else words[0]
        name = name.rpartition("/")[2].removesuffix(".py")
        type(self).begin(name)
        parent = machine.process
        self.process = Process(machine, name.rpartition(".")[2], dict(env), parent)
        self.pid = self.process.pid
        for number in pass_fds:
            self.process.files[number] = parent.files[number]
            parent.files[number].references += 1
        self.stdin = self._pipe("stdin", parent) if stdin == subprocess.PIPE else None
        self.stdout = self._pipe("stdout", parent) if stdout == subprocess.PIPE else None
        self.output = parent.files[stdout].inode if stdout in parent.files else None
        self.programs[name](self)

    def _pipe(self, name: str, parent: Process) -> Handle:
        ours, theirs = pair(self.machine)
        theirs.owner = self.process
        self.process.streams[name] = Handle(self.machine, self.machine.number(self.process, theirs))
        return Handle(self.machine, self.machine.number(parent, ours))

    @property
    def returncode(self) -> int | None:
        return self.process.returncode if self.process.reaped else None

    def poll(self) -> int | None:
        self.machine.alive()
        if not self.process.alive:
            self.process.reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.machine.wait(self.process, timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.process.reap()
        assert self.process.returncode is not None
        return self.process.returncode

    def kill(self) -> None:
        self.machine.alive()
        if self.process.alive:
            self.process.signal(signal.SIGKILL)

    def communicate(self, text: bytes, timeout: float) -> None:
        assert self.stdin is not None
        try:
            if text:
                self.stdin.write(text)
        except BrokenPipeError:
            pass
        self.stdin.close()
        self.wait(timeout)

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


class SimSubprocess:
    """What `subprocess` is."""

    PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
    TimeoutExpired, CompletedProcess = subprocess.TimeoutExpired, subprocess.CompletedProcess
    Popen = Popen
