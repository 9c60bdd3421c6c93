"""Clocks by zeusd: the requests of its API reference, over a stand-in that listens at a UNIX socket."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.kill_drill import UUID

from heshare.ops.clocks.clock_route import NVML, SERVICE, ZEUSD, clock_control, clock_route
from heshare.ops.clocks.zeusd_clock import ZeusdClock
from heshare.ops.nvml.binding import NoPermissionError, Nvml, NvmlError
from heshare.ops.nvml.clock_lock import notes, open_clock, restore


class Zeusd(socketserver.ThreadingUnixStreamServer):
    """The stand-in: it keeps the lock, as zeusd has the driver keep it."""

    daemon_threads = True
    locked: dict[str, int]
    requests: list[tuple[str, str | None]]
    status = 200

    class RequestHandlerClass(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server = self.server
            assert isinstance(server, Zeusd)
            parts = urlsplit(self.path)
            values = {name: one[0] for name, one in parse_qs(parts.query, strict_parsing=True).items()}
            server.requests.append((self.path, self.headers.get("Authorization")))
            body = b""
            if server.status != 200:
                body = json.dumps({"errors": {"0": "of the test"}}).encode()
            elif parts.path == "/gpu/set_gpu_locked_clocks":
                assert values["min_clock_mhz"] == values["max_clock_mhz"]
                server.locked[values["gpu_ids"]] = int(values["max_clock_mhz"])
            else:
                assert parts.path == "/gpu/reset_gpu_locked_clocks"
                server.locked.pop(values["gpu_ids"], None)
            self.send_response(server.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body:
                self.wfile.write(body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

    def __init__(self, path: Path) -> None:
        self.locked, self.requests = {}, []
        super().__init__(str(path), self.RequestHandlerClass)


@pytest.fixture
def zeusd(doubles, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zeusd]:
    path = doubles.folder / "zeusd.sock"
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
    with Zeusd(path) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_zeusd_is_asked_as_its_reference_says(zeusd: Zeusd, doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUSD_TOKEN", "secret")
    clock = ZeusdClock(UUID, Path(zeusd.server_address))
    clock.lock_clock(1200)
    clock.unlock_clock()
    assert zeusd.requests == [
        ("/gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=1200&max_clock_mhz=1200&block=true", "Bearer secret"),
        ("/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true", "Bearer secret"),
    ]


@pytest.mark.parametrize(("status", "kind"), [(403, NoPermissionError), (401, NoPermissionError), (400, NvmlError)])
def test_refusals_of_zeusd_are_errors(zeusd: Zeusd, status: int, kind: type[NvmlError]) -> None:
    zeusd.status = status
    with pytest.raises(kind, match=f"status {status}, of the test"):
        ZeusdClock(UUID, Path(zeusd.server_address)).lock_clock(1200)


def test_zeusd_that_does_not_answer_is_an_error(doubles) -> None:
    with pytest.raises(NvmlError, match="zeusd does not answer"):
        ZeusdClock(UUID, doubles.folder / "none").lock_clock(1200)


def test_a_run_locks_by_zeusd_with_a_note_and_restore_unlocks_by_it(zeusd: Zeusd, doubles, monkeypatch) -> None:
    # The run has no right of its own.
    monkeypatch.setenv("FAKENVML_FAIL", "nvmlDeviceSetGpuLockedClocks=4,nvmlDeviceResetGpuLockedClocks=4")
    result = doubles.run(
        "jobs:\n  - {name: job, command: ['true'], like: 'resnet50:8', iterations: 10}\n", policy="drill", clocks=True
    )
    assert result.complete
    assert len([path for path, _ in zeusd.requests if "set_gpu" in path and "reset" not in path]) >= 2
    assert (zeusd.locked, notes()) == ({}, [])
    with Nvml() as nvml:
        clock = open_clock(nvml.card(UUID), UUID)
        clock.lock(1200)
        assert zeusd.locked == {"0": 1200}
        assert len(notes()) == 1
        zeusd.status = 500
        with pytest.raises(NvmlError):
            clock.release()
        zeusd.status = 200
        clock.close()
    assert (zeusd.locked, notes()) == ({}, [])
    assert restore().unlocked == ()


def test_clock_route_prefers_the_clock_service_then_zeusd_then_nvml(monkeypatch, tmp_path: Path) -> None:
    for name in ("HESHARE_CLOCKS", "ZEUSD_SOCK_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("heshare.ops.clocks.clock_route.SERVICE_SOCKET", str(tmp_path / "none"))
    monkeypatch.setattr("heshare.ops.clocks.clock_route.ZEUSD_SOCKET", str(tmp_path / "none"))
    assert clock_route()[0] == NVML
    assert clock_control(admin=True)[0]
    assert not clock_control(admin=False)[0]
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/z")
    assert clock_route() == (ZEUSD, Path("/z"))
    assert clock_control(admin=False) == (True, "Clocks can be locked by zeusd at /z, if it agrees.")
    monkeypatch.setenv("HESHARE_CLOCKS", str(tmp_path / "gone"))
    assert clock_route() == (SERVICE, tmp_path / "gone")
    able, sentence = clock_control(admin=True)
    assert not able
    assert "does not answer" in sentence
