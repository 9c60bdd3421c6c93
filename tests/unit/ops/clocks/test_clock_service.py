"""The clock service as a real process over the stand-in for NVML: verbs, limits, and clocks that are given back."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.clock_service import LIMITS, ServiceProcess
from support.kill_drill import UUID
from support.waiting import until

from heshare.ops.clocks import clock_limits, clock_service
from heshare.ops.clocks.service_clock import ClockServiceLostError, ServiceClock, service_state
from heshare.ops.nvml.binding import NvmlError


@pytest.fixture
def service(doubles) -> Iterator[ServiceProcess]:
    """A service that runs; `doubles.fake` shows the card's clock."""
    one = ServiceProcess(doubles.folder / "s").begin()
    yield one
    if one.process is not None and one.process.poll() is None:
        one.kill()


def asked(service: ServiceProcess, *lines: str) -> list[str]:
    """The replies to lines, on a connection of their own."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10.0)
        client.connect(str(service.socket))
        stream = client.makefile("rw", encoding="utf-8", newline="\n")
        replies = []
        for line in lines:
            stream.write(line + "\n")
            stream.flush()
            replies.append(stream.readline().strip())
        return replies


def locks(clock: ServiceClock, sm_mhz: int) -> bool:
    with contextlib.suppress(NvmlError):
        clock.lock(sm_mhz)
        return True
    return False


def test_service_locks_unlocks_and_gives_back_at_the_end_of_a_client(doubles, service) -> None:
    clock = ServiceClock(UUID, service.socket)
    clock.lock(1200)
    assert doubles.fake.get("locked_mhz") == 1200
    assert service.notes == [UUID]
    assert service_state(service.socket)["held"] == {UUID: 1200}
    clock.release()
    assert doubles.fake.get("locked_mhz") == 0
    assert service.notes == []
    clock.lock(1500)
    clock.close()
    assert until(lambda: service.notes == [])
    assert doubles.fake.get("locked_mhz") == 0
    assert f"process {os.getpid()} of uid {os.geteuid()}: lock {UUID} 1500" in service.log()
    assert service.end() == 0
    assert not service.socket.exists()


_CLIENT = """
import os, sys, time
from pathlib import Path
from heshare.ops.clocks.service_clock import ServiceClock
clock = ServiceClock(sys.argv[1], Path(sys.argv[2]))
clock.lock(1300)
os.set_inheritable(clock._socket.fileno(), True)
child = os.fork()
if child == 0:
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def test_service_gives_back_when_a_client_is_killed_though_its_child_has_the_connection(doubles, service) -> None:
    arguments = [sys.executable, "-W", "ignore", "-c", _CLIENT, UUID, str(service.socket)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        child = int(client.stdout.readline())
        try:
            assert doubles.fake.get("locked_mhz") == 1300
            client.kill()
            assert until(lambda: doubles.fake.get("locked_mhz") == 0)
        finally:
            os.kill(child, 9)


def test_one_client_has_a_card_at_a_time_until_it_goes(doubles, service) -> None:
    first, second = ServiceClock(UUID, service.socket), ServiceClock(UUID, service.socket)
    first.lock(1200)
    first.release()  # it has the card all the same
    with pytest.raises(NvmlError, match="another client has this card"):
        second.lock(1000)
    second.release()  # it has nothing to release
    assert asked(service, f"unlock {UUID}") == ["refused busy another client has this card"]
    first.close()
    assert until(lambda: locks(second, 1000))
    assert doubles.fake.get("locked_mhz") == 1000
    second.close()


REPLIES = {
    "ping": "ok",
    f"lock {UUID} 2000": "refused request 2000 MHz; the limits allow 210 to 1980 MHz",
    f"lock {UUID} -5": "refused request expected",
    f"lock {UUID} ۱۲۰۰": "refused request expected",
    f"lock {UUID} 1200 1300": "refused request expected",
    "lock GPU-../../etc/passwd 1200": "refused permission the limits do not allow this card",
    "lock GPU-none 1200": "refused card",
    "reset": "refused request expected lock UUID MHZ",
    "": "refused request expected",
}


def test_service_replies_to_each_line(service) -> None:
    for line, reply in REPLIES.items():
        assert asked(service, line, "ping")[0].startswith(reply), line
        assert service.notes == []


def test_service_ends_connections_with_endless_lines_and_serves_others_beside_a_hung_one(doubles, service) -> None:
    with socket.socket(socket.AF_UNIX) as hung, socket.socket(socket.AF_UNIX) as endless:
        hung.connect(str(service.socket))
        hung.sendall(b"lock ")
        endless.connect(str(service.socket))
        endless.settimeout(10.0)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            endless.sendall(b"x" * 10_000_000)
        assert asked(service, "ping") == ["ok"]


def test_service_gives_back_at_its_end_and_after_a_kill_at_its_next_start(doubles, service) -> None:
    clock = ServiceClock(UUID, service.socket)
    clock.lock(1200)
    assert service.end() == 0
    assert doubles.fake.get("locked_mhz") == 0
    assert "was lost" in clock.news()
    with pytest.raises(ClockServiceLostError, match="does not answer"):
        clock.lock(1100)
    service.begin()
    news: list[str] = []
    assert until(lambda: bool(news.append(clock.news()) or news[-1]))
    assert news[-1] == "the clock service is back: clock 1100 MHz is locked again"
    assert doubles.fake.get("locked_mhz") == 1100
    service.kill()
    assert doubles.fake.get("locked_mhz") == 1100  # nobody is there to unlock it
    clock.close()
    service.begin()
    assert until(lambda: service.notes == [])
    assert doubles.fake.get("locked_mhz") == 0


def test_a_card_that_hangs_holds_up_no_other_card(doubles, service) -> None:
    other = UUID[:-1] + "5"
    doubles.fake.block("nvmlDeviceSetGpuLockedClocks", card=0)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.settimeout(20.0)
        hung.connect(str(service.socket))
        hung.sendall(f"lock {UUID} 1200\n".encode())
        assert asked(service, "ping", f"lock {other} 1300", "state")[:2] == ["ok", "ok"]
        assert until(lambda: doubles.fake.get("locked1_mhz") == 0)  # that client has gone
        doubles.fake.fail("nvmlDeviceSetGpuLockedClocks", 0)
        assert hung.recv(100) == b"ok\n"


def test_service_serves_members_of_the_cards_group_only(doubles) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to be another user")
    limits = f'[{UUID}]\nmin_mhz = 210\nmax_mhz = 1980\ngroup = "daemon"\n'
    service = ServiceProcess(doubles.folder / "g", limits=limits).begin()
    service.folder.chmod(0o711)
    service.socket.chmod(0o666)
    for folder in service.folder.parents[:4]:
        if folder.stat().st_uid == 0 and folder.name != "tmp":
            folder.chmod(folder.stat().st_mode | 0o711)
    ask = (
        "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        f"s.sendall(b'lock {UUID} 1200\\nstate\\n'); f = s.makefile(); print(f.readline() + f.readline())"
    )
    try:
        for groups, reply in (([65534], "refused permission only members of group daemon"), ([65534, 1], "ok")):
            done = subprocess.run(
                ["/usr/bin/env", "python3", "-c", ask, str(service.socket)],
                user=65534, group=65534, extra_groups=groups, capture_output=True, text=True, timeout=30, cwd="/",
                env={"PATH": "/usr/bin:/bin"},
            )  # fmt: skip
            if done.returncode in (126, 127):
                pytest.skip("the other user has no Python")
            first, second = done.stdout.strip().splitlines()
            assert first.startswith(reply), done
            assert bool(json.loads(second.split(maxsplit=1)[1])["limits"]) is (reply == "ok")
    finally:
        service.kill()


def test_only_one_service_runs_in_a_folder(doubles, service) -> None:
    other = ServiceProcess(doubles.folder / "s2", limits=LIMITS)
    other.folder.mkdir(mode=0o700)
    (other.folder / "notes").symlink_to(service.folder / "notes")
    with pytest.raises(RuntimeError, match="another user can write here"):
        other.begin()
    with pytest.raises(RuntimeError, match="another clock service uses this folder"):
        other.begin(f"--state={service.folder / 'notes'}")
    assert asked(service, "ping") == ["ok"]


def test_service_takes_the_socket_of_systemd(doubles) -> None:
    folder = doubles.folder / "a"
    folder.mkdir(mode=0o700)
    (folder / "clocks.toml").write_text(LIMITS)
    (folder / "clocks.toml").chmod(0o644)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "clocks.sock"))
        listener.listen()
        arguments = ["clock-service", f"--limits={folder / 'clocks.toml'}", f"--state={folder / 'notes'}"]
        program = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3);"
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
            "sys.argv[1:] = sys.argv[2:]; from heshare.cli import main; main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(listener.fileno()), *arguments],
            pass_fds=(listener.fileno(),), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        clock = ServiceClock(UUID, folder / "clocks.sock")
        clock.lock(1200)
        assert doubles.fake.get("locked_mhz") == 1200
        process.terminate()
        assert process.wait(10.0) == 0
        assert doubles.fake.get("locked_mhz") == 0
        clock.close()
    assert (folder / "clocks.sock").exists()  # systemd's


def test_every_unlock_returns_to_the_clock_of_the_site(doubles) -> None:
    site = '["*"]\nmin_mhz = 210\nmax_mhz = 1980\nsite_mhz = 900\n'
    service = ServiceProcess(doubles.folder / "s", limits=site).begin()
    clock = ServiceClock(UUID, service.socket)
    for end in (clock.release, clock.close):
        clock.lock(1200)
        assert doubles.fake.get("locked_mhz") == 1200
        end()
        assert until(lambda: doubles.fake.get("locked_mhz") == 900)
    assert until(lambda: locks(clock, 1300)), "once the connection that was closed is forgotten"
    service.kill()
    clock.close()
    service.begin()
    assert until(lambda: doubles.fake.get("locked_mhz") == 900), "what a killed service left returns to it, too"
    assert until(lambda: service.notes == [])
    assert service.end() == 0
    doubles.fake.set("locked_mhz", 0)


def test_an_unlock_of_a_card_that_its_caller_does_not_have_is_refused(doubles, service) -> None:
    with closing(ServiceClock(UUID, service.socket)) as clock:
        clock.lock(1300)
    assert until(lambda: doubles.fake.get("locked_mhz") == 0)
    doubles.fake.set("locked_mhz", 1200)  # an administrator's
    for uuid in (UUID, UUID[:-1] + "5"):
        assert asked(service, f"unlock {uuid}") == ["refused request this client does not have the card"]
    assert doubles.fake.get("locked_mhz") == 1200
    with closing(ServiceClock(UUID, service.socket)) as clock:
        with pytest.raises(NvmlError, match="the limits allow"):
            clock.lock(5000)
        clock.release()  # it has nothing, and asks for nothing
    doubles.fake.set("locked_mhz", 0)


def test_a_flood_of_requests_is_served_slowly_and_hardly_logged(doubles, service) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(service.socket))
        client.sendall(b"ping\nreset\n" * 20)
        got, until_s = b"", time.monotonic() + 2.0
        while time.monotonic() < until_s:
            got += client.recv(10_000)
            client.sendall(b"ping\nreset\n")
        assert got.count(b"\n") <= 100
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(service.socket))
    assert len(service.log().splitlines()) < 150


def test_users_leave_room_for_others_and_for_root(doubles, tmp_path, monkeypatch) -> None:
    uids = iter([*[5] * clock_service.MOST_OF_A_USER, 5, *range(100, 300)])
    monkeypatch.setattr(clock_service.Peer, "of", lambda connection: clock_service.Peer(0, next(uids), frozenset()))
    monkeypatch.setattr(clock_service, "_WITHOUT_CARD_S", 600.0)
    service = clock_service.ClockService(read_limits_of(tmp_path), tmp_path / "notes", lambda uuid: None)
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as exits:
        listener.bind(str(doubles.folder / "c.sock"))
        listener.listen(16)
        serving = threading.Thread(target=service.serve, args=(listener,))
        serving.start()
        exits.callback(serving.join)
        exits.callback(service.stop)

        def connect() -> socket.socket:
            client = exits.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(doubles.folder / "c.sock"))
            client.settimeout(5.0)
            return client

        def refused(client: socket.socket) -> bool:
            with contextlib.suppress(OSError):
                client.sendall(b"ping\n")
                return client.recv(100) != b"ok\n"
            return True

        first = [connect() for _ in range(clock_service.MOST_OF_A_USER)]
        assert refused(connect())
        assert not any(map(refused, first))
        others = [connect() for _ in range(clock_service.MOST_CLIENTS)]
        assert any(map(refused, others)), "the others have what is left"
        uids = iter([0] * 4)
        assert not refused(connect()), "but a place is left for root"
        monkeypatch.setattr(clock_service, "_WITHOUT_CARD_S", 0.2)
        late = connect()
        refused(late)
        with contextlib.suppress(ConnectionResetError):
            while late.recv(100):  # one without a card goes, whatever it sends
                pass


def read_limits_of(folder: Path) -> clock_limits.ClockLimits:
    file = folder / "clocks.toml"
    file.write_text(LIMITS)
    file.chmod(0o644)
    return clock_limits.read_limits(file)
