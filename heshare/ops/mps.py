"""NVIDIA MPS for one GPU: a control daemon with its own pipe and log directory."""

import contextlib
import math
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from heshare.ops.unprivileged_process import start_unprivileged
from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import FileLock, hold
from heshare.shared.processes import alive, exit_text, is_running, processes_with, signal_process, started_at

CONTROL = "nvidia-cuda-mps-control"
MPS, TIME_SLICE = "mps", "time-slice"
_POLL_S, _LOCK_S = 0.02, 0.5
CALM_S = 600.0
"""After this time without an end of the daemon, the count of consecutive ends starts again, s."""
MOST_RESTARTS = 10
"""Ends of a daemon in one run after which it is not restarted, independent of the time between them."""
_PREFIX, _OWNER, _DAEMON = "hs-mps-", "owner", "daemon"
_COMM = "nvidia-cuda-mps"
"""The common beginning of the names of NVIDIA's daemon and server in /proc/PID/comm, which the kernel truncates."""


class MpsSession:
    """MPS for one GPU within a `with`; time-slicing if MPS is not available, for the reason in `reason`.

    The daemon has a private directory, so that it conflicts with no other daemon, and serves only this GPU. It is ended
    at the end of the `with`, and killed if it does not react; after a kill of this process the cleanup process ends it
    (`heshare.ops.cleanup`). `sharing` is `mps` or `time-slice`; it is recorded with measurements.
    """

    def __init__(self, gpu_uuid: str, *, timeout_s: float = 10.0) -> None:
        self.gpu_uuid = gpu_uuid
        self.sharing = TIME_SLICE
        self.reason = "no MPS session was requested"
        self._timeout_s = timeout_s
        self._folder: Path | None = None
        self._lock: FileLock | None = None
        self._daemon: tuple[int, int] | None = None

    def start(self) -> None:
        program = shutil.which(CONTROL)
        if program is None:
            self._without(f"{CONTROL} is not on the PATH; NVIDIA's driver has it (not in every container)")
            return
        sweep(timeout_s=self._timeout_s)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_base()))
            self._lock = hold(self._folder / _OWNER)
            found = self._launch(program)
        except OSError as error:
            found = f"cannot be started in {_base()} ({error.strerror})"
        if found:
            log = self._last_log_line() if self._folder is not None else ""
            self.stop()
            self._without(f"{CONTROL} -d {found}{log}")
            return
        self.sharing, self.reason = MPS, ""

    def _launch(self, program: str) -> str:
        for name in ("pipe", "log"):
            (self._root / name).mkdir(mode=0o700)
        try:
            done = self._run([program, "-d"], timeout_s=self._timeout_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"did not start ({error})"
        if done.returncode != 0:
            return f"ended, {exit_text(done.returncode)}"
        if not self._wait(self._find_daemon):
            return f"wrote no process id within {self._timeout_s:g} s"
        return ""

    def _find_daemon(self) -> bool:
        try:
            pid = int((self._root / "pipe" / f"{CONTROL}.pid").read_text())
        except (OSError, ValueError):
            return False
        started = started_at(pid)
        if not started or not is_running(pid):
            return False
        (self._root / _DAEMON).write_text(f"{pid} {started}")
        self._daemon = pid, started
        return True

    def stop(self) -> None:
        """End the daemon, by SIGKILL if it does not react, and remove its directory. Idempotent."""
        if self._folder is None:
            return
        daemon, pipe = self._daemon, self._root / "pipe"
        if daemon is not None and alive(*daemon):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._run([CONTROL], b"quit\n", timeout_s=self._timeout_s / 2)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self._wait(lambda: not alive(*daemon), self._timeout_s / 4):
                    break
                _signal_mps(daemon[0], daemon[1], number, pipe)
        for pid in processes_with(_pipe_variable(pipe)):  # the MPS server does not end with a killed daemon
            _signal_mps(pid, started_at(pid), signal.SIGKILL, pipe)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
        self._folder, self._daemon, self._lock = None, None, None
        if self.sharing == MPS:
            self.sharing, self.reason = TIME_SLICE, "the session has ended"

    def alive(self) -> bool:
        """Return whether clients can start: the daemon runs, or the GPU is shared by time-slicing."""
        return self.sharing != MPS or (self._daemon is not None and alive(*self._daemon))

    def environment(self, mps_pct: int = 100) -> dict[str, str]:
        """Return the environment variables of a client, to be set before it creates a CUDA context."""
        self.check(mps_pct)
        share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(mps_pct)} if self.sharing == MPS else {}
        return {**self._pipes(), "CUDA_VISIBLE_DEVICES": self.gpu_uuid, **share}

    def check(self, mps_pct: int) -> None:
        if self.sharing != MPS and mps_pct != 100:
            raise DeviceError(
                f"GPU {self.gpu_uuid}: {mps_pct} % of the SMs requested, but without MPS nothing enforces a share: "
                f"processes share it by time-slicing ({self.reason}). Request 100 %, or provide MPS."
            )

    def _without(self, reason: str) -> None:
        self.sharing, self.reason = TIME_SLICE, reason

    def _run(self, command: list[str], text: bytes = b"", *, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, **self._pipes(), "CUDA_VISIBLE_DEVICES": self.gpu_uuid}
        if os.geteuid() == 0:
            # The daemon of root starts servers as other users, which needs capabilities; that of a user needs none.
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        else:
            process = start_unprivileged(command, env=environment, output=subprocess.DEVNULL)

        with process:
            try:
                process.communicate(text, timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode)

    @property
    def _root(self) -> Path:
        assert self._folder is not None
        return self._folder

    def _pipes(self) -> dict[str, str]:
        names = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
        return {} if self._folder is None else {key: str(self._folder / name) for key, name in names.items()}

    def _last_log_line(self) -> str:
        try:
            lines = (self._root / "log" / "control.log").read_text(errors="replace").strip().split("\n")
        except OSError:
            return ""
        return f" (its log ends: {lines[-1].strip()[-200:]})" if lines[-1] else ""

    def _wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        until = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while not done():
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        return True

    def __enter__(self) -> "MpsSession":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def sweep(*, timeout_s: float = 10.0) -> None:
    """End the daemons of this user's sessions whose process has ended, and remove their directories.

    A process runs if its lock on the owner file is taken, which is valid between containers that share the folder.
    Directories of other users, links and directories that other users may enter are left unchanged.
    """
    until = time.monotonic() + _LOCK_S
    for folder in sorted(_base().glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                continue
            creator = folder.name.removeprefix(_PREFIX).partition("-")[0]
            runs = creator.isdecimal() and is_running(int(creator))
            if runs and not (folder / _OWNER).exists():
                continue  # its process may not have locked it yet
            left = MpsSession("", timeout_s=timeout_s)
            # Threads of a killed process may end after its main thread.
            left._lock = hold(folder / _OWNER, 0.0 if runs else until - time.monotonic())
            left._folder = folder
            left._daemon = _noted_daemon(folder)
            left.stop()


def _noted_daemon(folder: Path) -> tuple[int, int] | None:
    try:
        pid, started = (folder / _DAEMON).read_text(encoding="utf-8").split()
        return int(pid), int(started)
    except (OSError, ValueError):
        return None


def _signal_mps(pid: int, started: int, number: signal.Signals, pipe: Path) -> None:
    signal_process(pid, number, started=started, name=_COMM, variable=_pipe_variable(pipe))


def _pipe_variable(pipe: Path) -> str:
    return f"CUDA_MPS_PIPE_DIRECTORY={pipe}"


def _base() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) < 60 else "/tmp")


class DaemonRestarts:
    """Restart policy of one daemon: the pauses before the first, second, ... restart of consecutive ends, s."""

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = tuple(pauses_s)
        self._count = self._row = 0
        self._last_s = -math.inf

    def pause_s(self, now_s: float) -> float:
        self._row = 0 if now_s - self._last_s > CALM_S else self._row
        self._row, self._count, self._last_s = self._row + 1, self._count + 1, now_s
        given_up = self._row > len(self._pauses_s) or self._count > MOST_RESTARTS
        return math.inf if given_up else self._pauses_s[self._row - 1]
