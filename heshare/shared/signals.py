"""Signals that end a process: a handler for a time, and an exception by which a run ends in order."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process, but for SIGKILL, which cannot be caught."""


@contextmanager
def handling(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of each of `ENDING_SIGNALS` that comes meanwhile; in the main thread only.

    A signal that this process ignores, as `nohup` has it ignore SIGHUP, stays ignored. What held before holds again
    afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        handler(number)

    before = {}
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, disposition in before.items():
            signal.signal(number, signal.SIG_DFL if disposition is None else disposition)


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
        """Ignore signals from now on."""
        self._ignores = True

    def __call__(self, number: int) -> None:
        if not self._ignores:
            self._ignores = True
            raise Interrupted(number)


def ignore(numbers: Iterable[int] = ENDING_SIGNALS) -> None:
    """Have this process ignore signals from now on: another process ends it."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
