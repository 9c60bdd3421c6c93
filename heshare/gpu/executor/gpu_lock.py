"""One run a GPU: a machine-wide lock for each UUID, held until a run and its watchdog have ended."""

import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

from heshare.errors import DeviceError
from heshare.file_lock import FileLock
from heshare.processes import alive, started_at

_CLEANUP_S, _EXIT_S = 20.0, 0.2


class GpuInUseError(DeviceError):
    """A GPU is locked by another run."""


class GpuLock(FileLock):
    """The lock of the GPU with a UUID; the watchdog of a run inherits its descriptor.

    Raises:
        GpuInUseError: another run has it; the message names that run's process and command.
        DeviceError: the file cannot be made.
    """

    def __init__(self, uuid: str) -> None:
        path = lock_folder() / f"heshare-{uuid}.lock"
        try:
            # The folder may be writable for all: a link there must not lead to another file.
            super().__init__(path, mode=0o666, flags=os.O_NOFOLLOW)
        except OSError as error:
            raise DeviceError(
                f"GPU {uuid}: its lock {path} cannot be opened ({error.strerror}). Run as its owner,  "
                "or set HESHARE_LOCKS to a folder that all runs on this machine share."
            ) from error
        start_s = time.monotonic()
        while not self.acquire():
            holder = os.pread(self.descriptor, 4096, 0).decode(errors="replace").strip()
            # A run that was killed leaves its GPU to its watchdog for a while, and takes a moment to end itself.
            if time.monotonic() - start_s > (_CLEANUP_S if _has_ended(holder) else _EXIT_S):
                self.close()
                raise GpuInUseError(
                    f"GPU {uuid}: another run has it: {holder or 'a process that has not written its name yet'}. "
                    "Wait for it to end, end it, or use other GPUs."
                )
            time.sleep(0.05)
        command = " ".join(shlex.join(sys.orig_argv).split())
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"process {os.getpid()}: {command}"[:4000].encode(), 0)


def _has_ended(holder: str) -> bool:
    """Return whether the process that a lock names has ended."""
    match = re.match(r"process (\d{1,9}):", holder)
    return match is not None and not alive(int(match[1]), started_at(int(match[1])))


def lock_folder() -> Path:
    """Return the folder of the locks: `$HESHARE_LOCKS`, or the machine's folder for locks, or the temporary one."""
    chosen = os.environ.get("HESHARE_LOCKS")
    if chosen:
        return Path(chosen)
    usual = Path("/run/lock")
    return usual if os.access(usual, os.W_OK) else Path(tempfile.gettempdir())
