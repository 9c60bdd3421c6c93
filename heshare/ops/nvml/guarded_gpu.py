"""A GPU whose NVML calls have a deadline: they are made in a process of its own, which is replaced when one hangs."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from heshare.ops.nvml.binding import NoReplyError, NvmlGpu
from heshare.ops.nvml.card_process import LARGEST, METHODS, decode, encode, value_of
from heshare.shared.processes import start_module

DEADLINE_S = 5.0
"""How long a call may take, s; a healthy card takes milliseconds."""
FIRST = 3.0
"""The first call may take so many deadlines: without persistence mode it loads the driver's state."""
PATIENCE_S = 0.2
"""How long `poll` waits for a reply, s; one that is later is returned by a later `poll`."""
_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 60.0)
_END_S = 1.0

_unreaped: list[subprocess.Popen[bytes]] = []  # a process within a system call of the driver may survive SIGKILL


class GuardedGpu(NvmlGpu):
    """A GPU with the methods of `NvmlGpu`, each with a deadline. Close it, or use it in a `with`.

    Every method raises `NoReplyError` after the deadline. Signals are handled while it waits.
    """

    def __init__(self, which: int | str, deadline_s: float = DEADLINE_S) -> None:
        self.label, self._which, self._deadline_s = f"GPU {which}", which, deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._replied = False
        self._number = 0
        self._pending: int | None = None
        self._arrived: list[Any] | None = None
        self._asked_s = 0.0
        self._since_s: float | None = None
        self._attempt, self._retry_s = 0, 0.0

    @property
    def silent_s(self) -> float:
        """How long it has not replied, s; 0 as long as the deadline of no call has passed since its last reply."""
        silent_s = 0.0 if self._since_s is None else time.monotonic() - self._since_s
        return silent_s if self._attempt or silent_s >= self._allowed_s() else 0.0

    def ask(self, name: str, *arguments: Any) -> Any:
        if self._pending is not None and not self._receive(self._deadline_s / 2):
            self._replace()  # a reading hangs; another call need not
        if self._socket is None:
            self._start()
        # What a reading returned meanwhile is kept for the next `poll`: it may hold events.
        kept, self._arrived = self._arrived, None
        self._send([[name, *arguments]])
        if not self._receive(self._allowed_s()):
            self._replace()
            raise NoReplyError(f"{self.label}: NVML has not returned from {name} within {self._deadline_s:g} s.")
        answers, self._arrived = self._arrived, kept
        assert answers is not None
        return value_of(answers[0])

    def poll(self, calls: Sequence[Sequence[Any]], *, wait_s: float = PATIENCE_S) -> list[Any] | None:
        """Return the answers to these calls, made together, or to those of the last poll; None if they are not here.

        No call is made while a poll is without its answers, and only the first poll waits (`wait_s`).
        """
        if self._arrived is None:
            if self._socket is None:
                if time.monotonic() < self._retry_s:
                    return None
                self._start()
            if self._pending is None:
                self._send(calls)
                arrived = self._receive(0.0 if self._attempt else wait_s)
            else:
                arrived = self._receive(0.0)
            if not arrived and self._socket is not None and time.monotonic() - self._asked_s >= self._allowed_s():
                self._replace()
        answers, self._arrived = self._arrived, None
        return answers

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                _kill(self._process)
        self._socket = self._process = self._pending = self._arrived = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allowed_s(self) -> float:
        return self._deadline_s * (1.0 if self._replied else FIRST)

    def _start(self) -> None:
        _reap()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, contextlib.ExitStack() as exits:
                exits.callback(ours.close)
                words = (str(theirs.fileno()), str(self._which))
                self._process = start_module("heshare.ops.nvml.card_process", *words, inherited=[theirs.fileno()])
                exits.pop_all()
        except OSError:  # the system has no descriptor or process left: as one that has ended at once
            self._replace()
            return
        self._socket = ours

    def _send(self, calls: Sequence[Sequence[Any]]) -> None:
        self._asked_s = time.monotonic()
        self._since_s = self._asked_s if self._since_s is None else self._since_s
        if self._socket is None:
            return
        self._number += 1
        self._pending = self._number
        try:
            self._socket.send(encode([self._number, calls]))
        except OSError:
            self._replace()

    def _receive(self, wait_s: float) -> bool:
        until_s = time.monotonic() + wait_s
        while self._socket is not None:
            try:
                self._socket.settimeout(max(0.0, until_s - time.monotonic()))
                data = self._socket.recv(LARGEST)
            except (BlockingIOError, TimeoutError):
                return False
            except OSError:
                data = b""
            if not data:
                self._replace()  # its process has ended
                return False
            number, answers = decode(data)
            if number == self._pending:
                self._pending, self._since_s, self._arrived = None, None, answers
                self._replied, self._attempt = True, 0
                return True
        return False

    def _replace(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            _kill(self._process)
        self._socket = self._process = self._pending = None
        self._retry_s = time.monotonic() + _PAUSES_S[min(self._attempt, len(_PAUSES_S) - 1)]
        self._attempt += 1


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: GuardedGpu, *arguments: Any) -> Any:
        return self.ask(name, *arguments)

    method.__name__, method.__doc__ = name, getattr(NvmlGpu, name).__doc__
    return method


for _name in METHODS:
    setattr(GuardedGpu, _name, _forwarded(_name))


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    _unreaped.append(process)
    _reap()


def _reap() -> None:
    _unreaped[:] = [process for process in _unreaped if process.poll() is None]
