"""Relative standard uncertainty of an estimated time or power, by what the estimate is based on.

The uncertainties are conformal: the 90 % interval of a group is a quantile of the absolute log errors of laboratories
that were left out of the fit, raised for their small number (`heshare.lab.calibration.left_out`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

NORMAL_90 = 1.645
"""Standard deviations to both sides of a normal 90 % interval."""
CELL, CARD, NONE = "cell", "card", "none"
"""What an estimate is based on: rows of this network on this GPU in this precision, rows of other networks on this GPU
in this precision, or rows of other GPUs alone."""
SUPPORTS = (CELL, CARD, NONE)
ALONE, SHARED = "alone", "shared"


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Relative standard uncertainty of an estimate (standard deviation of the logarithm).

    The 90 % interval of an estimate x is x exp(-1.645 total) to x exp(1.645 total).

    Attributes:
        total: against any measurement.
        within_framework: against measurements of the program and host that the fit saw. It is also that of ratios of
            estimates inside one program on one host, such as of two clocks.
    """

    total: float = 0.0
    within_framework: float = 0.0

    def interval(self, estimate: float, deviations: float = NORMAL_90) -> tuple[float, float]:
        """Return (low, high) of an estimate, by default of its 90 % interval."""
        factor = math.exp(deviations * self.total)
        return estimate / factor, estimate * factor

    def beside(self, total: float, within_framework: float) -> "Uncertainty":
        """Return the uncertainty with a further independent cause."""
        return Uncertainty(math.hypot(self.total, total), math.hypot(self.within_framework, within_framework))


@dataclass(frozen=True, slots=True)
class Spreads:
    """Uncertainties by group.

    Attributes:
        groups: by (quantity, support, sharing): quantity `time` or `power`, support one of `SUPPORTS`, sharing `alone`
            or `shared`. Further quantities have no support: `limit`, of times under a power limit; `slowdown`, of the
            slowdown by co-runners for workloads that have a model of their own, by way of sharing (`mps`,
            `time-slice`, or `mig` per e-fold of slices below those of the whole GPU); `idle`, of idle power; `host`,
            of hosts around the median one.
    """

    groups: Mapping[tuple[str, str, str], Uncertainty] = field(default_factory=dict)

    def of(self, quantity: str, support: str = "", sharing: str = "") -> Uncertainty:
        """Return the uncertainty of a group; 0 for one that was not fitted."""
        return self.groups.get((quantity, support, sharing), Uncertainty())

    def beside(self, sharing: str, co_runners: int) -> float:
        """Return the spread of the effect of so many co-runners in a way of sharing, one of `workload.SHARINGS`."""
        if sharing.startswith("mig-"):
            return self.of("slowdown", "", "mig").total * math.log(_WHOLE_SLICES / int(sharing[4:-1]))
        way = "time-slice" if sharing == "time-slice" else "mps"
        return self.of("slowdown", "", way).total * math.sqrt(co_runners)


_WHOLE_SLICES = 7
LIMITED = 0.02
"""Relative standard deviation of the power of a card at its limit; assumed."""


def under_limit(power: Uncertainty, power_w: float, demand_w: float) -> Uncertainty:
    """Return the uncertainty of a power that a limit holds at `power_w`: what demand may fall short of the limit."""
    if demand_w <= power_w:
        return power
    missing = math.log(demand_w / power_w) / NORMAL_90
    total, within = (max(0.0, each - missing) for each in (power.total, power.within_framework))
    return Uncertainty(math.hypot(LIMITED, total), math.hypot(LIMITED, within))
