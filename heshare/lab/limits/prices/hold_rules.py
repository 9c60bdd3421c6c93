"""Rules for when a start is worth holding back under a price or carbon signal.

Tasks that raise the power of their GPUs by P above idle for d seconds cost, if they start at t instead of now,

    C(t) = P S(t, t + d),    S(a, b) = integral of the signal from a to b

The GPUs' idle power is paid whether they wait or not. `SavingRule` holds a start until the t within the bound with the
largest

    (C(now) - C(t)) / C(now) - v (t - now)

if that is above zero: the part of its cost that waiting saves, less v, the part that each second of waiting must save.
C is linear between the steps of the signal, so t is a step, a step less d, or the bound.

Sources: the window of least carbon within a deadline for work that cannot be interrupted: Wiesner et al., Let's Wait
Awhile, Middleware 2021, doi:10.1145/3464298.3493399. Savings per waiting time: GAIA, Hanafy et al., Going Green for
Less Green, ASPLOS 2024 (umassos/GAIA). The bound for each GPU (`price_aware`) is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from heshare.lab.limits.prices.energy_signal import EnergySignal

SAVING_PER_HOUR = 0.1
"""Part of its cost that each hour of waiting must save for a start to be held."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Prediction for starts on one GPU, or on those of a gang.

    Attributes:
        power_w: by how much they raise the power of their GPUs, W.
        duration_s: time until the last of the started tasks ends, s.
    """

    power_w: float
    duration_s: float


class HoldRule(Protocol):
    """Rule that says until when to hold starts back."""

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        """Return when to start, s: `now_s`, or a later time, at most `limit_s`."""
        ...


@dataclass(frozen=True, slots=True)
class SavingRule:
    """Hold a start for as long as that saves most, if each hour of waiting saves enough of its cost.

    Attributes:
        signal: price or carbon over the time of the run.
        saving_per_hour: part of its cost that each hour of waiting must save, at least 0.

    Example: a batch of an hour, and a price that falls to half after half an hour.

    >>> rule = SavingRule(EnergySignal((0.0, 1800.0), (0.2, 0.1)))
    >>> batch = StartEstimate(power_w=250.0, duration_s=3600.0)
    >>> rule.release_s(0.0, 7200.0, batch), rule.release_s(0.0, 600.0, batch)
    (1800.0, 600.0)
    """

    signal: EnergySignal
    saving_per_hour: float = SAVING_PER_HOUR

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        """Return when to start, s."""
        now_cost = self._cost(now_s, estimate)
        if now_cost <= 0 or limit_s <= now_s:
            return now_s
        ends = self.signal.steps(now_s + estimate.duration_s, limit_s + estimate.duration_s)
        times = {limit_s, *self.signal.steps(now_s, limit_s), *[end_s - estimate.duration_s for end_s in ends]}
        best_s, best = now_s, 0.0
        for time_s in sorted(time_s for time_s in times if now_s < time_s <= limit_s):
            saved = 1.0 - self._cost(time_s, estimate) / now_cost
            gain = saved - self.saving_per_hour * (time_s - now_s) / 3_600.0
            # Rounding must not hold a start: at a constant price nothing is saved.
            if gain > best + 1e-9:
                best_s, best = time_s, gain
        return best_s

    def _cost(self, start_s: float, estimate: StartEstimate) -> float:
        return self.signal.amount(estimate.power_w, start_s, start_s + estimate.duration_s)


@dataclass(frozen=True, slots=True)
class CheapestHourRule:
    """Hold every start until the lowest value of the signal within the bound begins: the trivial baseline.

    Attributes:
        signal: price or carbon over the time of the run.
    """

    signal: EnergySignal

    def release_s(self, now_s: float, limit_s: float, estimate: StartEstimate) -> float:
        """Return when to start, s, whatever is started."""
        times = [now_s, *self.signal.steps(now_s, limit_s)]
        return min(times, key=lambda time_s: (self.signal.at(time_s), time_s))
