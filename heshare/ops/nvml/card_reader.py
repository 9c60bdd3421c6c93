"""Client of the process that calls NVML for a run: calls with a deadline, and non-blocking readings.

A call that does not return within its deadline ends that process, and another one is started; calls to the card that
hung are repeated after growing pauses, those to other cards at once.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from heshare.ops.nvml.binding import NoReplyError, NvmlGpu
from heshare.ops.nvml.reader_process import ALL_CARDS, LARGEST, METHODS, Which, decode, encode, value_of
from heshare.shared.processes import start_module

DEADLINE_S = 5.0
"""Deadline of a call, s; a healthy card takes milliseconds."""
FIRST = 6.0
"""Deadlines for the first call to a card: Python starts, and without persistence mode the driver loads."""
PATIENCE_S = 0.2
"""How long `poll` waits for a reply, s; a later reply is returned by a later `poll`."""
_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 60.0)
_END_S = 1.0

_unreaped: list[subprocess.Popen[bytes]] = []  # a process within a system call of the driver may survive SIGKILL


@dataclass(slots=True)
class _Line:
    """State of the requests to one card.

    Attributes:
        pending: the number of the request whose reply is awaited, or None.
        arrived: the answers that have arrived and were not returned yet.
        asked_s: time of the last request, s.
        since_s: time of the first request without a reply, s.
        replied: whether the card has ever replied.
        failures: number of consecutive deadlines without a reply.
        retry_s: time of the next request at the earliest, s.
    """

    pending: int | None = None
    arrived: list[Any] | None = None
    asked_s: float = 0.0
    since_s: float | None = None
    replied: bool = False
    failures: int = 0
    retry_s: float = 0.0


class CardReader:
    """Client of the process that calls NVML, which is started at the first call. Close it, or use it in a `with`.

    Signals are handled during waits.
    """

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lines: dict[Which, _Line] = {}
        self._number = 0

    def card(self, which: Which) -> "RemoteCard":
        """Return the card with an index or UUID, without a call."""
        return RemoteCard(self, which)

    def silent_s(self, which: Which) -> float:
        """Return the time without a reply of a card, s; 0 before a deadline has passed since its last reply."""
        line = self._line(which)
        silent_s = 0.0 if line.since_s is None else time.monotonic() - line.since_s
        return silent_s if line.failures or silent_s >= self._allowed_s(line) else 0.0

    def ask(self, which: Which, name: str, *arguments: Any) -> Any:
        """Return the answer to one call.

        Raises:
            NvmlError: that of the call; `NoReplyError` after the deadline.
        """
        line = self._line(which)
        if line.pending is not None and not self._receive(line, self._deadline_s / 2):
            self._replace(line)  # a reading hangs; another call may succeed

        # Replies to a pending `poll` are stored for the next `poll`, since they may have events.
        kept, line.arrived = line.arrived, None
        try:
            self._send(line, which, [[name, *arguments]])
            allowed_s = self._allowed_s(line)
            if not self._receive(line, allowed_s):
                self._replace(line)
                raise NoReplyError(f"GPU {which}: NVML has not returned from {name} within {allowed_s:g} s.")
            answers = line.arrived
        finally:
            line.pending, line.arrived = None, kept

        assert answers is not None
        return value_of(answers[0])

    def poll(self, which: Which, calls: Sequence[Sequence[Any]], *, wait_s: float = PATIENCE_S) -> list[Any] | None:
        """Return the answers to these calls, or to those of the last poll; None if they have not arrived.

        New calls are made only after the answers of the last poll; only the first poll waits (`wait_s`).
        """
        line = self._line(which)
        if line.arrived is None:
            if line.pending is None:
                if time.monotonic() < line.retry_s:
                    return None
                self._send(line, which, calls)
                arrived = self._receive(line, 0.0 if line.failures else wait_s)
            else:
                arrived = self._receive(line, 0.0)
            if not arrived and line.pending is not None and time.monotonic() - line.asked_s >= self._allowed_s(line):
                self._replace(line)

        answers, line.arrived = line.arrived, None
        return answers

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                _kill(self._process)
        self._socket = self._process = None
        self._lines.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self, which: Which) -> _Line:
        return self._lines.setdefault(which, _Line())

    def _allowed_s(self, line: _Line) -> float:
        return self._deadline_s * (1.0 if line.replied else FIRST)

    def _start(self) -> None:
        _reap()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = start_module(
                    "heshare.ops.nvml.reader_process",
                    str(theirs.fileno()),
                    inherited=[theirs.fileno()],
                    marked=False,
                )
            except BaseException:
                ours.close()
                raise
        self._socket = ours

    def _send(self, line: _Line, which: Which, calls: Sequence[Sequence[Any]]) -> None:
        line.asked_s = time.monotonic()
        line.since_s = line.asked_s if line.since_s is None else line.since_s
        self._number += 1
        line.pending = self._number
        try:
            if self._socket is None:
                self._start()
            assert self._socket is not None
            self._socket.send(encode(self._number, which, calls))
        except OSError:  # the process has ended, or the system lacks descriptors or processes
            self._replace(line)

    def _receive(self, line: _Line, wait_s: float) -> bool:
        """Receive replies, also of other cards, until that to `line` has arrived or the time has passed."""
        until_s = time.monotonic() + wait_s
        while line.pending is not None and self._socket is not None:
            try:
                self._socket.settimeout(max(0.0, until_s - time.monotonic()))
                data = self._socket.recv(LARGEST)
            except (BlockingIOError, TimeoutError):
                return False
            except OSError:
                data = b""
            if not data:
                self._replace(line)  # its process has ended
                return False
            self._take(*decode(data))
        return line.arrived is not None

    def _take(self, number: int, which: Which, answers: list[Any]) -> None:
        line = self._line(which)
        if number == line.pending:
            line.pending, line.since_s, line.arrived = None, None, answers
            line.replied, line.failures, line.retry_s = True, 0, 0.0

    def _replace(self, hung: _Line) -> None:
        """End the process; the next call starts another one. Pending requests to other cards are sent again."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            _kill(self._process)
        self._socket = self._process = None

        for line in self._lines.values():
            line.pending = None
        hung.retry_s = time.monotonic() + _PAUSES_S[min(hung.failures, len(_PAUSES_S) - 1)]
        hung.failures += 1


class RemoteCard(NvmlGpu):
    """A card whose `NvmlGpu` methods are called in the reader process, with a deadline."""

    def __init__(self, reader: CardReader, which: Which) -> None:
        self.label, self.which, self._reader = f"GPU {which}", which, reader

    @property
    def silent_s(self) -> float:
        """Time without a reply, s."""
        return self._reader.silent_s(self.which)

    def poll(self, calls: Sequence[Sequence[Any]], *, wait_s: float = PATIENCE_S) -> list[Any] | None:
        """Return the answers to calls as `CardReader.poll`."""
        return self._reader.poll(self.which, calls, wait_s=wait_s)


def survey_cards() -> list[tuple[Any, ...]]:
    """Return a row for each card of this machine: index, UUID, the reason if it is unusable, processes on it."""
    with CardReader() as reader:
        return list(reader.ask(ALL_CARDS, "survey"))


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: RemoteCard, *arguments: Any) -> Any:
        return self._reader.ask(self.which, name, *arguments)

    method.__name__, method.__doc__ = name, getattr(NvmlGpu, name).__doc__
    return method


for _name in METHODS:
    setattr(RemoteCard, _name, _forwarded(_name))


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.kill()
    _unreaped.append(process)
    _reap()


def _reap() -> None:
    _unreaped[:] = [process for process in _unreaped if process.poll() is None]
