"""Time of the event loop: virtual time for emulated and recorded devices, wall time for real ones; scheduled events."""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from heshare.policies.policy import EventKind

COMPLETION = EventKind.COMPLETION.value
ARRIVAL = EventKind.ARRIVAL.value
TICK = EventKind.TICK.value
"""Priorities of scheduled calls at one moment."""
MOMENT_S = 1e-9
"""Events that are at most so far apart are at one moment, s: sums of times differ in the last bits. Rounding is larger
than this only after some 100 days."""


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
        self._now_s = max(self._now_s, time_s)
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


class Scheduled(NamedTuple):
    """A call at a time: `call(now_s, *arguments)`. Its first three fields are its place in the total order."""

    time_s: float
    priority: int
    sequence: int
    call: Callable[..., None]
    arguments: tuple[Any, ...]


class EventQueue:
    """Scheduled calls in the total order (moment, priority, sequence): of equal ones, the one scheduled first.

    A moment is all that is at most `MOMENT_S` after the earliest scheduled call.
    """

    def __init__(self) -> None:
        self._heap: list[Scheduled] = []
        self._sequence = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def schedule(self, time_s: float, priority: int, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule `call(now_s, *arguments)` at `time_s`."""
        self._sequence += 1
        heappush(self._heap, Scheduled(time_s, priority, self._sequence, call, arguments))

    def earliest(self) -> Scheduled:
        """Return the call with the earliest time."""
        return self._heap[0]

    def discard_earliest(self) -> None:
        """Remove the call with the earliest time."""
        heappop(self._heap)

    def pop(self) -> Scheduled:
        """Remove and return the next call in the total order."""
        first = heappop(self._heap)
        last_s = first.time_s + MOMENT_S
        if first.priority == COMPLETION or not self._heap or self._heap[0].time_s > last_s:
            return first

        # A call of the same moment, later by rounding alone, may have been made before this one.
        moment = [first]
        while self._heap and self._heap[0].time_s <= last_s:
            moment.append(heappop(self._heap))
        chosen = min(moment, key=lambda each: (each.priority, each.time_s, each.sequence))
        for other in moment:
            if other is not chosen:
                heappush(self._heap, other)
        return chosen
