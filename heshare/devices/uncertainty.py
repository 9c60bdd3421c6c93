"""Relative standard uncertainty of an estimated time or power, by cause, and the constants that set it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

NORMAL_90 = 1.645
"""Standard deviations to both sides of a normal 90 % interval."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Relative standard uncertainty of an estimate, by independent causes (standard deviations of the logarithm).

    The 90 % interval of an estimate x is x exp(-1.645 total) to x exp(1.645 total).

    Attributes:
        fit: residual of the fit, inside the framework that was measured.
        framework: spread between frameworks and versions that run the same network.
        host: speed of the host, where the host limits the iteration.
        transfer: what was not measured on this GPU: another GPU, precision, engine, batch size, share or clock.
        contention: effect of the co-runners.
    """

    fit: float = 0.0
    framework: float = 0.0
    host: float = 0.0
    transfer: float = 0.0
    contention: float = 0.0

    @property
    def total(self) -> float:
        """Return the uncertainty of the estimate against any measurement: the root of the sum of squares."""
        return math.hypot(self.fit, self.framework, self.host, self.transfer, self.contention)

    @property
    def within_framework(self) -> float:
        """Return the uncertainty against measurements of the framework and host that the fit saw.

        It is also that of ratios of estimates inside one framework on one host, such as of two clocks.
        """
        return math.hypot(self.fit, self.transfer, self.contention)

    def interval(self, estimate: float, deviations: float = NORMAL_90) -> tuple[float, float]:
        """Return (low, high) of an estimate, by default of its 90 % interval."""
        factor = math.exp(deviations * self.total)
        return estimate / factor, estimate * factor


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations of the logarithm for each cause of uncertainty that no single row of constants holds.

    Attributes:
        cnn, transformer, decode: time of the same network in another framework, by its kind.
        tensor: the same, further, where tensor cores compute (FP16, TF32).
        host: time that the host needs to launch the same kernels.
        batch: time, per e-fold of batch size outside the measured range.
        share: time, per e-fold of MPS percentage below the measured ones.
        clock: time, per e-fold of clock below the top clock.
        contention: time beside one co-runner under MPS; it grows with the root of their number.
        time_slice: the same for time slices.
        mig: time in a MIG instance, per e-fold of slices below those of the whole GPU.
        limit: time under a power limit, per e-fold of the power without it over the limit.
        load: board power of a class of load that was not measured.
        voltage: dynamic power, per e-fold of clock below the top clock.
        idle: idle power.
    """

    cnn: float = 0.0
    transformer: float = 0.0
    decode: float = 0.0
    tensor: float = 0.0
    host: float = 0.0
    batch: float = 0.0
    share: float = 0.0
    clock: float = 0.0
    contention: float = 0.0
    time_slice: float = 0.0
    mig: float = 0.0
    limit: float = 0.0
    load: float = 0.0
    voltage: float = 0.0
    idle: float = 0.0

    def framework(self, kind: str, *, tensor_cores: bool) -> float:
        """Return the spread between frameworks of a kind of network, `cnn`, `transformer` or `decode`."""
        return math.hypot(float(getattr(self, kind)), self.tensor if tensor_cores else 0.0)

    def beside(self, sharing: str, co_runners: int) -> float:
        """Return the spread of the effect of so many co-runners in a way of sharing, one of `workload.SHARINGS`."""
        if sharing.startswith("mig-"):
            return self.mig * math.log(_WHOLE_SLICES / int(sharing[4:-1]))
        return (self.time_slice if sharing == "time-slice" else self.contention) * math.sqrt(co_runners)


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """What the uncertainty of a board power depends on.

    Attributes:
        power_w: the board power, W.
        demand_w: the power at the requested clock if there were no limit, W; above `power_w` where the limit acts.
        own_w: the power that the card's own limit would leave, W; above `power_w` where a lower one acts.
        idle_w: the part of it that the GPU draws with nothing running, W.
        load: activity of all residents, 1 for a full GPU.
        slowdown: top clock over the clock reached.
        load_uncertainty: relative uncertainty of the power of their classes of load; 0 if it is not known.
        residents: uncertainty of each resident's time alone.
    """

    power_w: float
    demand_w: float
    own_w: float
    idle_w: float
    load: float
    slowdown: float
    load_uncertainty: float
    residents: Sequence[Uncertainty]


_WHOLE_SLICES = 7
LIMITED = 0.02
"""Relative standard deviation of the power of a card at its limit; assumed."""


def outside(low: float, high: float, value: float) -> float:
    """Return |ln| of how far `value` is outside the range `low` to `high`; 0 inside, or where `low` is 0."""
    if low <= 0 or low <= value <= high:
        return 0.0
    return math.log(low / value if value < low else value / high)


def of_task(alone: Uncertainty, spreads: Spreads, *, slowdown: float, contention: float, limit: float) -> Uncertainty:
    """Return the uncertainty of a resident's time, from that alone at the top clock.

    `slowdown` is the top clock over the clock reached, `contention` the spread of the effect of its co-runners, `limit`
    what a power limit adds (`limit_spread`).
    """
    if slowdown == 1.0 and not contention:
        return alone
    transfer = math.hypot(alone.transfer, spreads.clock * math.log(slowdown), limit)
    return Uncertainty(alone.fit, alone.framework, alone.host, transfer, contention)


def limit_spread(draw: PowerDraw, spreads: Spreads) -> float:
    """Return the uncertainty of a time by that of the clock which a power limit leaves; 0 at the card's own limit.

    Times were fitted as measured, at the clocks that the card's own limit leaves.

    Where the voltage falls, power grows at least with the square of the clock, so half of the power's uncertainty;
    and what the voltage curve adds, the more the deeper the limit cuts.
    """
    if draw.own_w <= draw.power_w:
        return 0.0
    return math.hypot(0.5 * _of_demand(draw, spreads).total, spreads.limit * math.log(draw.own_w / draw.power_w))


def of_power(draw: PowerDraw, spreads: Spreads) -> Uncertainty:
    """Return the uncertainty of a board power; of one that a limit holds, what demand may fall short of the limit."""
    power = _of_demand(draw, spreads)
    if draw.demand_w <= draw.power_w or not power.total:
        return power
    short = max(0.0, power.total - math.log(draw.demand_w / draw.power_w) / NORMAL_90) / power.total
    return Uncertainty(
        fit=math.hypot(LIMITED, short * power.fit),
        framework=short * power.framework,
        host=short * power.host,
        transfer=short * power.transfer,
    )


def _of_demand(draw: PowerDraw, spreads: Spreads) -> Uncertainty:
    # The uncertainty of a board power without regard to a limit. Dynamic power is that of the class of load times the
    # rate of work. The rate of a full GPU is known; below that it is work over time, which differs between frameworks
    # and hosts.
    idle = draw.idle_w / draw.demand_w
    dynamic = 1.0 - idle
    free = dynamic * max(0.0, 1.0 - draw.load)
    n = max(1, len(draw.residents))
    return Uncertainty(
        fit=math.hypot(idle * spreads.idle, dynamic * (draw.load_uncertainty or spreads.load)),
        framework=free * sum(parts.framework for parts in draw.residents) / n,
        host=dynamic * sum(parts.host for parts in draw.residents) / n,
        transfer=dynamic * spreads.voltage * math.log(draw.slowdown),
    )
