"""Board power at a clock, and the clock that a power limit leaves.

    P(f) = idle(f) + V(f)^2 (f / f_max) (clock B + dynamic (X (1 + sharing Y) + Z))

is the idle and dynamic power of Eq. 4. V is the relative voltage; idle(f) grows with V^2 f by `Power.idle_clock_w`. B
is the part of the time in which some kernel runs: then clocks, caches and the front end work, however few SMs do. X is
the work on the SMs, their time weighted by the intensity of each resident's load. Y is the load beside the busiest
resident. Z is the work of tensor cores and memory: operations, and the traffic of layer outputs beyond the L2 cache,
which all residents share (`iteration_time.WorkPower`). So n equal processes draw less than n times one: B counts once,
and they cannot all work at once; only their traffic grows, since together they leave the cache. Residents that take
turns do less work each. Every term grows with the clock, so that the clock left by a limit is unique. A resident whose
load is lighter than that of the residents which it slows down lowers the power, and the clock may rise.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq

from heshare.devices import crowding
from heshare.devices.constants import Contention, Power
from heshare.devices.iteration_time import Iteration
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError

_LOWEST, _EXACT = 1e-6, 1e-12
"""Lowest clock that a limit leaves, and how exactly it is found, both over the top clock."""


def relative_voltage(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Return V(f), the voltage at a clock over that at the top clock: constant below the knee, linear above it."""
    if sm_mhz <= power.knee_mhz:
        return power.v_min
    return power.v_min + (1.0 - power.v_min) * (sm_mhz - power.knee_mhz) / (max_mhz - power.knee_mhz)


def switching(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Return V(f)^2 f / f_max, with which the power of busy clocks and SMs goes; 1 at the top clock."""
    return relative_voltage(power, sm_mhz, max_mhz) ** 2 * sm_mhz / max_mhz


def idle_power_w(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Return idle(f), the power at a held clock while no kernel runs, W."""
    return power.idle_w + power.idle_clock_w * switching(power, sm_mhz, max_mhz)


def memory_slowdown_at(power: Power, sm_mhz: float) -> float:
    """Return mu(f), the factor on memory time at a clock: 1, and growing as 1/f below `memory_knee_mhz`."""
    return power.memory_knee_mhz / sm_mhz if sm_mhz < power.memory_knee_mhz else 1.0


def activity(power: Power, iterations: Sequence[Iteration], sm_slowdown: float, memory_slowdown: float) -> float:
    """Return the load L of all residents, each running as fast as alone.

    `L = sum_j v (work_j + memory memory_j) / time_j` with v = f_max / f. 1 is a full GPU; the sum may be more.
    """
    total = 0.0
    for iteration in iterations:
        busy_s = sm_slowdown * (iteration.work_s + power.memory * iteration.memory_s)
        total += busy_s / iteration.time_s(sm_slowdown, memory_slowdown)
    return total


def board_power_w(
    power: Power, parts: FloatArray, sm_mhz: float, max_mhz: float, contention: Contention | None = None
) -> float:
    """Return the power P(f) while residents run under MPS at `sm_mhz`, W; `parts` are their `resident_parts`.

    With `contention` they take turns on the SMs (`crowding`); None: each runs as fast as alone.
    """
    slowdowns = max_mhz / sm_mhz, memory_slowdown_at(power, sm_mhz)
    turns = 1.0 if contention is None else crowding.common_stretch(contention, parts, *slowdowns)
    times_s = crowding.crowded_times_s(parts, turns, *slowdowns)
    return _power_w(power, crowding.work_done(parts, times_s, float(power.memory), *slowdowns), sm_mhz, max_mhz)


def power_at_times_w(
    power: Power, iterations: Sequence[Iteration], times_s: Sequence[float], sm_mhz: float, max_mhz: float
) -> float:
    """Return the power P(f) of residents under MPS that take these times per iteration, s, at `sm_mhz`, W."""
    done = work_done(power, iterations, times_s, max_mhz / sm_mhz, memory_slowdown_at(power, sm_mhz))
    return _power_w(power, done, sm_mhz, max_mhz)


def _power_w(power: Power, done: tuple[float, float, float, float], sm_mhz: float, max_mhz: float) -> float:
    # P(f), W, of residents with this (B, X, Y, Z).
    clocks, work, beside, rated = done
    extra = 1.0 + power.sharing * min(1.0, beside * sm_mhz / max_mhz)
    busy_w = power.clock_w * clocks + power.dynamic_w * (work * extra + rated)
    return idle_power_w(power, sm_mhz, max_mhz) + switching(power, sm_mhz, max_mhz) * busy_w


def work_done(
    power: Power,
    iterations: Sequence[Iteration],
    times_s: Sequence[float],
    sm_slowdown: float,
    memory_slowdown: float,
) -> tuple[float, float, float, float]:
    """Return (B, X, Y, Z) of `P(f)` for residents with these times per iteration, s.

    B is 0 to 1. X is `sum_j intensity_j load_j`, at most the highest intensity of them, which is that of SMs that all
    work. Y is the load beside the busiest resident. Z is that of operations and traffic, in full dynamic powers.
    """
    parts, taken_s = crowding.resident_parts(iterations, power.cache_mb), np.array(times_s, dtype=np.float64)
    return crowding.work_done(parts, taken_s, float(power.memory), sm_slowdown, memory_slowdown)


def capped_clock_mhz(
    power: Power,
    iterations: Sequence[Iteration],
    cap_w: float,
    request_mhz: float,
    max_mhz: float,
) -> float:
    """Return the highest clock up to `request_mhz` at which residents under MPS stay within `cap_w`, MHz."""
    parts = crowding.resident_parts(iterations, power.cache_mb)

    def power_w(mhz: float) -> float:
        return board_power_w(power, parts, mhz, max_mhz)

    return highest_clock_mhz(power_w, cap_w, request_mhz, max_mhz)


def highest_clock_mhz(power_w: Callable[[float], float], cap_w: float, request_mhz: float, max_mhz: float) -> float:
    """Return the highest clock up to `request_mhz` at which `power_w(clock)`, growing, stays within `cap_w`, MHz.

    Where memory traffic alone draws more, there is none: an `InputError`.
    """
    if power_w(request_mhz) <= cap_w:
        return request_mhz
    least_w = power_w(_LOWEST * max_mhz)
    if least_w > cap_w:
        expected = f"at least {least_w:.0f} W, which the device model gives this work's memory traffic at every clock"
        action = "Raise the limit, lower the inference batch size, or take another GPU."
        raise InputError(f"a power limit of {cap_w:g} W", expected, action, column="power_cap_w")
    return float(brentq(lambda mhz: power_w(mhz) - cap_w, _LOWEST * max_mhz, max_mhz, xtol=_EXACT * max_mhz))
