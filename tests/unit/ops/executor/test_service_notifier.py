"""Messages to systemd, over a real socket of datagrams."""

from __future__ import annotations

import math
import os
import socket

import pytest

from heshare.ops.executor.service_notifier import ServiceNotifier


@pytest.fixture
def manager(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("notify")
        listener.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def test_service_notifier_sends_the_states_of_a_service(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    service = ServiceNotifier()
    assert "NOTIFY_SOCKET" not in os.environ
    assert service.interval_s == 2.0
    service.ready("2 jobs")
    service.status("1 running")
    for _ in range(3):
        service.alive()
    service.stopping()
    received = [manager.recv(4096).decode() for _ in range(4)]
    assert received == [
        f"READY=1\nSTATUS=2 jobs\nMAINPID={os.getpid()}",
        "STATUS=1 running",
        "WATCHDOG=1",
        "STOPPING=1",
    ]


@pytest.mark.parametrize("pid", ["1", None])
def test_service_notifier_without_a_watchdog(manager, monkeypatch, pid):
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
        monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    service = ServiceNotifier()
    assert service.interval_s == math.inf
    service.alive()
    service.stopping()
    assert manager.recv(4096) == b"STOPPING=1"


def test_service_notifier_never_fails(tmp_path, monkeypatch):
    for address in ("", str(tmp_path / "nobody"), "x" * 200):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        ServiceNotifier().ready("x")


def test_service_notifier_speaks_to_an_abstract_address(monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"hs-test-{os.getpid()}"
        listener.bind("\0" + name)
        listener.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        ServiceNotifier().status("x")
        assert listener.recv(100) == b"STATUS=x"
