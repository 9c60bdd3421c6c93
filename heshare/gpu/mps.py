"""NVIDIA MPS for one GPU: a daemon with its own pipe and log directory, which ends with this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from heshare.errors import DeviceError
from heshare.processes import exit_text, is_running, processes_with, signal_process
from heshare.signals import at_end

CONTROL = "nvidia-cuda-mps-control"
MPS, TIME_SLICE = "mps", "time-slice"
_POLL_S = 0.02
_PREFIX, _OWNER = "hs-mps-", "owner"


class MpsSession:
    """MPS for one GPU within a `with`; without MPS on this machine plain time-slicing, for the reason in `reason`.

    The daemon gets a private directory, so that it conflicts with no other daemon, and only this GPU. It is ended at
    the end of the `with`, at the end of the process, and by SIGTERM and SIGHUP; if it does not react it is killed.

    Args:
        gpu_uuid: the GPU.
        required: raise where there is no MPS, instead of time-slicing.
        timeout_s: how long the daemon may take to start or to end, s.

    Attributes:
        sharing: how processes share the GPU, `mps` or `time-slice`; recorded with measurements.
        reason: why it is not MPS; empty when it is.
    """

    def __init__(self, gpu_uuid: str, *, required: bool = False, timeout_s: float = 10.0) -> None:
        self.gpu_uuid = gpu_uuid
        self.sharing = TIME_SLICE
        self.reason = "no MPS session was requested"
        self._required, self._timeout_s = required, timeout_s
        self._folder: Path | None = None
        self._off: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the daemon, if this machine has one.

        Raises:
            DeviceError: `required`, and there is no MPS or it does not start.
        """
        program = shutil.which(CONTROL)
        if program is None:
            self._without(f"{CONTROL} is not on the PATH; it comes with NVIDIA's driver (not in every container)")
            return
        sweep(timeout_s=self._timeout_s)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_base()))
        (self._folder / _OWNER).write_text(str(os.getpid()))
        self._off = at_end(self.stop)
        found = self._launch(program)
        if found:
            log = self._last_log_line()
            self.stop()
            self._without(f"{CONTROL} -d {found}{log}")
            return
        self.sharing, self.reason = MPS, ""

    def _launch(self, program: str) -> str:
        """Start the daemon and wait until it accepts clients; return what went wrong, or nothing."""
        for name in ("pipe", "log"):
            (self._root / name).mkdir(mode=0o700)
        try:
            done = self._run([program, "-d"], timeout_s=self._timeout_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"did not start ({error})"
        if done.returncode != 0:
            return f"ended, {exit_text(done.returncode)}"
        if not self._wait(lambda: self._pid() is not None):
            return f"wrote no process id within {self._timeout_s:g} s"
        return ""

    def stop(self) -> None:
        """End the daemon, by a kill if it does not end by itself, and remove its directory. May be repeated."""
        self._off()
        if self._folder is None:
            return
        pid = self._pid()
        if pid is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._run([CONTROL], b"quit\n", timeout_s=self._timeout_s / 2)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self._wait(lambda: not is_running(pid), self._timeout_s / 4):
                    break
                signal_process(pid, number)
        for orphan in _of_session(self._root / "pipe"):
            signal_process(orphan, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        if self.sharing == MPS:
            self.sharing, self.reason = TIME_SLICE, "the session has ended"

    def alive(self) -> bool:
        """Return whether clients can start: the daemon runs, or they share by time-slicing and need none."""
        return self.sharing != MPS or self._pid() is not None

    def environment(self, mps_pct: int = 100) -> dict[str, str]:
        """Return the variables that a client needs in its environment before it has a CUDA context.

        Args:
            mps_pct: its share of the SMs, %.

        Raises:
            DeviceError: a share below 100 % without MPS, which nothing would enforce.
        """
        self.check(mps_pct)
        share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(mps_pct)} if self.sharing == MPS else {}
        return {**self._pipes(), "CUDA_VISIBLE_DEVICES": self.gpu_uuid, **share}

    def check(self, mps_pct: int) -> None:
        """Raise if nothing would enforce a share.

        Raises:
            DeviceError: a share below 100 % without MPS.
        """
        if self.sharing != MPS and mps_pct != 100:
            raise DeviceError(
                f"GPU {self.gpu_uuid}: {mps_pct} % of the SMs requested, but without MPS nothing enforces a share: "
                f"processes share it by time-slicing ({self.reason}). Request 100 %, or provide MPS."
            )

    def _without(self, reason: str) -> None:
        if self._required:
            raise DeviceError(f"GPU {self.gpu_uuid}: no MPS: {reason}. Provide MPS, or share by time-slicing.")
        self.sharing, self.reason = TIME_SLICE, reason

    def _run(self, command: list[str], text: bytes = b"", *, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command,
            input=text,
            env={**os.environ, **self._pipes(), "CUDA_VISIBLE_DEVICES": self.gpu_uuid},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )

    @property
    def _root(self) -> Path:
        assert self._folder is not None
        return self._folder

    def _pipes(self) -> dict[str, str]:
        names = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
        return {} if self._folder is None else {key: str(self._folder / name) for key, name in names.items()}

    def _pid(self) -> int | None:
        """Return the daemon's process, from its file; None before the file is written and after its end."""
        try:
            pid = int((self._root / "pipe" / f"{CONTROL}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if pid > 1 and is_running(pid) else None

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

    def __enter__(self) -> MpsSession:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def sweep(*, timeout_s: float = 10.0) -> None:
    """End the daemons of sessions whose process was killed, and remove their directories."""
    for folder in sorted(_base().glob(f"{_PREFIX}*")):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            owner = (folder / _OWNER).read_text().strip() or owner
        # A directory without an owner's file belongs to the process in its name, which may be about to write it.
        if owner.isdecimal() and not is_running(int(owner)):
            left = MpsSession("", timeout_s=timeout_s)
            left._folder = folder
            left.stop()


def _base() -> Path:
    """Return the folder of the sessions: a short path, since a socket path has at most 107 characters."""
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) < 60 else "/tmp")


def _of_session(pipe: Path) -> list[int]:
    """Return the MPS processes that use these pipes: a server outlives a daemon that was killed."""
    pids = []
    for pid in processes_with(f"CUDA_MPS_PIPE_DIRECTORY={pipe}"):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("nvidia-cuda-mps"):
                pids.append(pid)
    return pids
