"""When a search has to end: a moment in time, a request to cancel it, or Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Protocol


class Cancel(Protocol):
    """A request to stop a search, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether the search is to stop with the front so far."""
        ...


class Deadline:
    """The end of a search: a moment, or earlier if it is cancelled.

    Args:
        until_s: the moment of `perf_counter`, s; infinite for none.
        cancel: asked each time whether the search is to stop; None for never.

    >>> Deadline(perf_counter() + 60.0).over(), Deadline(perf_counter()).over(), Deadline().over()
    (False, True, False)
    """

    def __init__(self, until_s: float = math.inf, cancel: Cancel | None = None) -> None:
        self.until_s, self._cancel = until_s, cancel

    def over(self) -> bool:
        """Return whether the search is cancelled, or its time is over."""
        return self.until_s <= perf_counter() or (self._cancel is not None and self._cancel.is_set())


class InterruptedSearchWarning(UserWarning):
    """Ctrl-C has ended a search early."""


class InterruptRequest:
    """Ctrl-C as a request to stop with the front so far, once there is a front; it is a `Cancel`.

    A search calls `is_set` only once it has a front. Ctrl-C before that, and a second one, raise `KeyboardInterrupt`.

    Args:
        cancel: a further request to stop, or None.

    Attributes:
        interrupted: whether Ctrl-C was pressed.
    """

    def __init__(self, cancel: Cancel | None = None) -> None:
        self._cancel, self._asked = cancel, False
        self.interrupted = False

    def is_set(self) -> bool:
        """Return whether Ctrl-C was pressed or the other request is set."""
        self._asked = True
        return self.interrupted or (self._cancel is not None and self._cancel.is_set())

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C meanwhile, in the main thread and unless somebody else handles it."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._asked:
            raise KeyboardInterrupt
        self.interrupted = True
