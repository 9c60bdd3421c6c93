"""File descriptors of a run: raised limit, a reserve for its cleanup, and the error of a shortage."""

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
    """The system lacks descriptors, processes or memory at the moment; the caller should wait and try again."""


def start_error(what: str, error: Exception) -> DeviceError:
    """Return the error of a process that could not be started, a `ShortageError` for a lack of resources."""
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in _SHORTAGES:
        return ShortageError(f"{what} does not start: {why}.")
    return DeviceError(f"{what} does not start: {why}. Check {getattr(error, 'filename', None) or 'the command'}.")


def inherited_limit() -> int:
    """Return the soft limit that this process inherited, which its jobs get too."""
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
    """Reserve descriptors until the present callbacks of `exits` are called, which need some."""
    for _ in range(_KEPT):
        exits.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
