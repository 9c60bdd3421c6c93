"""The client of the clock service: a connection that holds one card, and whose end gives the clock back."""

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from heshare.ops.nvml.binding import NoPermissionError, NvmlError
from heshare.ops.state.held_note import state_folder
from heshare.shared.errors import DeviceError
from heshare.shared.processes import start_module

SERVICE_SOCKET = "/run/heshare/clocks.sock"
"""Where the clock service of a machine listens unless told otherwise."""
LONGEST = 512
"""Most bytes of a request, with its newline."""
_REPLY_S = 5.0
_CONNECT_S = 1.0
_START_S = 60.0
"""How long the start of a service of one's own may take, s."""
_END_S = 1.0
_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_LONGEST_REPLY = 64 * LONGEST

_unreaped: list[subprocess.Popen[bytes]] = []  # services of this process that go on trying to unlock a clock


def service_socket() -> Path | None:
    """Return the socket of the machine's clock service: what `HESHARE_CLOCKS` names, or the usual one, if it is there.

    None without a service: then a run starts one of its own, which takes root or CAP_SYS_ADMIN.
    """
    named = os.environ.get("HESHARE_CLOCKS")
    return Path(named or SERVICE_SOCKET) if named or Path(SERVICE_SOCKET).is_socket() else None


def clock_control(*, admin: bool) -> tuple[bool, str]:
    """Return whether clocks can be set here, and a sentence on how or why not."""
    path = service_socket()
    if path is not None:
        try:
            limits = service_state(path)["limits"]
        except NvmlError as error:
            return False, f"Clocks cannot be locked: {error}"
        ranges = [f"{uuid} {one['min_mhz']} to {one['max_mhz']} MHz" for uuid, one in limits.items()]
        if not ranges:
            return False, f"Clocks cannot be locked: the clock service at {path} allows this user no card."
        return True, f"Clocks can be locked by the clock service at {path}: {', '.join(ranges)}."
    if admin:
        return True, (
            "Clocks can be locked (CAP_SYS_ADMIN), if the driver agrees: `heshare profile --clocks` records them too. "
            "A clock service (`heshare clock-service`) would do it for a plain user."
        )
    return False, (
        "Clocks cannot be locked: it needs a clock service (`heshare clock-service`), root or CAP_SYS_ADMIN (docker: "
        "--cap-add=SYS_ADMIN). Points at the card's own clock can be measured."
    )


class ClockLeftLockedError(DeviceError):
    """A clock could not be given back."""


class ClockServiceLostError(NvmlError):
    """The clock service does not answer; the card has its own clock, since the service gives back what it set."""


class ServiceClock:
    """The SM clock of one card, set by the clock service. The card is this client's from the first lock until `close`.

    A `path` of None is a service of this process's own, started at the first lock.
    """

    def __init__(self, uuid: str, path: Path | None) -> None:
        self._uuid, self._path = uuid, path
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = self._has = False
        self._wanted_mhz: int | None = None
        self._failures, self._retry_at = 0, 0.0

    def lock(self, sm_mhz: int) -> None:
        """Lock the clock, MHz; after the loss of the service `news` does it again once that is back."""
        try:
            self._request(f"lock {self._uuid} {sm_mhz}")
        except ClockServiceLostError:
            self._wanted_mhz, self._has = sm_mhz, True
            raise
        self._wanted_mhz, self._has = sm_mhz, True

    def release(self) -> None:
        self._wanted_mhz = None
        if self._busy:
            self._disconnect()  # called by a signal amid a request: the end of the connection gives the clock back
            return
        lost = self._socket is None or self._has_ended(self._socket)
        if self._path is not None and lost:
            self._disconnect()  # that service gives back what it had set, at its next start if it was killed
            return
        if not self._has:
            return
        # An own service that was killed is started again, so that it unlocks what that had locked.
        try:
            self._request(f"unlock {self._uuid}")
        except ClockServiceLostError as error:
            self._disconnect()
            if isinstance(error.__cause__, TimeoutError):
                raise
            if self._path is None:
                self._request(f"unlock {self._uuid}")
        self._has = False

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
        """Leave the clock to the card for good and end the connection. May be repeated."""
        try:
            self.release()
        except NvmlError as error:
            raise ClockLeftLockedError(
                f"GPU {self._uuid}: its clock could not be given back and may stay locked ({error}) The clock service "
                "tries again until it can; `heshare restore` does so at once."
            ) from error
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # also where a child process has inherited it
            connection.close()
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                _unreaped.append(process)

    def _request(self, line: str) -> str:
        self._busy = True
        try:
            if self._socket is None or self._has_ended(self._socket):
                self._disconnect()
                self._connect()
            assert self._socket is not None
            reply = _exchange(self._socket, line)
        except OSError as error:
            self._lose()
            reason = "no reply" if isinstance(error, TimeoutError) else error.strerror or str(error)
            kind = NoPermissionError if isinstance(error, PermissionError) else ClockServiceLostError
            raise kind(f"GPU {self._uuid}: the clock service does not answer{self._hint(reason)}") from error
        finally:
            self._busy = False
        self._failures = 0
        return _checked(reply, f"GPU {self._uuid}")

    def _connect(self) -> None:
        if self._path is not None:
            self._socket = _connect(self._path)
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start_service(theirs)
            except BaseException:
                self._disconnect()
                raise
        self._socket.settimeout(_START_S)
        _exchange(self._socket, "ping", _START_S)
        self._socket.settimeout(_REPLY_S)

    def _hint(self, reason: str) -> str:
        if self._path is None:
            return f", which this process started for itself: {reason}. Check this Python and its nvidia-ml-py."
        return f" at {self._path}: {reason}. Start heshare-clocks.service, or ask its administrator for access."

    def _lose(self) -> None:
        self._disconnect()
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
    """Return what the clock service at a socket allows this user: limits by UUID (or `*`), MHz, and who is held."""
    try:
        with _connect(path) as connection:
            reply = _exchange(connection, "state")
    except OSError as error:
        raise ClockServiceLostError(f"The clock service does not answer at {path}: {error}.") from error
    state: dict[str, Any] = json.loads(_checked(reply, "clock service"))
    return state


def _start_service(connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start a clock service for the other end of a connection; it outlives this process until its clock is unlocked."""
    _unreaped[:] = [process for process in _unreaped if process.poll() is None]
    words = (str(connection.fileno()), str(state_folder().absolute()))
    return start_module("heshare.ops.clocks.clock_service", *words, inherited=[connection.fileno()], marked=False)


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


def _exchange(connection: socket.socket, line: str, reply_s: float = _REPLY_S) -> str:
    connection.sendall(line.encode() + b"\n")
    reply = b""
    until = time.monotonic() + reply_s
    while not reply.endswith(b"\n"):
        if time.monotonic() > until or len(reply) > _LONGEST_REPLY:
            raise TimeoutError
        received = connection.recv(_LONGEST_REPLY)
        if not received:
            raise ConnectionResetError(None, "it has closed the connection")
        reply += received
    return reply.decode(errors="replace").strip()


def _checked(reply: str, label: str) -> str:
    word, _, rest = reply.partition(" ")
    if word == "ok":
        return rest
    kind, _, why = rest.partition(" ")
    raise (NoPermissionError if kind == "permission" else NvmlError)(f"{label}: the clock service refuses: {why}")
