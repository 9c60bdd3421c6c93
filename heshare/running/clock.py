"""Time of the event loop: virtual time for emulated and recorded devices, wall time for real ones; scheduled events."""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from heshare.policies.policy import EventKind


class Clock(Protocol):
    """The time of a run, s. Zero is its start."""

    def now_s(self) -> float:
        """Return the time since the start of the run, s."""
        ...

    def wait_until(self, time_s: float) -> float:
        """Wait until `time_s`, or not at all if that has passed; return the time since the start of the run, s."""
        ...


class VirtualClock:
    """Virtual time, which jumps to the next event."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Return the time of the latest event, s."""
        return self._now_s

    def wait_until(self, time_s: float) -> float:
        """Jump to `time_s` and return the time; it never goes back."""
        if time_s > self._now_s:
            self._now_s = time_s
        return self._now_s


class WallClock:
    """Wall time in seconds since this clock was made. The real devices of a cluster share it."""

    def __init__(self) -> None:
        self._origin_s = time.monotonic()

    def now_s(self) -> float:
        """Return the seconds since the clock was made."""
        return time.monotonic() - self._origin_s

    def wait_until(self, time_s: float) -> float:
        """Sleep until a time since the start of the run, s; return the time then."""
        left_s = time_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s)
        return self.now_s()


_Scheduled = tuple[float, int, int, Callable[..., None], tuple[Any, ...]]

COMPLETION, ARRIVAL, TICK = (kind.value for kind in (EventKind.COMPLETION, EventKind.ARRIVAL, EventKind.TICK))
"""Priorities of scheduled calls at one moment."""
MOMENT_S = 1e-9
"""Events that are at most so far apart are at one moment, s: sums of times differ in the last bits. Rounding is larger
than this only after some 100 days."""


class EventQueue:
    """Scheduled calls in the total order (moment, priority, sequence): of equal ones, the one scheduled first.

    A moment is all that is at most `MOMENT_S` after the earliest scheduled call. `heap` are the calls, the earliest
    first: time, priority, sequence, call and arguments.
    """

    def __init__(self) -> None:
        self.heap: list[_Scheduled] = []
        self._sequence = 0

    def schedule(self, time_s: float, priority: int, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule `call(now_s, *arguments)` at `time_s`."""
        self._sequence += 1
        heappush(self.heap, (time_s, priority, self._sequence, call, arguments))

    def first_of_moment(self, earliest: _Scheduled) -> _Scheduled:
        """Remove and return the first call, by priority, of the moment of the earliest one, already removed."""
        event, at_once = earliest, [earliest]
        while event[1] and self.heap and self.heap[0][0] <= earliest[0] + MOMENT_S:
            at_once.append(heappop(self.heap))
            event = min(event, at_once[-1], key=lambda each: (each[1], each[0], each[2]))
        for other in at_once:
            if other is not event:
                heappush(self.heap, other)
        return event
