"""The clock service: a small process with the right to set clocks, asked over a UNIX socket by runs.

A request is a line, `lock UUID MHZ`, `unlock UUID`, `state` or `ping`; the reply is `ok ...` or `refused KIND REASON`.
A client has the cards that it locked until its connection or its process ends; then they have their own clocks again.

`heshare clock-service` serves every run of a machine. A run that has the right itself, where there is no such service,
starts `python -m heshare.ops.clocks.clock_service` for itself, with a socket that nobody else has.
"""

import contextlib
import grp
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from heshare.ops.clocks.clock_limits import ANY_CARD, MOST_MHZ, ClockLimit, ClockLimits, read_limits
from heshare.ops.clocks.clock_notes import note_of, notes
from heshare.ops.clocks.served_card import RefusedError, ServedCard
from heshare.ops.clocks.service_clock import LONGEST
from heshare.ops.nvml.binding import Nvml, NvmlGpu
from heshare.shared import signals
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.file_lock import FileLock, hold
from heshare.shared.processes import pidfd

MOST_CLIENTS, MOST_OF_A_USER, _OF_ROOT = 128, 24, 8
_WITHOUT_CARD_S, _SEND_S, _RETRY_S, _END_S = 10.0, 2.0, 1.0, 5.0
_MOST_REQUESTS, _MOST_LINES = 20, 50
"""Requests of a client, and lines of the log, in a second."""
_LONGEST_RETRY_S = 60.0
_LONGEST_REASON = 1000
_SO_PEERGROUPS = 59
_FIRST_ACTIVATED = 3  # sd_listen_fds(3)


@dataclass(frozen=True, eq=False)
class Peer:
    """A client of the service, as the kernel describes it; `pid` is 0 where it is in another pid namespace."""

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, connection: socket.socket) -> "Peer":
        pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        groups = {gid}
        with contextlib.suppress(OSError):
            raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
            groups.update(struct.unpack(f"{len(raw) // 4}I", raw))
        return cls(pid, uid, frozenset(groups))

    @property
    def privileged(self) -> bool:
        return self.uid in (0, os.geteuid())

    def __str__(self) -> str:
        return f"process {self.pid} of uid {self.uid}"


class ClockService:
    def __init__(self, limits: ClockLimits, folder: Path, open_card: Callable[[str], NvmlGpu]) -> None:
        self._limits, self._folder, self._open_card = limits, folder, open_card
        self._cards: dict[str, ServedCard] = {}
        self._turn = threading.Lock()
        self._clients: dict[Peer, tuple[socket.socket, threading.Thread]] = {}
        self._wake, self._woken = os.pipe()
        self._stopping = False

    def serve(self, listener: socket.socket) -> bool:
        """Unlock what an earlier service left locked, then serve; return whether every clock is given back."""
        for note in notes(self._folder):
            self._known(note.stem.removeprefix("gpu-"))
        threading.Thread(target=self._retry, daemon=True).start()
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._stopping:
            if any(descriptor == listener.fileno() for descriptor, _ in poller.poll()):
                self._accept(listener)
        listener.close()
        self._end_clients()
        return self.retry()

    def stop(self) -> None:
        self._stopping = True
        os.write(self._woken, b"\0")

    def retry(self) -> bool:
        """Unlock what could not be unlocked when its client went; return whether every clock is given back."""
        in_order = [not card.held and card.retry() for card in self._all_cards()]
        return all(in_order)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
            peer = Peer.of(connection)
        except OSError:
            return  # it has gone
        with self._turn:
            same = sum(other.uid == peer.uid for other in self._clients)
            most = MOST_CLIENTS if peer.privileged else MOST_CLIENTS - _OF_ROOT
            if len(self._clients) >= most or same >= MOST_OF_A_USER:
                connection.settimeout(_SEND_S)
                with connection, contextlib.suppress(OSError):
                    _send(connection, "refused busy too many clients")
                return
            thread = threading.Thread(target=self._serve_and_forget, args=(connection, peer), daemon=True)
            self._clients[peer] = (connection, thread)
        thread.start()

    def _serve_and_forget(self, connection: socket.socket, peer: Peer) -> None:
        self.serve_client(connection, peer)
        with self._turn:
            del self._clients[peer]

    def serve_client(self, connection: socket.socket, peer: Peer) -> None:
        """Serve one client until its connection or its process ends; then give its cards back."""
        _log(f"{peer} is connected")
        connection.settimeout(_SEND_S)
        ended = pidfd(peer.pid)
        try:
            poller = select.poll()
            for descriptor in (connection.fileno(), *([] if ended is None else [ended])):
                poller.register(descriptor, select.POLLIN)
            rest, since_s, count = b"", 0.0, 0
            until_s = time.monotonic() + _WITHOUT_CARD_S
            while True:
                quiet_ms = None if self._waits_for(peer) else 1000 * max(0.0, until_s - time.monotonic())
                ready = poller.poll(quiet_ms)
                # Its end counts, not the connection's alone: a child process may have inherited that.
                late = quiet_ms == 0.0
                if late or not ready or any(descriptor == ended for descriptor, _ in ready):
                    break
                data = connection.recv(LONGEST)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _send(connection, self._reply(peer, line))
                    count += 1
                    if count % _MOST_REQUESTS == 0:
                        time.sleep(max(0.0, since_s + 1.0 - time.monotonic()))
                        since_s = time.monotonic()
                if len(rest) > LONGEST:
                    _send(connection, f"refused request a request has at most {LONGEST} bytes")
                    break
        except OSError:
            pass  # it has gone
        finally:
            for card in self._all_cards():
                card.give_back(peer)
            if ended is not None:
                os.close(ended)
            connection.close()
            _log(f"{peer} has gone")

    def _reply(self, peer: Peer, line: bytes) -> str:
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
                    if uuid not in self._cards and not note_of(uuid, self._folder).exists():
                        raise RefusedError("request", "this client does not have the card")
                    self._card(uuid).unlock(peer)
                case _:
                    raise RefusedError("request", "expected lock UUID MHZ, unlock UUID, state or ping")
        except RefusedError as error:
            why = " ".join(str(error).split())[:_LONGEST_REASON]
            _log(f"{peer}: {line[:LONGEST]!r} is refused: {why}")
            return f"refused {error.kind} {why}"
        if line != b"ping":
            _log(f"{peer}: {line.decode('ascii')}")
        return "ok"

    def _allow(self, peer: Peer, uuid: str, sm_mhz: int | None) -> None:
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
        if known is None and not note_of(uuid, self._folder).exists():
            try:
                self._open_card(uuid)  # outside the turn: a sick card may hang here
            except DeviceError as error:
                raise RefusedError("card", str(error)) from error
        return known or self._known(uuid)

    def _known(self, uuid: str) -> ServedCard:
        with self._turn:
            limit = self._limits.of_card(uuid)
            site_mhz = None if limit is None else limit.site_mhz
            return self._cards.setdefault(uuid, ServedCard(uuid, self._open_card, self._folder, site_mhz))

    def _all_cards(self) -> list[ServedCard]:
        with self._turn:
            return list(self._cards.values())

    def _waits_for(self, peer: Peer) -> bool:
        return peer not in self._clients or any(card.is_of(peer) for card in self._all_cards())

    def _retry(self) -> None:
        while not self._stopping:
            self.retry()
            time.sleep(_RETRY_S)

    def _end_clients(self) -> None:
        with self._turn:
            clients = list(self._clients.values())
        for connection, _ in clients:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + _END_S
        for _, thread in clients:
            thread.join(max(0.0, until - time.monotonic()))


def serve_run(descriptor: int, folder: Path) -> None:
    """Serve the run at the other end of a socket until it ends; then go on until every clock is given back."""
    signals.ignore()  # the end of the run ends it
    nvml = cache(Nvml)  # an error is that of a request, and opening is tried again at the next
    limits = ClockLimits({ANY_CARD: ClockLimit(1, MOST_MHZ, None)})
    service = ClockService(limits, folder, lambda uuid: nvml().card(uuid))
    with socket.socket(fileno=descriptor) as connection:
        service.serve_client(connection, Peer.of(connection))
    pause_s = _RETRY_S
    while not service.retry():
        time.sleep(pause_s)
        pause_s = min(2.0 * pause_s, _LONGEST_RETRY_S)


def run_clock_service(path: Path, *, group: str | None, mode: int, limits: Path, state: Path) -> bool:
    """Run the clock service until SIGTERM or SIGINT; return whether every clock is given back.

    With socket activation (`LISTEN_FDS`) systemd's socket is used instead of `path`, with its owner and mode.
    """
    allowed = read_limits(limits)
    turn = _lock_notes(state)
    activated = _activated()
    listener = activated or _listen(path, group, mode)
    try:
        with Nvml() as nvml:
            service = ClockService(allowed, state, nvml.card)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: service.stop())
            listener.setblocking(False)
            _log(f"listens at {listener.getsockname()}")
            return service.serve(listener)
    finally:
        listener.close()
        if activated is None:
            path.unlink(missing_ok=True)
        turn.close()


def _lock_notes(folder: Path) -> FileLock:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            raise DeviceError(f"{folder}: another user can write here. Choose another --state, with mode 700.")
        return hold(folder / "lock")
    except BlockingIOError as error:
        raise DeviceError(f"{folder}: another clock service uses this folder. End it first.") from error
    except OSError as error:
        raise DeviceError(f"{folder}: cannot be used for notes ({error.strerror}). Choose another --state.") from error


def _listen(path: Path, group: str | None, mode: int) -> socket.socket:
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


_logged = [0, 0]  # in this second, and how many lines


def _log(text: str) -> None:
    now_s = int(time.monotonic())
    _logged[:] = [now_s, _logged[1] + 1 if _logged[0] == now_s else 1]
    if _logged[1] > _MOST_LINES:
        return
    text += ", and more that is left out" if _logged[1] == _MOST_LINES else ""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"heshare clock-service: {text}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    serve_run(int(sys.argv[1]), Path(sys.argv[2]))
