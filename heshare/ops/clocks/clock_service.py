"""The clock service: a small process with the right to set clocks, asked over a UNIX socket by runs without it.

A request is a line, `lock UUID MHZ`, `unlock UUID`, `state` or `ping`; the reply is `ok ...` or `refused KIND REASON`.
A client has the cards that it locked until its connection or its process ends; then they have their own clocks again.
"""

import contextlib
import grp
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from heshare.ops.clocks.clock_limits import ClockLimit, ClockLimits, read_limits
from heshare.ops.clocks.served_card import RefusedError, ServedCard, lock_notes
from heshare.ops.clocks.service_clock import LONGEST
from heshare.ops.nvml.binding import Nvml
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.processes import pidfd

MOST_CLIENTS, MOST_OF_A_USER = 128, 64
_IDLE_S, _SEND_S, _RETRY_S, _END_S = 60.0, 2.0, 1.0, 5.0
_SO_PEERGROUPS = 59
_FIRST_ACTIVATED = 3  # sd_listen_fds(3)


@dataclass(frozen=True, eq=False)
class Peer:
    """A client of the service, as the kernel describes it.

    Attributes:
        pid, uid: its process (0 where it is in another pid namespace) and user.
        groups: its groups.
    """

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, connection: socket.socket) -> "Peer":
        """Return the other end of a connection."""
        pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        groups = {gid}
        with contextlib.suppress(OSError):
            raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
            groups.update(struct.unpack(f"{len(raw) // 4}I", raw))
        return cls(pid, uid, frozenset(groups))

    @property
    def privileged(self) -> bool:
        """Whether it needs no group: root, and the service's own user."""
        return self.uid in (0, os.geteuid())

    def __str__(self) -> str:
        """Return it for the log."""
        return f"process {self.pid} of uid {self.uid}"


class ClockService:
    """Serves clients from a listening socket until `stop`.

    Args:
        listener: the socket.
        limits: what is allowed.
        state: the folder of the notes.
        nvml: sets the clocks.
        idle_s: how long a client without a card may be silent, s.
    """

    def __init__(
        self, listener: socket.socket, limits: ClockLimits, state: Path, nvml: Nvml, *, idle_s: float = _IDLE_S
    ) -> None:
        self._listener, self._limits, self._state, self._nvml = listener, limits, state, nvml
        self._idle_s = idle_s
        self._cards: dict[str, ServedCard] = {}
        self._turn = threading.Lock()
        self._clients: dict[Peer, tuple[socket.socket, threading.Thread]] = {}
        self._wake, self._woken = os.pipe()
        self._stopping = False

    def serve(self) -> bool:
        """Give back what an earlier service left locked, then serve; return whether every clock is given back."""
        for note in sorted(self._state.glob("GPU-*")):
            self._card(note.name)
        threading.Thread(target=self._retry, daemon=True).start()
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._stopping:
            if any(descriptor == self._listener.fileno() for descriptor, _ in poller.poll()):
                self._accept()
        return self._end()

    def stop(self) -> None:
        """Have `serve` end; for a signal handler."""
        self._stopping = True
        os.write(self._woken, b"\0")

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
            peer = Peer.of(connection)
        except OSError:
            return  # it has gone
        connection.settimeout(_SEND_S)
        with self._turn:
            same = sum(other.uid == peer.uid for other in self._clients)
            if len(self._clients) >= MOST_CLIENTS or same >= MOST_OF_A_USER:
                with connection, contextlib.suppress(OSError):
                    _send(connection, "refused busy too many clients")
                return
            thread = threading.Thread(target=self._serve_client, args=(connection, peer), daemon=True)
            self._clients[peer] = (connection, thread)
        thread.start()

    def _serve_client(self, connection: socket.socket, peer: Peer) -> None:
        _log(f"{peer} is connected")
        ended = pidfd(peer.pid)
        try:
            poller = select.poll()
            for descriptor in (connection.fileno(), *([] if ended is None else [ended])):
                poller.register(descriptor, select.POLLIN)
            rest = b""
            while True:
                quiet_ms = None if self._held_by(peer) else 1000 * self._idle_s
                ready = poller.poll(quiet_ms)
                # Its end counts, not the connection's alone: a child process may have inherited that.
                if not ready or any(descriptor == ended for descriptor, _ in ready):
                    break
                data = connection.recv(LONGEST)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _send(connection, self._reply(peer, line))
                if len(rest) > LONGEST:
                    _send(connection, f"refused request a request has at most {LONGEST} bytes")
                    break
        except OSError:
            pass  # it has gone
        finally:
            self._give_back(peer)
            if ended is not None:
                os.close(ended)
            connection.close()
            with self._turn:
                del self._clients[peer]
            _log(f"{peer} has gone")

    def _reply(self, peer: Peer, line: bytes) -> str:
        """Serve one request."""
        try:
            match line.decode("ascii", errors="replace").split():
                case ["ping"]:
                    return "ok"
                case ["state"]:
                    return "ok " + json.dumps(self._report(peer))
                case ["lock", uuid, mhz] if mhz.isdecimal() and len(mhz) <= 5:
                    self._allow(peer, uuid, int(mhz))
                    self._card(uuid).lock(peer, int(mhz))
                case ["unlock", uuid]:
                    self._allow(peer, uuid, None)
                    self._card(uuid).unlock(peer)
                case _:
                    raise RefusedError("request", "expected lock UUID MHZ, unlock UUID, state or ping")
        except RefusedError as error:
            why = " ".join(str(error).split())[: LONGEST // 2]
            _log(f"{peer}: {line[:LONGEST]!r} is refused: {why}")
            return f"refused {error.kind} {why}"
        _log(f"{peer}: {line.decode('ascii')}")
        return "ok"

    def _allow(self, peer: Peer, uuid: str, sm_mhz: int | None) -> None:
        """Check a request against the limits.

        Raises:
            RefusedError: it is not allowed.
        """
        limit = self._limits.of_card(uuid)
        if limit is None:
            raise RefusedError("permission", "the limits do not allow this card")
        if not peer.privileged and limit.group is not None and limit.group not in peer.groups:
            raise RefusedError("permission", f"only members of group {_group_name(limit)} may set this card's clock")
        if sm_mhz is not None and not limit.min_mhz <= sm_mhz <= limit.max_mhz:
            found = f"{sm_mhz} MHz; the limits allow {limit.min_mhz} to {limit.max_mhz} MHz"
            raise RefusedError("request", found)

    def _report(self, peer: Peer) -> dict[str, object]:
        with self._turn:
            held = {uuid: card.sm_mhz for uuid, card in self._cards.items() if card.held}
        limits = self._limits.of_groups(set(peer.groups), privileged=peer.privileged)
        return {"limits": {uuid: asdict(limit) for uuid, limit in limits.items()}, "held": held}

    def _card(self, uuid: str) -> ServedCard:
        with self._turn:
            known = self._cards.get(uuid)
        if known is not None:
            return known
        if not (self._state / uuid).exists():
            self._require_present(uuid)  # outside the turn: a sick card may hang here
        with self._turn:
            return self._cards.setdefault(uuid, ServedCard(lambda: self._nvml.card(uuid), self._state / uuid))

    def _require_present(self, uuid: str) -> None:
        try:
            self._nvml.card(uuid)
        except DeviceError as error:
            raise RefusedError("card", str(error)) from error

    def _all_cards(self) -> list[ServedCard]:
        with self._turn:
            return list(self._cards.values())

    def _held_by(self, peer: Peer) -> bool:
        return any(card.is_of(peer) for card in self._all_cards())

    def _give_back(self, peer: Peer) -> None:
        for card in self._all_cards():
            card.give_back(peer)

    def _retry(self) -> None:
        """Unlock again and again what could not be unlocked when its client went."""
        while not self._stopping:
            for card in self._all_cards():
                if card.changed and not card.held:
                    # A card that hangs must not hold up the others.
                    threading.Thread(target=card.retry, daemon=True).start()
            time.sleep(_RETRY_S)

    def _end(self) -> bool:
        self._listener.close()
        with self._turn:
            clients = list(self._clients.values())
        for connection, _ in clients:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + _END_S
        for _, thread in clients:
            thread.join(max(0.0, until - time.monotonic()))
        return all(card.retry() for card in self._all_cards())


def run_clock_service(path: Path, *, group: str | None, mode: int, limits: Path, state: Path) -> bool:
    """Run the clock service until SIGTERM or SIGINT; return whether every clock is given back.

    Args:
        path: its socket; with socket activation (`LISTEN_FDS`) systemd's is used instead, with its owner and mode.
        group: the group that owns the socket; None leaves it to the process.
        mode: of the socket.
        limits: the file of `read_limits`.
        state: the folder of its notes.

    Raises:
        InputError: limits, group or socket cannot be used.
        DeviceError: no NVML, or another service is running.
    """
    allowed = read_limits(limits)
    turn = lock_notes(state)
    activated = _activated()
    listener = activated or _listen(path, group, mode)
    try:
        with Nvml() as nvml:
            service = ClockService(listener, allowed, state, nvml)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: service.stop())
            listener.setblocking(False)
            _log(f"listens at {listener.getsockname()}")
            return service.serve()
    finally:
        listener.close()
        if activated is None:
            path.unlink(missing_ok=True)
        turn.close()


def _listen(path: Path, group: str | None, mode: int) -> socket.socket:
    """Return a socket that listens at a path, with this group and mode from its beginning."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        gid = -1 if group is None else grp.getgrnam(group).gr_gid
        if path.is_socket():
            path.unlink()  # of a service that was killed: the folder of the notes is locked by this one
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        os.chown(path, -1, gid)
        path.chmod(mode)
        listener.listen(16)
    except (OSError, KeyError) as error:
        listener.close()
        found = f"a socket that cannot be made ({error})"
        raise InputError(found, "a path and a group that can be used", "Choose others.", file=str(path)) from error
    return listener


def _activated() -> socket.socket | None:
    """Return the socket that systemd listens at for this service, if it does.

    Raises:
        InputError: it is no listening UNIX socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.pop("LISTEN_FDS", "")
    given = socket.socket(fileno=_FIRST_ACTIVATED)
    os.set_inheritable(_FIRST_ACTIVATED, False)
    listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if count != "1" or given.family != socket.AF_UNIX or not listens:
        raise InputError(f"LISTEN_FDS={count}", "one listening UNIX socket", "Correct the .socket unit.")
    return given


def _send(connection: socket.socket, reply: str) -> None:
    connection.sendall(reply.encode() + b"\n")


def _group_name(limit: ClockLimit) -> str:
    try:
        return grp.getgrgid(limit.group or 0).gr_name
    except KeyError:
        return str(limit.group)


def _log(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"heshare clock-service: {text}\n")
        sys.stderr.flush()
