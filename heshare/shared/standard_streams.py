"""Standard streams whose writes never fail: text that cannot be written is dropped.

A closed terminal, a pipe whose reader has ended or does not read, or a full disk must not end a run.
"""

import io
import os
import select
import sys
from contextlib import suppress
from typing import TextIO

PATIENCE_S = 1.0
"""How long to wait for a blocked reader, s; after that text is dropped until it reads again."""


def fill_closed() -> None:
    """Open /dev/null in place of each closed standard stream; else the next opened file would get its number."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            stream = os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


class DroppingWriter(io.RawIOBase):
    """Writes to a descriptor and drops what cannot be written. The descriptor stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._patience_s = PATIENCE_S

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        rest = content
        while rest and self._takes_more():
            try:
                # A pipe that is ready for writing accepts PIPE_BUF bytes without blocking.
                rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
            except OSError:
                break
        return len(content)

    def _takes_more(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._descriptor, select.POLLOUT)
            ready = bool(poll.poll(1e3 * self._patience_s))
        except OSError:
            return False
        self._patience_s = PATIENCE_S if ready else 0.0
        return ready


def dropping(stream: TextIO | None) -> TextIO | None:
    """Return a stream to the same descriptor whose writes never fail; the stream itself if it has no descriptor."""
    if stream is None:
        return None
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return stream
    with suppress(OSError, ValueError):
        stream.flush()
    buffer = io.BufferedWriter(DroppingWriter(descriptor))
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", write_through=True, line_buffering=True)


def print_or_drop(text: str) -> str:
    """Print a text to standard output; return the reason if it cannot be written, else an empty text."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        # Text left in the buffer must not cause another error when the process exits.
        with suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.close(nothing)
        return getattr(error, "strerror", None) or str(error)
    return ""
