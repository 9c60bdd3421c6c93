"""Log of a run's events and progress on standard error; lines that cannot be written are dropped."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TextIO

from heshare.shared.display import printable
from heshare.shared.standard_streams import dropping


def timed(time_s: float, text: str) -> str:
    """Return a message with its time since the start of the session, s."""
    return f"{time_s:.1f} s: {text}"


class OperatorLog:
    """Prints events and progress for the operator.

    `stream` is standard error, or None to print nothing; `now` returns the time of day.
    """

    def __init__(self, stream: TextIO | None = None, *, now: Callable[[], datetime] | None = None) -> None:
        self._stream = dropping(stream)
        self._now = now or (lambda: datetime.now().astimezone())
        self._line_open = False

    @property
    def interactive(self) -> bool:
        """Whether `stream` is a terminal, on which progress is one line that is overwritten."""
        if self._stream is None:
            return False
        with suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def event(self, text: str, *, gpu: str = "", job: str = "") -> None:
        """Print an event; `gpu` is a UUID."""
        about = ", ".join(part for part in (gpu, job) if part)
        flat = " ".join(f"{about}: {text}".split() if about else text.split())
        clear = "\r\033[K" if self._line_open else ""
        self._write(f"{clear}{self._now():%H:%M:%S} {printable(flat)}\n")
        self._line_open = False

    def show(self, text: str, *, last: bool = False) -> None:
        """Print the progress: overwritten on a terminal, else one line each time; `last` ends the line."""
        if self.interactive:
            self._write(f"\r\033[K{text}" + ("\n" if last else ""))
            self._line_open = not last
        else:
            self._write(text + "\n")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
