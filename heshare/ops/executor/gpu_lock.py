"""Machine-wide lock of a GPU by UUID, for one run at a time, held until the run and its cleanup process have ended."""

import fcntl
import os
import re
import shlex
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from heshare.ops.state.state_file import ProcessLocation
from heshare.shared.display import printable
from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import FileLock
from heshare.shared.processes import alive, started_at

_CLEANUP_S, _EXIT_S = 20.0, 0.2
_FOLDER = Path("/run/lock")
_SHARED_FOLDER = "one folder for all users and containers that use this machine's GPUs"


class GpuInUseError(DeviceError):
    """A GPU is locked by another run."""


class GpuLock(FileLock):
    """The lock of the GPU with a UUID; the cleanup process of a run inherits its descriptor.

    The file is shared by all users: any user who may open it may lock it. It is never deleted.

    Raises:
        GpuInUseError: another run has it; the message names that run's process and command.
        DeviceError: the file cannot be created, or is no plain file.
    """

    def __init__(self, uuid: str) -> None:
        path = lock_path(uuid)
        try:
            super().__init__(path, opener=_open_for_all)
        except OSError as error:
            raise DeviceError(
                f"GPU {uuid}: its lock {path} cannot be opened ({error.strerror}). It must be in {_SHARED_FOLDER}: "
                "have root make one (install -d -m 1777 /run/heshare-locks) and set HESHARE_LOCKS to it everywhere."
            ) from error
        try:
            self._take(uuid)
        except BaseException:
            self.close()
            raise

    def _take(self, uuid: str) -> None:
        start_s = time.monotonic()
        while not self.acquire():
            holder = os.pread(self.descriptor, 4096, 0).decode(errors="replace").strip()
            # The cleanup process of a killed run has the lock for a while, and the run takes a moment to end.
            if time.monotonic() - start_s > (_CLEANUP_S if _has_ended(holder) else _EXIT_S):
                raise GpuInUseError(
                    f"GPU {uuid}: another run has it: {printable(holder)[:500] or 'a process without a name'}. "
                    "Wait for it to end, or use other GPUs. Any user can hold this lock and write that line: "
                    "`lslocks`, as root, shows the process that has it."
                )
            time.sleep(0.05)
        if fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & os.O_RDWR:
            command, place = " ".join(shlex.join(sys.orig_argv).split()), ProcessLocation.here()
            with suppress(OSError):  # on a full disk only the text is missing; the lock is valid
                os.ftruncate(self.descriptor, 0)
                text = f"process {os.getpid()}: {command}"[:3800] + f"\n{place}"
                os.pwrite(self.descriptor, text.encode(), 0)


def _open_for_all(path: Path, _: int) -> int:
    """Open the file of a lock, never through a link.

    An existing file is opened without O_CREAT, which Linux may refuse in a folder for all users, also to root
    (fs.protected_regular). A lock needs no write permission; files of earlier releases may not grant it to others.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            try:
                descriptor = os.open(path, os.O_RDWR | flags)
            except PermissionError:
                descriptor = os.open(path, os.O_RDONLY | flags)
            break
        except FileNotFoundError:
            try:
                made = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | flags, 0o666)
            except FileExistsError:
                continue
            try:
                os.fchmod(made, 0o666)  # independent of the umask
            finally:
                os.close(made)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a plain file")
    return descriptor


def _has_ended(holder: str) -> bool:
    """Return whether the process that a lock names has ended; False for one of another container."""
    match = re.fullmatch(r"process (\d{1,9}):.*\n(.*)", holder)
    if match is None or match[2] != str(ProcessLocation.here()):
        return False
    return not alive(int(match[1]), started_at(int(match[1])))


def lock_path(uuid: str) -> Path:
    """Return the file of a GPU's lock, in the same folder for every user: `$HESHARE_LOCKS`, or `/run/lock`."""
    return Path(os.environ.get("HESHARE_LOCKS") or _FOLDER) / f"heshare-{uuid}.lock"
