"""The events of a run as lines on standard error, as they happen: plain text, or one JSON object a line.

Everything that an operator must hear of goes through `OperatorLog.tell`. A line that cannot be written is dropped: no
terminal, pipe or disk may end a run.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TextIO

from heshare.shared.display import printable
from heshare.shared.standard_streams import dropping


class Note(str):
    """A note for the operator, in the report and at once as an event.

    Attributes:
        event: the name of the event, such as `gpu-lost`.
        said: the note without the time of the run before it.
    """

    event: str
    said: str

    @classmethod
    def at(cls, time_s: float, text: str, event: str) -> "Note":
        note = cls(f"{time_s:.1f} s: {text}")
        note.event, note.said = event, text
        return note


class OperatorLog:
    """Where the operator is told of events and progress.

    `stream` is standard error, or None to say nothing. With `as_json` events are JSON objects, one a line, with `time`
    (ISO 8601), `event`, `gpu` (UUID), `job`, `text`; progress is then an event like the others. `now` is the time of
    day.
    """

    def __init__(
        self, stream: TextIO | None = None, *, as_json: bool = False, now: Callable[[], datetime] | None = None
    ) -> None:
        self._stream, self._as_json = dropping(stream), as_json
        self._now = now or (lambda: datetime.now().astimezone())
        self._line_open = False

    @property
    def interactive(self) -> bool:
        """Whether progress is one line that is written again and again, on a terminal."""
        if self._stream is None or self._as_json:
            return False
        with suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def tell(self, event: str, text: str, *, gpu: str = "", job: str = "") -> None:
        """Tell the operator of an event, by its name for machines and a text; `gpu` is a UUID."""
        if self._stream is None:
            return
        now = self._now()
        if self._as_json:
            fields = {"time": now.isoformat(timespec="milliseconds"), "event": event, "gpu": gpu, "job": job}
            self._write(json.dumps({**fields, "text": text}) + "\n")
            return
        about = ", ".join(part for part in (gpu, job) if part)
        flat = " ".join(f"{about}: {text}".split() if about else text.split())
        clear = "\r\033[K" if self._line_open else ""
        self._write(f"{clear}{now:%H:%M:%S} {printable(flat)}\n")
        self._line_open = False

    def show(self, text: str, *, last: bool = False) -> None:
        """Show the progress: rewritten on a terminal, a line each time elsewhere; `last` ends the line."""
        if self._as_json:
            self.tell("progress", text)
        elif self.interactive:
            self._write(f"\r\033[K{text}" + ("\n" if last else ""))
            self._line_open = not last
        else:
            self._write(text + "\n")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
