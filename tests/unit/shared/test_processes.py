"""Processes: the environment of a child, how one ended in words, whether one is alive, and ending those of a run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.waiting import until

from heshare.shared.files import PACKAGE
from heshare.shared.processes import (
    MARK,
    alive,
    child_environment,
    end_marked,
    exit_text,
    marked,
    signal_process,
    started_at,
)


def test_child_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a child has this package first."""
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environment = child_environment(EXTRA="1")
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(PACKAGE.parent), "elsewhere"]
    assert {**environment, "PYTHONPATH": "elsewhere"} == {**os.environ, "EXTRA": "1"}
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == str(PACKAGE.parent)


def test_exit_text() -> None:
    """How a process ended is told by its code or its signal."""
    assert [exit_text(code) for code in (3, -9, -250)] == ["exit code 3", "by SIGKILL", "by signal 250"]


def test_alive() -> None:
    """A process is identified by its id and its start."""
    own = started_at(os.getpid())
    assert own > 0
    assert alive(os.getpid(), own)
    assert not alive(os.getpid(), own + 1)
    ended = subprocess.Popen(["true"])
    started = started_at(ended.pid)
    assert until(lambda: not alive(ended.pid, started))  # a zombie
    ended.wait()
    assert started_at(ended.pid) == 0


def test_end_marked() -> None:
    """`end_marked` ends a run with all its children even if they ignore SIGTERM."""

    def start(token: str, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARK: token}
        return subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.PIPE)

    token = f"m{os.getpid()}"
    stubborn = start(token, "sh", "-c", "trap '' TERM; env -i sleep 60 & echo up; wait; wait; sleep 60")
    assert stubborn.stdout is not None
    assert stubborn.stdout.readline() == b"up\n"
    plain = start(token, "sleep", "60")
    other = start(token + "-other", "sleep", "60")
    assert until(lambda: {stubborn.pid, plain.pid} <= set(marked(token)))
    assert other.pid not in marked(token)
    assert end_marked(token, grace_s=0.2) >= 3
    assert stubborn.wait() == -signal.SIGKILL
    assert plain.wait() == -signal.SIGTERM
    assert other.poll() is None
    other.kill()
    for process in (stubborn, plain, other):
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize(
    ("wrong", "sent"),
    [({}, True), ({"started": 1}, False), ({"name": "nvidia"}, False), ({"variable": "HESHARE_TEST=2"}, False)],
)
def test_signal_process(wrong, sent) -> None:
    """`signal_process` signals only the process that was noted."""
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "HESHARE_TEST": "1"})
    while b"HESHARE_TEST=1" not in Path(f"/proc/{process.pid}/environ").read_bytes():
        time.sleep(0.01)  # the kernel is not done with exec
    noted = {"started": started_at(process.pid), "name": "sleep", "variable": "HESHARE_TEST=1"}
    assert signal_process(process.pid, signal.SIGTERM, **{**noted, **wrong}) is sent
    if not sent:
        assert process.poll() is None
        process.kill()
    assert process.wait() == -(signal.SIGTERM if sent else signal.SIGKILL)


def test_kernel_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """`signal_process` works on kernels without pidfd."""

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "of the test")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = subprocess.Popen(["sleep", "60"])
    assert not signal_process(process.pid, signal.SIGTERM, started=1)
    assert signal_process(process.pid, signal.SIGTERM, started=started_at(process.pid))
    assert process.wait() == -signal.SIGTERM
