"""Signals that would end a run at once, made into an exception that ends it in order."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(BaseException):
    """A signal asks the run to end in order.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Interrupts:
    """What this process does about signals; `listen` first, from the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def listen(self) -> None:
        """Have them raise `Interrupted`. May be repeated, where others have put handlers of their own."""
        for number in SIGNALS:
            before = self._before.setdefault(number, signal.getsignal(number))
            # What was told to be ignored, as `nohup` does with SIGHUP, stays so.
            signal.signal(number, signal.SIG_IGN if before == signal.SIG_IGN else _interrupt)

    def ignore(self) -> None:
        """Have them wait, while everything is put in order."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Leave them to whom they were before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: a second signal must not tear apart what the first one has begun.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
