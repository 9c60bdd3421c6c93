"""Time for the event loop: virtual for emulated and replayed devices, wall time for real ones; one loop for both."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the event loop asks of time. Zero is the start of the run."""

    def now_s(self) -> float:
        """The time now, s."""
        ...

    def wait_until(self, time_s: float) -> None:
        """Return when it is at least `time_s`; at once if that has passed."""
        ...


class VirtualClock:
    """Time that jumps to the next event."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The time of the latest event, s."""
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        """Jump to `time_s`; never back."""
        self._now_s = max(self._now_s, time_s)


class WallClock:
    """Time that passes, in seconds since this clock was made. Live devices of the cluster share it."""

    def __init__(self) -> None:
        self._origin_s = time.monotonic()

    def now_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._origin_s

    def wait_until(self, time_s: float) -> None:
        """Sleep until `time_s`."""
        left_s = time_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s)
