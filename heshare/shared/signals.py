"""Handling of termination signals: a temporary handler, and an exception for an orderly end of a run."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process and can be caught (SIGKILL cannot)."""


@contextmanager
def handling(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of each of `ENDING_SIGNALS` received in this block; in the main thread only.

    Signals that this process ignores, such as SIGHUP under `nohup`, stay ignored. The previous handlers are restored
    at the end.
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
    """A signal requests an orderly end of the run."""

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
    """Ignore signals in this process from now on: another process ends it."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
