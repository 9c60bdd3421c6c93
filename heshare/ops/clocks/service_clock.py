"""The client of HeShare's clock service: a connection that holds one card, and whose end gives the clock back."""

import contextlib
import json
import select
import socket
import time
from pathlib import Path
from typing import Any

from heshare.ops.nvml.binding import NoPermissionError, NvmlError

SERVICE_SOCKET = "/run/heshare/clocks.sock"
"""Where the clock service listens unless told otherwise."""
LONGEST = 512
"""Most bytes of a request or a reply, with its newline."""
_REPLY_S = 5.0
_CONNECT_S = 1.0
_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class ClockServiceLostError(NvmlError):
    """The clock service does not answer; the card has its own clock, since the service gives back what it set."""


class ServiceClock:
    """The clock of one card, set by the clock service: a `ClockLock` that needs no note and no rights.

    The card is this client's from the first lock until `close`.

    Args:
        uuid: the card.
        path: the service's socket.
    """

    def __init__(self, uuid: str, path: Path) -> None:
        self._uuid, self._path = uuid, path
        self._socket: socket.socket | None = None
        self._busy = False
        self._wanted_mhz: int | None = None
        self._failures, self._retry_at = 0, 0.0

    def lock(self, sm_mhz: int) -> None:
        """Lock the clock, MHz; after the loss of the service `news` does it again once that is back.

        Raises:
            ClockServiceLostError: the service does not answer.
            NvmlError: it refuses, or the card does.
        """
        try:
            self._request(f"lock {self._uuid} {sm_mhz}")
        except ClockServiceLostError:
            self._wanted_mhz = sm_mhz
            raise
        self._wanted_mhz = sm_mhz

    def release(self) -> None:
        """Leave the clock to the card.

        Raises:
            NvmlError: the service or the card refuses.
        """
        self._wanted_mhz = None
        if self._busy:
            self.close()  # called by a signal amid a request: the end of the connection gives the clock back
        if self._socket is None:
            return
        try:
            self._request(f"unlock {self._uuid}")
        except ClockServiceLostError:
            self.close()  # what it had set is given back by itself, by the service or at its next start

    def news(self) -> str:
        """Return a line when the service was lost or is back; then the last clock requested is locked again."""
        if self._wanted_mhz is None:
            return ""
        if self._socket is not None:
            if not self._has_ended(self._socket):
                return ""
            self._lose()
            return "the clock service was lost: the card has its own clock until it is back"
        if time.monotonic() < self._retry_at:
            return ""
        try:
            self._request(f"lock {self._uuid} {self._wanted_mhz}")
        except NvmlError:
            self._pause()
            return ""
        return f"the clock service is back: clock {self._wanted_mhz} MHz is locked again"

    def close(self) -> None:
        """End the connection; the service gives the clock back. May be repeated."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # also where a child process has inherited it
            connection.close()

    def _request(self, line: str) -> str:
        self._busy = True
        try:
            if self._socket is None or self._has_ended(self._socket):
                self.close()
                self._socket = _connect(self._path)
            reply = _exchange(self._socket, line)
        except OSError as error:
            self._lose()
            reason = "no reply" if isinstance(error, TimeoutError) else error.strerror or str(error)
            kind = NoPermissionError if isinstance(error, PermissionError) else ClockServiceLostError
            raise kind(
                f"GPU {self._uuid}: the clock service does not answer at {self._path}: {reason}. Start "
                "heshare-clocks.service, or ask its administrator for access."
            ) from error
        finally:
            self._busy = False
        self._failures = 0
        return _checked(reply, f"GPU {self._uuid}")

    def _lose(self) -> None:
        self.close()
        self._failures, self._retry_at = 0, time.monotonic()

    def _pause(self) -> None:
        self._retry_at = time.monotonic() + _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1

    @staticmethod
    def _has_ended(connection: socket.socket) -> bool:
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        try:
            return bool(poller.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True


def service_state(path: Path) -> dict[str, Any]:
    """Return what the clock service at a socket allows this user: limits by UUID (or `*`), MHz, and who is held.

    Raises:
        NvmlError: it does not answer, or refuses.
    """
    try:
        with _connect(path) as connection:
            reply = _exchange(connection, "state")
    except OSError as error:
        raise ClockServiceLostError(f"The clock service does not answer at {path}: {error}.") from error
    state: dict[str, Any] = json.loads(_checked(reply, "clock service"))
    return state


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(_CONNECT_S)
        connection.connect(str(path))
        connection.settimeout(_REPLY_S)
    except BaseException:
        connection.close()
        raise
    return connection


def _exchange(connection: socket.socket, line: str) -> str:
    """Send a request and return the reply.

    Raises:
        OSError: the connection has ended, or there is no reply in time.
    """
    connection.sendall(line.encode() + b"\n")
    reply = b""
    until = time.monotonic() + _REPLY_S
    while not reply.endswith(b"\n"):
        if time.monotonic() > until or len(reply) > 64 * LONGEST:
            raise TimeoutError
        received = connection.recv(64 * LONGEST)
        if not received:
            raise ConnectionResetError(None, "it has closed the connection")
        reply += received
    return reply.decode(errors="replace").strip()


def _checked(reply: str, label: str) -> str:
    """Return what follows `ok`.

    Raises:
        NvmlError: it was refused.
    """
    word, _, rest = reply.partition(" ")
    if word == "ok":
        return rest
    kind, _, why = rest.partition(" ")
    raise (NoPermissionError if kind == "permission" else NvmlError)(f"{label}: the clock service refuses: {why}")
