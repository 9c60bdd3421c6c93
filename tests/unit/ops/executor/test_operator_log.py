"""Events of a run for the operator: one line of plain text each, on a terminal or any other stream."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from heshare.ops.executor.operator_log import OperatorLog, timed

NOON = datetime(2026, 5, 1, 12, 0, 1, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_event_line():
    """An event is one line with the time of day, the GPU and the job, without control characters."""
    stream = io.StringIO()
    log = OperatorLog(stream, now=lambda: NOON)
    log.event("it has\nfallen off", gpu="GPU-1", job="a")
    log.show("3 s: 1 running")
    log.event("dying \x1b]0;owned\x07\x9b2J \u202ebackwards", job="a\x1b[1m")
    first, progress, last = stream.getvalue().splitlines()
    assert (first, progress) == ("12:00:01 GPU-1, a: it has fallen off", "3 s: 1 running")
    assert last.isprintable()
    assert timed(1.25, "lost") == "1.2 s: lost"


def test_terminal():
    """On a terminal an event clears the progress line first."""
    stream = Terminal()
    log = OperatorLog(stream, now=lambda: NOON)
    log.show("1 s")
    log.event("x")
    log.show("2 s", last=True)
    log.event("y")
    assert stream.getvalue() == "\r\033[K1 s\r\033[K12:00:01 x\n\r\033[K2 s\n12:00:01 y\n"


def test_closed_stream():
    """What cannot be written is dropped."""
    for stream in (Gone(), None):
        OperatorLog(stream).event("x")
        OperatorLog(stream).show("x", last=True)
