"""Samples of a card for the executor: all readings in one message, any of which may be missing.

A reading that fails is noted once, and the run goes on without it. Only `GpuLostError` ends the use of a card.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heshare.ops.nvml.binding import GpuLostError, NvmlError
from heshare.ops.nvml.card_process import value_of
from heshare.ops.nvml.guarded_gpu import PATIENCE_S, GuardedGpu

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

    Attributes:
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


_WITHOUT = {
    "clock": "its clock is unknown",
    "power": "its power is taken from the energy counter",
    "energy counter": "its energy is the integral of the power readings",
    "limits": "what holds the clock down is unknown",
    "free memory": "other processes' memory on it is unknown",
    "health": "Xid and ECC errors are not seen",
}


@dataclass(frozen=True, slots=True)
class CardSample:
    """The readings of a card at one moment; NaN for those that are missing.

    Attributes:
        power_w: board power, W; without a reading the mean since the last sample, by the counter.
        energy_j: energy since the first sample, J.
        limits: what holds the clock down.
        free_mib: memory that no process holds, MiB.
    """

    sm_mhz: float
    power_w: float
    energy_j: float
    limits: tuple[str, ...]
    free_mib: float


class CardSampler:
    """Takes the samples of a card, and finds out whether it may be given new jobs.

    Args:
        power: the call for its power, `instant_power_w` or `usage_power_w`.

    Attributes:
        counter_j: its energy counter when it was last read, J; NaN if it never was.
        drained: the error after which nothing new may start on it; empty if there was none.
    """

    def __init__(self, card: GuardedGpu, power: str, limit_w: float, note: Callable[[str], None]) -> None:
        self._card, self._note = card, note
        self._calls = (("sm_mhz",), (power,), ("energy_j",), ("limits",), ("memory_mib",), ("health",))
        self._missing: set[str] = set()
        self._before: tuple[float, float] | None = None
        self.energy = EnergyAccount(limit_w, note)
        self.counter_j = math.nan
        self.drained = ""

    @property
    def silent_s(self) -> float:
        return self._card.silent_s

    def sample(self, *, wait_s: float = PATIENCE_S) -> CardSample | None:
        """Return a sample, or None if the card has not replied yet."""
        answers = self._card.poll(self._calls, wait_s=wait_s)
        if answers is None:
            return None
        clock, power, counter, limits, memory, health = answers
        events = self._value("health", health, ())
        for drains, event in events:
            self._note(event)
            if drains and not self.drained:
                self.drained = event
        power_w, counter_j = self._value("power", power, math.nan), self._value("energy counter", counter, math.nan)
        now_s = time.monotonic()
        self.energy.add(now_s, counter_j, power_w)
        self.counter_j = self.counter_j if math.isnan(counter_j) else counter_j
        before, self._before = self._before, (now_s, self.energy.energy_j)
        if math.isnan(power_w) and before is not None and not math.isnan(counter_j):
            power_w = (self.energy.energy_j - before[1]) / max(now_s - before[0], 1e-3)
        return CardSample(
            self._value("clock", clock, math.nan),
            power_w,
            self.energy.energy_j,
            self._value("limits", limits, ()),
            self._value("free memory", memory, (math.nan, math.nan))[1],
        )

    def _value(self, name: str, answer: Sequence[Any], missing: Any) -> Any:
        try:
            value = value_of(answer)
        except GpuLostError:
            raise
        except NvmlError as error:
            if name not in self._missing:
                self._missing.add(name)
                self._note(f"no reading of {name}, so {_WITHOUT[name]}: {error}")
            return missing
        return value
