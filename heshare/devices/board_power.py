"""Board power at a clock, and the clock that a power limit leaves.

    P(f) = idle + dynamic V(f)^2 min(f / f_max, L f / f_max) (1 + sharing Y)

is the dynamic and idle power of Eq. 4, with L the load of all residents (`activity`), Y the load beside the busiest one
and V the relative voltage. Every term grows with the clock, with each share and with each further resident, so that
the clock left by a limit is unique and never rises when work is added.
"""

from collections.abc import Callable, Sequence

from heshare.devices.constants import Power
from heshare.devices.iteration_time import Iteration

_BISECTIONS = 60


def relative_voltage(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Return V(f), the voltage at a clock over that at the top clock: constant below the knee, linear above it."""
    if sm_mhz <= power.knee_mhz:
        return power.v_min
    return power.v_min + (1.0 - power.v_min) * (sm_mhz - power.knee_mhz) / (max_mhz - power.knee_mhz)


def memory_slowdown_at(power: Power, sm_mhz: float) -> float:
    """Return mu(f), the factor on memory time at a clock: 1, and growing as 1/f below `memory_knee_mhz`."""
    return power.memory_knee_mhz / sm_mhz if sm_mhz < power.memory_knee_mhz else 1.0


def activity(
    power: Power, iterations: Sequence[Iteration], sm_slowdown: float, memory_slowdown: float
) -> tuple[float, float]:
    """Return (load L of all residents, load of the busiest one), each resident running as fast as alone.

    `L = sum_j v (work_j + memory memory_j) / time_j` with v = f_max / f. 1 is a full GPU; the sum may be more.
    """
    total = busiest = 0.0
    for iteration in iterations:
        busy_s = sm_slowdown * (iteration.work_s + power.memory * iteration.memory_s)
        load = busy_s / iteration.time_s(sm_slowdown, memory_slowdown)
        total += load
        busiest = max(busiest, load)
    return total, busiest


def board_power_w(power: Power, iterations: Sequence[Iteration], sm_mhz: float, max_mhz: float) -> float:
    """Return the power P(f) while the residents run under MPS at `sm_mhz`, W."""
    ratio = sm_mhz / max_mhz
    total, busiest = activity(power, iterations, 1.0 / ratio, memory_slowdown_at(power, sm_mhz))
    rate = ratio * min(1.0, total)
    beside = min(1.0, (total - busiest) * ratio)
    dynamic_w = power.dynamic_w * rate * relative_voltage(power, sm_mhz, max_mhz) ** 2
    return power.idle_w + dynamic_w * (1.0 + power.sharing * beside)


def capped_clock_mhz(
    power: Power, iterations: Sequence[Iteration], cap_w: float, request_mhz: float, max_mhz: float
) -> float:
    """Return the highest clock up to `request_mhz` at which residents under MPS stay within `cap_w`, MHz."""
    return highest_clock_mhz(lambda mhz: board_power_w(power, iterations, mhz, max_mhz), cap_w, request_mhz, max_mhz)


def highest_clock_mhz(power_w: Callable[[float], float], cap_w: float, request_mhz: float, max_mhz: float) -> float:
    """Return the highest clock up to `request_mhz` at which `power_w(clock)`, growing, stays within `cap_w`, MHz."""
    if power_w(request_mhz) <= cap_w:
        return request_mhz
    low, high = 0.0, float(max_mhz)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if power_w(middle) <= cap_w:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * max_mhz:
            break
    return min(low, request_mhz)
