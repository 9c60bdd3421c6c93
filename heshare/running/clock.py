"""Time of the event loop: virtual time for emulated and recorded devices, wall time for real ones; scheduled events."""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol


class Clock(Protocol):
    """The time of a run, s. Zero is its start."""

    def now_s(self) -> float:
        """Return the time since the start of the run, s."""
        ...

    def wait_until(self, time_s: float) -> None:
        """Wait until `time_s`; return at once if that has passed."""
        ...


class VirtualClock:
    """Virtual time, which jumps to the next event."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Return the time of the latest event, s."""
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        """Jump to `time_s`; time never goes back."""
        self._now_s = max(self._now_s, time_s)


class WallClock:
    """Wall time in seconds since this clock was made. The real devices of a cluster share it."""

    def __init__(self) -> None:
        self._origin_s = time.monotonic()

    def now_s(self) -> float:
        """Return the seconds since the clock was made."""
        return time.monotonic() - self._origin_s

    def wait_until(self, time_s: float) -> None:
        """Sleep until a time since the start of the run, s."""
        left_s = time_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s)


class EventQueue:
    """Scheduled calls in the total order (time, priority, sequence): of equal ones, the one scheduled first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The time of the next event, s."""
        return self._heap[0][0]

    def schedule(self, time_s: float, priority: int, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule `call(now_s, *arguments)` at `time_s`."""
        self._sequence += 1
        heappush(self._heap, (time_s, priority, self._sequence, call, arguments))

    def pop(self) -> tuple[float, Callable[..., None], tuple[Any, ...]]:
        """Remove the next event and return its time, call and arguments."""
        time_s, _, _, call, arguments = heappop(self._heap)
        return time_s, call, arguments
