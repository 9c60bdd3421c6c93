"""Slowdown of tasks that share a GPU under MPS: interference by co-runners, and turns on the SMs (Section II-C).

Interference. The GPU part of resident i grows by the factor

    F_i = 1 + sum over the co-runners j of duty_j (steady + by_share s_j)

with the share s_j of co-runner j and its duty cycle, the part of its time alone in which the GPU works for it.

Turns. Residents that together ask for more than all SMs take turns. Resident j works on the SMs for `batch_j` of an
iteration and holds SMs that others could use for a part of the time in which it waits,
`wait_j = memory mem_j + idle (fixed_j + fill_j)`. While every GPU part takes c times as long,

    rho_j = v (batch_j + z_j wait_j) / time_j(c),   rho = sum_j rho_j,
    time_j(c) = serial_j + (host_j^q + (c g_j)^q)^(1/q)

is the part of the SMs that is in use. The stretch c_i of resident i is the root of

    c^-p = 1 - (rho^p - sum_j rho_j^p),   z_j = s_j for its co-runners,   z_i = min(1, sum of the co-runners' shares)

with p = `sharpness`. So c is 1 for a task alone, hardly more while the SMs suffice for all, and such that rho stays
near 1 beyond that. Tasks that wait for their hosts fill the GPU before anybody is slowed down.

The right side grows with every rho_j and these fall as c grows, so the root is unique. A further resident raises it.
Neither F_i nor c_i depends on the resident's own share, so that a larger share never lengthens its task.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from heshare.devices.constants import BY_SHARE, HOLD_IDLE, HOLD_MEMORY, SHARPNESS, STEADY
from heshare.devices.iteration_time import (
    BATCH,
    FILL,
    FIXED,
    HOST,
    MEMORY,
    OVERLAP,
    SERIAL,
    SHARE,
    WAIT,
    Iteration,
    gpu_part_s,
    overlap,
    time_alone_s,
)
from heshare.shared.compiled import njit

_STEPS, _EXACT = 60, 1e-13


@njit(cache=True)
def interference(rows: Any, card: Any) -> Any:
    """Return the factor F_i of each resident, shape (n,); `rows` as from `resident_rows`, `card` from `card_row`."""
    count = len(rows)
    steady, by_share = np.empty(count), np.empty(count)
    for task in range(count):
        duty = gpu_part_s(rows[task], 1.0, 1.0) / time_alone_s(rows[task], 1.0, 1.0)
        steady[task] = duty
        by_share[task] = duty * rows[task, SHARE]

    factors = np.empty(count)
    for task in range(count):
        added = 0.0
        for other in range(count):
            if other != task:
                added += card[STEADY] * steady[other] + card[BY_SHARE] * by_share[other]
        factors[task] = 1.0 + added
    return factors


@njit(cache=True)
def times_s(rows: Any, card: Any, factors: Any, sm_slowdown: float, memory_slowdown: float) -> Any:
    """Return the time of an iteration of each resident, s, shape (n,); `factors` are those of `interference`."""
    count = len(rows)
    if count == 1:
        return np.array([time_alone_s(rows[0], sm_slowdown, memory_slowdown)])

    work, wait, gpu = np.empty(count), np.empty(count), np.empty(count)
    shares = 0.0
    for task in range(count):
        row = rows[task]
        work[task] = sm_slowdown * row[BATCH]
        wait[task] = sm_slowdown * (card[HOLD_MEMORY] * row[MEMORY] + card[HOLD_IDLE] * (row[FIXED] + row[FILL]))
        gpu[task] = gpu_part_s(row, sm_slowdown, memory_slowdown)
        shares += row[SHARE]

    found = np.empty(count)
    for task in range(count):
        # Equal residents get the result of the first one: its last bit depends on the order of the others.
        first = 0
        while not _equal(rows, first, task):
            first += 1
        if first < task:
            found[task] = found[first]
            continue

        stretch = _stretch(rows, work, wait, gpu, task, min(1.0, shares - rows[task, SHARE]), card[SHARPNESS])
        slowed_s = gpu[task] * stretch * factors[task] + rows[task, WAIT]
        found[task] = rows[task, SERIAL] + overlap(rows[task, HOST], slowed_s)
    return found


@njit(cache=True)
def _stretch(rows: Any, work: Any, wait: Any, gpu: Any, resident: int, resident_hold: float, sharpness: float) -> float:
    # The root c for one `resident`, by Newton's method between bounds. Its terms are summed first, so that the
    # result does not depend on its place. Without hosts every rho_j is proportional to 1 / c, and the root has a
    # closed form; hosts make it smaller.
    count = len(rows)
    busy, order = np.empty(count), np.empty(count, dtype=np.int64)
    order[0] = resident
    others = 1
    for task in range(count):
        busy[task] = work[task] + (resident_hold if task == resident else rows[task, SHARE]) * wait[task]
        if task != resident:
            order[others] = task
            others += 1

    total = powers = 0.0
    hosted = False
    for place in range(count):
        task = order[place]
        rho = busy[task] / gpu[task]
        total += rho
        powers += rho**sharpness
        hosted = hosted or rows[task, HOST] + rows[task, SERIAL] > 0.0
    low, high = 0.0, math.log1p(max(0.0, total**sharpness - powers)) / sharpness
    if high <= _EXACT or not hosted:
        return math.exp(high)

    log_c = high
    for _ in range(_STEPS):
        c = math.exp(log_c)
        total = powers = slope_total = slope_powers = 0.0
        for place in range(count):
            task = order[place]
            parallel_s = overlap(rows[task, HOST], c * gpu[task])
            time_s = rows[task, SERIAL] + parallel_s
            rho = busy[task] / time_s
            falls = (c * gpu[task] / parallel_s) ** OVERLAP * parallel_s / time_s
            power = rho**sharpness
            total += rho
            powers += power
            slope_total += rho * falls
            slope_powers += power * falls

        left = math.exp(-sharpness * log_c)
        value = 1.0 - left - (total**sharpness - powers)
        if value > 0.0:
            high = log_c
        else:
            low = log_c

        # Constants far off, as a fit tries them, leave no slope: those take the middle of the bounds.
        slope = sharpness * (left + total ** (sharpness - 1.0) * slope_total - slope_powers)
        new = log_c - value / slope if slope > 0.0 else -1.0
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - log_c) <= _EXACT:
            return math.exp(new)
        log_c = new
    return math.exp(log_c)


@njit(cache=True)
def _equal(rows: Any, one: int, other: int) -> bool:
    equal = True
    for column in range(rows.shape[1]):
        equal = equal and rows[one, column] == rows[other, column]
    return equal


def bandwidth_waits_s(iterations: Sequence[Iteration]) -> list[float]:
    """Return for how much longer each resident waits for memory, s, shape (n,), if some are language models.

    All wait longer in proportion, such that together they use at most the whole bandwidth when each runs as fast as
    alone at the top clock. Without a language model nothing is added: the interference is fitted to other networks.
    """
    if not any(each.bandwidth_s for each in iterations):
        return [0.0] * len(iterations)
    parts_s = [each.bandwidth_s or each.memory_s for each in iterations]
    alone_s = [each.time_s(1.0, 1.0) for each in iterations]

    def used(longer: float) -> float:
        return sum(part_s / (time_s + longer * part_s) for part_s, time_s in zip(parts_s, alone_s, strict=True))

    if used(0.0) <= 1.0:
        return [0.0] * len(iterations)
    longer = brentq(lambda value: used(value) - 1.0, 0.0, len(iterations))
    return [longer * part_s for part_s in parts_s]
