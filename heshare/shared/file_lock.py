"""Advisory file locks (flock), which the kernel releases when the last process that holds them ends."""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_PROBE_S = 0.02
"""Longest time for which `is_locked` holds a lock while it tests it, s."""
_POLL_S = 0.01


class FileLock:
    """An exclusive lock on a whole file; a process that inherits the descriptor holds it too.

    The file is created, with `mode`, if it does not exist. `opener` opens it instead of `os.open`, given path and
    flags. `descriptor` is -1 once it is closed.
    """

    def __init__(
        self, path: Path, *, mode: int = 0o644, flags: int = 0, opener: Callable[[Path, int], int] | None = None
    ) -> None:
        self.path = path
        flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, mode) if opener is None else opener(path, flags)

    def acquire(self) -> bool:
        return take(self.descriptor, _PROBE_S)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def take(descriptor: int, wait_s: float) -> bool:
    """Take the exclusive lock of an open file; return whether it was free, or became free within `wait_s`."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def hold(path: Path, wait_s: float = 0.0) -> FileLock:
    """Open the file of a lock, private to this user and never through a link, and take the lock.

    Raises:
        BlockingIOError: another process holds it, also after `wait_s`.
    """
    lock = FileLock(path, mode=0o600, flags=os.O_NOFOLLOW)
    try:
        if not take(lock.descriptor, wait_s):
            raise BlockingIOError(errno.EAGAIN, "another process holds it", str(path))
    except OSError:
        lock.close()
        raise
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file; a file that cannot be read has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
