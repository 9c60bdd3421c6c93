"""Board power of residents at a clock, and the clock that a power limit leaves.

    P(f) = idle + V(f)^2 (f / f_max) (idle_clock + clock B + dynamic (min(X, strongest) + Z))

is the idle and dynamic power of Eq. 4. V is the relative voltage. B is the part of the time in which some kernel runs,
at most 1: then clocks, caches and the front end work, however few SMs do. X is the work on the SMs: the time of SMs and
memory of each resident over the time of its iteration, weighted by its intensity. SMs that all work draw at most the
power of the strongest resident. Z is the energy of bytes and operations of language models.

So n equal processes draw less than n times one, and residents that take turns do less work each. Every term grows with
the clock, so that the clock left by a limit is unique.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from heshare.devices.constants import (
    CLOCK,
    DYNAMIC,
    IDLE,
    IDLE_CLOCK,
    KNEE,
    MEMORY_KNEE,
    MEMORY_WEIGHT,
    TOP,
    V_MIN,
    Power,
)
from heshare.devices.contention import interference, times_s
from heshare.devices.iteration_time import BATCH, EXTRA, INTENSITY, MEMORY, gpu_part_s
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit

_LOWEST, _EXACT, _STEPS = 1e-3, 1e-10, 80
"""Lowest clock that a limit leaves and how exactly it is found, both over the top clock; most steps to find it."""


@njit(cache=True)
def voltage(sm_mhz: float, knee_mhz: float, v_min: float, top_mhz: float) -> Any:
    """Return V(f), the voltage at a clock over that at the top clock: constant below the knee, linear above it."""
    if sm_mhz <= knee_mhz:
        return v_min
    return v_min + (1.0 - v_min) * (sm_mhz - knee_mhz) / (top_mhz - knee_mhz)


@njit(cache=True)
def switching(sm_mhz: float, knee_mhz: float, v_min: float, top_mhz: float) -> Any:
    """Return V(f)^2 f / f_max, with which the power of busy clocks and SMs grows; 1 at the top clock."""
    return voltage(sm_mhz, knee_mhz, v_min, top_mhz) ** 2 * sm_mhz / top_mhz


@njit(cache=True)
def memory_slowdown(card: Any, sm_mhz: float) -> Any:
    """Return mu(f) of a `card_row`, the factor on memory time: 1, and growing as 1/f below the memory knee."""
    return max(1.0, card[MEMORY_KNEE] / sm_mhz)


@njit(cache=True)
def power_w(rows: Any, card: Any, taken_s: Any, sm_mhz: float) -> Any:
    """Return P(f), W, of residents that take `taken_s` per iteration, s, (n,).

    `rows` are as from `resident_rows`, `card` from `card_row`.
    """
    sm_slowdown, memory = card[TOP] / sm_mhz, memory_slowdown(card, sm_mhz)
    running = work = strongest = extra = 0.0
    for task in range(len(rows)):
        row = rows[task]
        running += gpu_part_s(row, sm_slowdown, memory) / taken_s[task]
        load = sm_slowdown * (row[BATCH] + card[MEMORY_WEIGHT] * row[MEMORY]) / taken_s[task]
        work += row[INTENSITY] * load
        extra += sm_slowdown * row[EXTRA] / taken_s[task]
        strongest = max(strongest, row[INTENSITY])

    busy_w = card[CLOCK] * min(1.0, running) + card[DYNAMIC] * (min(work, strongest) + extra)
    factor = switching(sm_mhz, card[KNEE], card[V_MIN], card[TOP])
    return card[IDLE] + factor * (card[IDLE_CLOCK] + busy_w)


@njit(cache=True)
def solve(rows: Any, card: Any, request_mhz: float, cap_w: float) -> Any:
    """Return (clock reached in MHz, power in W, times in s) of residents under MPS.

    The clock is the requested one, or the highest below it at which the power stays within `cap_w`.
    """
    factors = interference(rows, card)
    taken_s = times_s(rows, card, factors, card[TOP] / request_mhz, memory_slowdown(card, request_mhz))
    demand_w = power_w(rows, card, taken_s, request_mhz)
    if demand_w <= cap_w:
        return request_mhz, demand_w, taken_s

    # The Illinois variant of the false position method: power grows with the clock.
    low, high, above = _LOWEST * card[TOP], request_mhz, demand_w - cap_w
    taken_s = times_s(rows, card, factors, card[TOP] / low, memory_slowdown(card, low))
    below = power_w(rows, card, taken_s, low) - cap_w
    mhz, side = low, 0
    for _ in range(_STEPS):
        if below >= 0.0:
            break
        mhz = (below * high - above * low) / (below - above)
        taken_s = times_s(rows, card, factors, card[TOP] / mhz, memory_slowdown(card, mhz))
        excess = power_w(rows, card, taken_s, mhz) - cap_w
        if abs(excess) <= 1e-12 * cap_w or high - low <= _EXACT * card[TOP]:
            break
        if excess > 0.0:
            high, above = mhz, excess
            below *= 0.5 if side == 1 else 1.0
            side = 1
        else:
            low, below = mhz, excess
            above *= 0.5 if side == -1 else 1.0
            side = -1
    return mhz, min(cap_w, power_w(rows, card, taken_s, mhz)), taken_s


@njit(cache=True)
def _solve_sets(rows: Any, starts: Any, cards: Any, which: Any, request_mhz: Any, cap_w: Any, found: Any) -> None:
    for place in range(len(which)):
        residents = rows[starts[place] : starts[place + 1]]
        mhz, watts, taken_s = solve(residents, cards[which[place]], request_mhz[place], cap_w[place])
        found[place, 0], found[place, 1], found[place, 2] = taken_s[0], watts, mhz


def solve_sets(
    rows: FloatArray, starts: IntArray, cards: FloatArray, which: IntArray, request_mhz: FloatArray, cap_w: FloatArray
) -> FloatArray:
    """Return (time of the first resident in s, power in W, clock in MHz) of n sets of residents, shape (n, 3).

    Args:
        rows: residents of all sets one after the other, as from `resident_rows`.
        starts: the first row of each set, and the number of rows, (n + 1,).
        cards: one `card_row` a GPU.
        which: the GPU of each set, (n,).
        request_mhz: requested clock of each set, MHz, (n,).
        cap_w: power limit of each set, W, (n,).
    """
    found = np.empty((len(which), 3))
    _solve_sets(rows, starts, cards, which, request_mhz, cap_w, found)
    return found


def idle_power_w(power: Power, sm_mhz: float, max_mhz: float) -> float:
    """Return the power at a held clock while no kernel runs, W."""
    return power.idle_w + power.idle_clock_w * float(switching(sm_mhz, power.knee_mhz, power.v_min, max_mhz))


def reached(
    taken_s: Callable[[float], Sequence[float]], rows: FloatArray, card: FloatArray, request_mhz: float, cap_w: float
) -> tuple[float, float, list[float]]:
    """Return what `solve` does for another way of sharing; `taken_s` gives the times at a clock, s."""

    def drawn_w(sm_mhz: float) -> float:
        return float(power_w(rows, card, np.array(taken_s(sm_mhz)), sm_mhz))

    if drawn_w(request_mhz) <= cap_w:
        return request_mhz, drawn_w(request_mhz), list(taken_s(request_mhz))
    low = _LOWEST * float(card[TOP])
    mhz = brentq(lambda clock: drawn_w(clock) - cap_w, low, request_mhz, xtol=_EXACT * card[TOP])
    return float(mhz), min(cap_w, drawn_w(mhz)), list(taken_s(mhz))
