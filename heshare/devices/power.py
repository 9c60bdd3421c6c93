"""Board power at a clock, and the clock that a power limit leaves.

Every term grows with the clock, with each share and with each further resident, so that the clock left by a limit is
unique and never rises when work is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heshare.devices.constants import Power
from heshare.devices.timing import Part

_ROUNDS = 60


def voltage(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Voltage at a clock over the voltage at the top clock: flat below the knee, linear above it."""
    if sm_mhz <= power.knee_mhz:
        return power.v_min
    return power.v_min + (1.0 - power.v_min) * (sm_mhz - power.knee_mhz) / (max_mhz - power.knee_mhz)


def stall(power: Power, sm_mhz: float) -> float:
    """The factor on memory time at a clock: 1, and 1/f once the clock is too low to keep the memory busy."""
    return power.memory_knee_mhz / sm_mhz if sm_mhz < power.memory_knee_mhz else 1.0


def load(power: Power, parts: Sequence[Part], slow: float, stalled: float) -> tuple[float, float]:
    """(activity of all residents, activity of the busiest one), as if they did not slow one another down.

    1 is a full GPU; the sum may be more.
    """
    total = busiest = 0.0
    for part in parts:
        own = slow * (part.work_s + power.memory * part.memory_s) / part.time_s(slow, stalled)
        total += own
        busiest = max(busiest, own)
    return total, busiest


def board_w(power: Power, parts: Sequence[Part], sm_mhz: float, max_mhz: float) -> float:
    """Power while the residents run at `sm_mhz`, W."""
    ratio = sm_mhz / max_mhz
    total, busiest = load(power, parts, 1.0 / ratio, stall(power, sm_mhz))
    rate = ratio * min(1.0, total)
    beside = min(1.0, (total - busiest) * ratio)
    dynamic_w = power.dynamic_w * rate * voltage(power, sm_mhz, max_mhz) ** 2
    return power.idle_w + dynamic_w * (1.0 + power.sharing * beside)


def clock_under(power: Power, parts: Sequence[Part], cap_w: float, request_mhz: float, max_mhz: float) -> float:
    """The highest clock up to `request_mhz` at which residents under MPS stay within `cap_w`, MHz."""
    return clock_within(lambda mhz: board_w(power, parts, mhz, max_mhz), cap_w, request_mhz, max_mhz)


def clock_within(draw_w: Callable[[float], float], cap_w: float, request_mhz: float, max_mhz: float) -> float:
    """The highest clock up to `request_mhz` at which the power `draw_w(clock)` stays within `cap_w`, MHz."""
    if draw_w(request_mhz) <= cap_w:
        return request_mhz
    low, high = 0.0, float(max_mhz)
    for _ in range(_ROUNDS):
        middle = 0.5 * (low + high)
        if draw_w(middle) <= cap_w:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * max_mhz:
            break
    return min(low, request_mhz)
