"""Handlers of the signals that end a process: a stack of handlers, and callbacks at the end of the process.

`handling` puts a handler on the stack; a signal goes to the innermost one. Without any, the callbacks of `at_end` are
called and the signal then does what it would have done. A signal that this process ignores, as `nohup` has it ignore
SIGHUP, stays ignored. The dispositions that were there before are restored once nothing is left to handle.
"""

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process without an exception; SIGINT raises one in Python, and SIGKILL cannot be caught."""
ENDING_SIGNALS = (signal.SIGINT, *TERMINATING_SIGNALS)

_callbacks: list[tuple[int, Callable[[], None]]] = []
_handlers: list[Callable[[int], None]] = []
_dispositions: dict[int, Any] = {}


def at_end(callback: Callable[[], None]) -> Callable[[], None]:
    """Have `callback` called at the end of this process, unless the function that is returned cancels it.

    Callbacks are called last first, each at most once, and never in a forked child; their exceptions are swallowed.
    Signals are handled only if this is called from the main thread; elsewhere `callback` runs at a normal end alone.
    """
    entry = (os.getpid(), callback)
    if not _callbacks:
        atexit.register(_call_back)
    _callbacks.append(entry)
    _update()

    def cancel() -> None:
        if entry in _callbacks:
            _callbacks.remove(entry)
        if not _callbacks:
            atexit.unregister(_call_back)
        _update()

    return cancel


@contextmanager
def handling(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of each of `ENDING_SIGNALS` that comes meanwhile; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _handlers.append(handler)
    _update()
    try:
        yield
    finally:
        _handlers.remove(handler)
        _update()


class Interrupted(BaseException):
    """A signal that ends the run in order."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class InterruptHandler:
    """A handler that raises `Interrupted` at the first signal and ignores further ones."""

    def __init__(self) -> None:
        self._ignores = False

    def ignore(self) -> None:
        self._ignores = True

    def __call__(self, number: int) -> None:
        if not self._ignores:
            self._ignores = True
            raise Interrupted(number)


def ignore(numbers: Iterable[int] = ENDING_SIGNALS) -> None:
    """Have this process ignore signals from now on: another process ends it."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _update() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    handled = ENDING_SIGNALS if _handlers else TERMINATING_SIGNALS if _callbacks else ()
    for number in ENDING_SIGNALS:
        if number in handled and number not in _dispositions and signal.getsignal(number) != signal.SIG_IGN:
            _dispositions[number] = signal.signal(number, _on_signal)
        elif number not in handled and number in _dispositions:
            before = _dispositions.pop(number)
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, signal.SIG_DFL if before is None else before)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _handlers:
        _handlers[-1](number)
    else:
        _call_back()
        _update()
        os.kill(os.getpid(), number)


def _call_back() -> None:
    while _callbacks:
        pid, callback = _callbacks.pop()
        if pid == os.getpid():
            try:
                callback()
            except Exception:  # the other callbacks must run, and nothing is left that could report it
                continue
