"""The energy of a card, by its energy counter if that is plausible, else by integration of its power readings."""

import math
from collections.abc import Callable

HEADROOM = 1.5
"""A counter step is plausible up to this multiple of power limit x time, since power overshoots its limit."""
LAG_S = 1.0
"""The counter may lag: a step may include the energy of this additional time, s (it is updated every 0.1 s or so)."""
STILL_S = 10.0
"""Time without a step after which a counter counts as stalled, s: some drivers do not advance it."""
_MOST_NOTES = 5


class EnergyAccount:
    """The energy of a card, J, which never decreases.

    A counter step that is negative, or more than the card can draw, is replaced by the integral of the power readings.
    So is a time without a counter, or with a stalled one although power is drawn, until the counter moves again. If
    power is missing as well, nothing is added and the time counts as unknown.

    Attributes:
        energy_j: the energy since the first reading, J.
        estimated_j: the part of it that is an integral of power readings, J.
        unknown_s: the time whose energy is not in it, s.
        stalled: whether the counter does not move although power is drawn.
    """

    def __init__(self, limit_w: float, note: Callable[[str], None]) -> None:
        self.energy_j = self.estimated_j = self.unknown_s = 0.0
        self._limit_w, self._note, self._notes = limit_w, note, 0
        self._last: tuple[float, float] | None = None
        # Time and value of the last accepted step of the counter, and the account at that time.
        self._counter: tuple[float, float] | None = None
        self._then = (0.0, 0.0, 0.0)
        # Since then: the integral of the power readings, J, and the time without any, s.
        self._integral_j = self._without_s = 0.0
        self.stalled = False

    def add(self, time_s: float, counter_j: float, power_w: float) -> None:
        """Add the readings of one time; NaN for missing ones."""
        self._integrate(time_s, power_w)
        if math.isnan(counter_j):
            self._estimate()
            return
        if self._counter is None:
            self._estimate()
            self._accept(time_s, counter_j)
            return

        since_s = time_s - self._counter[0]
        step_j = counter_j - self._counter[1]
        if step_j == 0.0:
            if since_s >= STILL_S and self._integral_j > 0.0:
                self._estimate()
                self._report_stalled_counter(since_s)
        elif 0.0 < step_j <= self._limit_w * (HEADROOM * since_s + LAG_S):
            then_j, self.estimated_j, self.unknown_s = self._then
            self.energy_j = max(self.energy_j, then_j + step_j)
            self._accept(time_s, counter_j)
        else:
            self._estimate()
            self._report_jump(step_j, since_s)
            self._accept(time_s, counter_j)

    def _accept(self, time_s: float, counter_j: float) -> None:
        self._counter = (time_s, counter_j)
        self._then = (self.energy_j, self.estimated_j, self.unknown_s)
        self._integral_j = self._without_s = 0.0
        self.stalled = False

    def _integrate(self, time_s: float, power_w: float) -> None:
        before, self._last = self._last, (time_s, power_w)
        if before is None:
            return
        took_s = time_s - before[0]
        powers_w = [value for value in (before[1], power_w) if not math.isnan(value)]
        if powers_w:
            self._integral_j += sum(powers_w) / len(powers_w) * took_s
        else:
            self._without_s += took_s

    def _estimate(self) -> None:
        """Use the integral of power as the energy since the last accepted step of the counter."""
        then_j, estimated_j, unknown_s = self._then
        self.energy_j = max(self.energy_j, then_j + self._integral_j)
        self.estimated_j = estimated_j + self._integral_j
        self.unknown_s = unknown_s + self._without_s

    def _report_stalled_counter(self, since_s: float) -> None:
        if not self.stalled:
            self.stalled = True
            self._report(
                f"the energy counter has stood still for {since_s:.0f} s while power is drawn: the integral of the "
                "power readings is used until it moves"
            )

    def _report_jump(self, step_j: float, since_s: float) -> None:
        self._report(
            f"the energy counter moved by {step_j:.6g} J in {since_s:.1f} s, which a card of {self._limit_w:.0f} W "
            "cannot: the integral of the power readings is used for this time"
        )

    def _report(self, text: str) -> None:
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            last = " (further ones are not noted)" if self._notes == _MOST_NOTES else ""
            self._note(text + last)
