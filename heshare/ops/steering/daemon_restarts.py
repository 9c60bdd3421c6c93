"""When a daemon that ends again and again is started again: after growing pauses, and at last no more."""

import math
from collections.abc import Sequence

CALM_S = 600.0
"""After so long without an end, the next one is the first again, s."""
MOST = 10
"""Ends of one run after which a daemon is not started again, however far apart they are."""


class DaemonRestarts:
    """The restarts of one daemon.

    Args:
        pauses_s: before the first restart, the second, ... of ends that follow one another, s; then it is given up.
    """

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = tuple(pauses_s)
        self._count = self._row = 0
        self._last_s = -math.inf

    def pause_s(self, now_s: float) -> float:
        """Return how long to wait, s, before a daemon that has ended now is started again; `inf` for never."""
        self._row = 0 if now_s - self._last_s > CALM_S else self._row
        self._row, self._count, self._last_s = self._row + 1, self._count + 1, now_s
        return math.inf if self._row > len(self._pauses_s) or self._count > MOST else self._pauses_s[self._row - 1]
