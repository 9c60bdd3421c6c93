"""MPS sessions over a stand-in daemon that is a real process: none is left behind, and restarts have a limit."""

from __future__ import annotations

import fcntl
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import until

from heshare.ops.mps import CALM_S, MOST_RESTARTS, DaemonRestarts, MpsSession, sweep
from heshare.shared.errors import DeviceError
from heshare.shared.processes import is_running, started_at

GPU = "GPU-00000000-1111-2222-3333-444444444444"
_PROGRAM = """
import time
from heshare.ops.mps import MpsSession
session = MpsSession("GPU-1")
session.start()
pipe = session.environment()["CUDA_MPS_PIPE_DIRECTORY"]
print(open(pipe + "/nvidia-cuda-mps-control.pid").read(), end="", flush=True)
time.sleep(60)
"""


def pid_of(session: MpsSession) -> int:
    folder = Path(session.environment()["CUDA_MPS_PIPE_DIRECTORY"])
    return int((folder / "nvidia-cuda-mps-control.pid").read_text())


def has_ended(pid: int) -> bool:
    return until(lambda: not is_running(pid))


def program() -> tuple[subprocess.Popen[str], int]:
    """Start a process with a session; return it and the number of its daemon."""
    words = [sys.executable, "-c", _PROGRAM]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder for sessions: those of tests beside this one would be ended, too."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def other(alone) -> Iterator[subprocess.Popen[bytes]]:
    """A process that no session started."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def left_session(pid: int, started: int) -> Path:
    """The folder of a session whose process has ended, with a daemon that has this number and start."""
    folder = Path(tempfile.gettempdir()) / "hs-mps-4194303-left"
    (folder / "pipe").mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "owner").touch()
    (folder / "pipe" / "nvidia-cuda-mps-control.pid").write_text(f"{pid}\n")
    (folder / "daemon").write_text(f"{pid} {started}")
    return folder


def test_environment(mps_mode) -> None:
    """The environment of a client has the session's private pipe, the GPU and the MPS percentage."""
    mps_mode("works")
    with MpsSession(GPU) as session, MpsSession(GPU) as other:
        assert (session.sharing, session.reason) == ("mps", "")
        assert pid_of(session) != pid_of(other)
        here, there = session.environment(30), session.environment(70)
        assert here["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
        assert there["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "70"
        assert here["CUDA_VISIBLE_DEVICES"] == GPU
        pipe = Path(here["CUDA_MPS_PIPE_DIRECTORY"])
        assert pipe.stat().st_mode & 0o077 == 0
        assert len(str(pipe / "control")) < 100
        pid = pid_of(session)
    assert has_ended(pid)
    assert not pipe.exists()
    assert session.sharing == "time-slice"
    session.stop()
    session.start()
    session.stop()


def test_stop_kills(mps_mode) -> None:
    """`stop` kills a daemon that does not react, and its server."""
    server = mps_mode("ignores-stop").with_name("nvidia-cuda-mps-server.pid")
    with MpsSession(GPU, timeout_s=60.0) as session:
        pid = pid_of(session)
        session._timeout_s = 1.0
    assert has_ended(pid)
    assert has_ended(int(server.read_text()))


def test_no_mps(tmp_path: Path, monkeypatch) -> None:
    """A session without MPS is time-slicing and gives the reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with MpsSession(GPU) as session:
        assert session.sharing == "time-slice"
        assert "nvidia-cuda-mps-control" in session.reason
        assert session.environment() == {"CUDA_VISIBLE_DEVICES": GPU}
        with pytest.raises(DeviceError, match="time-slicing"):
            session.environment(50)


@pytest.mark.parametrize(
    ("mode", "timeout_s", "why"),
    [("refuses", 60.0, "exit code 1"), ("hangs", 0.3, "did not start"), ("no-pid", 60.0, "no process id")],
)
def test_failed_start(mps_mode, monkeypatch, mode: str, timeout_s: float, why: str) -> None:
    """A session whose daemon does not start is time-slicing."""
    mps_mode(mode)
    monkeypatch.setattr(MpsSession, "_wait", lambda *_: False)  # the time is over
    with MpsSession(GPU, timeout_s=timeout_s) as session:
        assert session.sharing == "time-slice"
        assert why in session.reason


def test_left_daemon(mps_mode, alone) -> None:
    """A new session ends the daemon that a killed one left, and none of one that runs."""
    mps_mode("works")
    process, daemon = program()
    with process:
        with MpsSession(GPU):
            assert is_running(daemon)  # its process runs, so it is not ended
        process.kill()
    assert is_running(daemon)
    with MpsSession(GPU):
        assert has_ended(daemon)


@pytest.mark.parametrize("what", ["open to others", "a link", "not of MPS", "another start"])
def test_foreign_folders(other, what: str) -> None:
    """`sweep` ends no process that is not the session's daemon, and leaves links and folders that others can open."""
    folder = left_session(other.pid, started_at(other.pid) - (what == "another start"))
    if what == "open to others":
        folder.chmod(0o770)
    if what == "a link":
        folder.symlink_to(folder.rename(folder.with_name("target")))
    sweep(timeout_s=0.4)
    assert other.poll() is None
    assert (folder / "daemon").exists() is (what in ("open to others", "a link"))


def test_held_session(other) -> None:
    """`sweep` leaves a session whose lock is held, as in another container."""
    folder = left_session(other.pid, 0)
    with (folder / "owner").open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        sweep(timeout_s=0.4)
        assert folder.exists()
    sweep(timeout_s=0.4)
    assert not folder.exists()


def test_pauses():
    """Pauses between restarts grow up to the end of restarts; a calm time begins them again, up to a limit."""
    restarts = DaemonRestarts((1.0, 4.0))
    assert [restarts.pause_s(now_s) for now_s in (0.0, 2.0, 7.0, 8.0)] == [1.0, 4.0, math.inf, math.inf]
    calm = DaemonRestarts((1.0,))
    pauses = [calm.pause_s(number * (CALM_S + 1.0)) for number in range(MOST_RESTARTS + 1)]
    assert pauses == [1.0] * MOST_RESTARTS + [math.inf]
