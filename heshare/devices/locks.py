"""One run a GPU: a lock for each UUID, held as long as a run, or who cleans up after it, lives."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

from heshare.devices.processes import alive, started_at
from heshare.errors import DeviceError

_CLEANING_S, _DYING_S = 20.0, 0.2


class GpuInUseError(DeviceError):
    """Another run has the GPU."""


class GpuLock:
    """The lock of one GPU, machine-wide; the kernel frees it when the last process that holds it ends.

    Args:
        uuid: the GPU.

    Attributes:
        descriptor: of the locked file; a process that inherits it holds the lock too.

    Raises:
        GpuInUseError: another run has it; the message names that run's process and command.
        DeviceError: the file cannot be made.
    """

    def __init__(self, uuid: str) -> None:
        self.path = folder() / f"heshare-{uuid}.lock"
        try:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise DeviceError(
                f"GPU {uuid}: its lock {self.path} cannot be opened ({error.strerror}). Run as the user who made it, "
                "or set HESHARE_LOCKS to a folder that all runs on this machine share."
            ) from error
        began_s = time.monotonic()
        while not self._take():
            said = os.pread(self.descriptor, 4096, 0).decode(errors="replace").strip()
            # A run that was killed leaves its GPU to its watchdog for a while, and takes a moment to die itself.
            if time.monotonic() - began_s > (_CLEANING_S if _dead(said) else _DYING_S):
                os.close(self.descriptor)
                raise GpuInUseError(
                    f"GPU {uuid}: another run has it: {said or 'a process that has not said its name yet'}. "
                    "Wait for it to end, end it, or use other GPUs."
                )
            time.sleep(0.05)
        command = " ".join(shlex.join(sys.orig_argv).split())
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"process {os.getpid()}: {command}"[:4000].encode(), 0)

    def _take(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let the GPU go. May be repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _dead(said: str) -> bool:
    """Whether the process that says to have a lock has ended."""
    found = re.match(r"process (\d{1,9}):", said)
    return found is not None and not alive(int(found[1]), started_at(int(found[1])))


def folder() -> Path:
    """Where the locks are: `$HESHARE_LOCKS`, or the machine's folder for locks, or the temporary one."""
    chosen = os.environ.get("HESHARE_LOCKS")
    if chosen:
        return Path(chosen)
    usual = Path("/run/lock")
    return usual if os.access(usual, os.W_OK) else Path(tempfile.gettempdir())
