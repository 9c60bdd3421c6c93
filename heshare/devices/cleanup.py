"""Putting things in order however the process ends: normally, by an exception, or by a signal that would kill it."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process without a word; SIGINT is an exception in Python, and SIGKILL cannot be caught."""

_duties: list[tuple[int, Callable[[], None]]] = []
_before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}


def at_end(duty: Callable[[], None]) -> Callable[[], None]:
    """Have `duty` called at the end of this process, unless it is called off.

    Duties are called last first, each at most once, and never in a forked child. Signal handlers are set only from
    the main thread; elsewhere `duty` still runs at a normal end.

    Args:
        duty: what to do; its exceptions are swallowed, since the others must still run.

    Returns:
        A function that calls it off; it may be called more than once.
    """
    entry = (os.getpid(), duty)
    if not _duties:
        atexit.register(_run)
        _catch()
    _duties.append(entry)

    def off() -> None:
        if entry in _duties:
            _duties.remove(entry)
        if not _duties:
            atexit.unregister(_run)
            _release()

    return off


def _run() -> None:
    while _duties:
        pid, duty = _duties.pop()
        if pid == os.getpid():
            try:
                duty()
            except Exception:  # the other duties must run, and nobody is left to tell
                continue


def _catch() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            _before[number] = signal.signal(number, _on_signal)


def _release() -> None:
    if threading.current_thread() is threading.main_thread():
        for number, handler in list(_before.items()):
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            del _before[number]


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Do the duties, then let the signal do what it would have done."""
    _run()
    _release()
    os.kill(os.getpid(), number)
