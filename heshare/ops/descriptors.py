"""File descriptors of a run: as many as the system allows, some of them kept for its end; and what a shortage is."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from heshare.shared.errors import DeviceError

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_MOST = 65536  # some programs close every descriptor up to the limit when they start, which may be a billion
_KEPT = 32
_before: list[int] = []


class ShortageError(DeviceError):
    """The system has no descriptor, process or memory at the moment: nobody's failure, and worth a wait."""


def start_error(what: str, error: Exception) -> DeviceError:
    """Return the error of a process that could not be started."""
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in _SHORTAGES:
        return ShortageError(f"{what} does not start: {why}.")
    return DeviceError(f"{what} does not start: {why}. Check {getattr(error, 'filename', None) or 'the command'}.")


def inherited_limit() -> int:
    """Return the soft limit that this process was given, which its jobs get as well."""
    return _before[0] if _before else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextmanager
def raised_limit() -> Iterator[None]:
    """Raise the soft limit of descriptors to the hard one, at most 65,536, within the `with`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    _before.append(soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_before.pop(), hard))


def keep_some(exits: ExitStack) -> None:
    """Hold descriptors back until the callbacks that `exits` has now are called: these need some."""
    for _ in range(_KEPT):
        exits.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
