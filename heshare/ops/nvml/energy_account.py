"""Energy of a card since an account of it was opened: its counter, each step checked against what the card can draw."""

from __future__ import annotations

import math
from collections.abc import Callable

HEADROOM = 1.5
"""A step of the counter is believed up to this multiple of power limit x time: power overshoots its limit."""
LAG_S = 1.0
"""The counter may lag: a step may hold the energy of so much more time, s (it is updated about every 0.1 s)."""
_MOST_NOTES = 5


class EnergyAccount:
    """The energy of a card, J, which never goes down.

    A step of the counter that is negative, or more than the card can draw, is replaced by the integral of the power
    readings. So is a time without a counter, until the counter is read again. Where power is missing as well, nothing
    is added and the time counts as unknown.

    Args:
        limit_w: the card's power limit, W.
        note: is called with a note for the operator.

    Attributes:
        energy_j: so far, J.
        estimated_j: the part of it that is an integral of power readings, J.
        unknown_s: the time whose energy is not in it, s.
    """

    def __init__(self, limit_w: float, note: Callable[[str], None]) -> None:
        self.energy_j = self.estimated_j = self.unknown_s = 0.0
        self._limit_w, self._note, self._notes = limit_w, note, 0
        self._last: tuple[float, float] | None = None
        # Time and value of the last counter reading that was believed, and the account at that time.
        self._counter: tuple[float, float] | None = None
        self._then = (0.0, 0.0, 0.0)

    def add(self, time_s: float, counter_j: float, power_w: float) -> None:
        """Add the readings of one moment; NaN for those that are missing."""
        before, self._last = self._last, (time_s, power_w)
        known = not math.isnan(counter_j)
        if known and self._counter is not None:
            since_s, step_j = time_s - self._counter[0], counter_j - self._counter[1]
            if 0.0 <= step_j <= self._limit_w * (HEADROOM * since_s + LAG_S):
                then_j, self.estimated_j, self.unknown_s = self._then
                self.energy_j = max(self.energy_j, then_j + step_j)
            else:
                self._integrate(before, time_s, power_w)
                self._tell(step_j, since_s)
        else:
            self._integrate(before, time_s, power_w)
        if known:
            self._counter, self._then = (time_s, counter_j), (self.energy_j, self.estimated_j, self.unknown_s)

    def _integrate(self, before: tuple[float, float] | None, time_s: float, power_w: float) -> None:
        """Add the mean of the power readings over the time since the moment before."""
        if before is None:
            return
        powers_w = [value for value in (before[1], power_w) if not math.isnan(value)]
        if powers_w:
            spent_j = sum(powers_w) / len(powers_w) * (time_s - before[0])
            self.energy_j += spent_j
            self.estimated_j += spent_j
        else:
            self.unknown_s += time_s - before[0]

    def _tell(self, step_j: float, since_s: float) -> None:
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            last = " (further ones are not noted)" if self._notes == _MOST_NOTES else ""
            self._note(
                f"the energy counter moved by {step_j:.6g} J in {since_s:.1f} s, which a card of {self._limit_w:.0f} W "
                f"cannot: the integral of the power readings is used for this time{last}"
            )
