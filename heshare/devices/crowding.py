"""Slowdown of tasks under MPS that together ask for more than the GPU's SMs: they take turns.

Resident j with the share s_j works on the SMs for `work_j` of an iteration (of the whole GPU) and holds SMs that others
could use for a part of the time in which it waits, `wait_j = memory mem_j + busy (fixed_j + fill_j)`. While every GPU
part takes c times as long, with v = f_max / f,

    rho_j = v (work_j + z_j wait_j) / time_j(c),   rho = sum_j rho_j,
    time_j(c) = serial_j + (host_j^q + (c g_j)^q)^(1/q)

is the part of the SMs that is in use. The stretch c_i of the resident i is the root of

    c^-p = 1 - (rho^p - sum_j rho_j^p),   z_j = s_j for its co-runners,   z_i = min(1, sum of the co-runners' shares)

with p = `sharpness`: c is 1 for a task alone, hardly more while the SMs suffice for all, and such that rho stays near 1
beyond. So tasks that wait for their hosts fill the GPU before anybody is slowed down.

The right side grows with every rho_j and these fall as c grows, so the root is unique. A further resident raises it.
Nothing in the equation of i but g_i depends on its own share, so that a larger one never lengthens its task, and no
time falls by more than the clock rises, so that a faster clock does not either.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numba import njit
from scipy.optimize import brentq

from heshare.devices.constants import Contention
from heshare.devices.iteration_time import OVERLAP, Iteration, rated_energies_s
from heshare.shared.arrays import FloatArray

_STEPS = 60
_EXACT = 1e-13
_FIXED, _MEMORY, _SMS, _WORK, _FILL, _SHARE, _HOST, _SERIAL, _INTENSITY, _RATED, _FACTOR, _WAIT = range(12)
"""Columns of `resident_parts`."""


def resident_parts(
    iterations: Sequence[Iteration], cache_mb: float = 0.0, factors: Sequence[tuple[float, float]] | None = None
) -> FloatArray:
    """Return what the compiled functions need of each resident, shape (n, 12).

    Times in s, its share, the intensity of its work on the SMs, the energy of its operations and of its traffic beyond
    the cache of `cache_mb` (`Power.cache_mb`), as a time at full dynamic power, and its `contention_factors`.
    """
    rated_s = rated_energies_s([each.work_power for each in iterations], cache_mb)
    factors = factors or [(1.0, 0.0)] * len(iterations)
    rows = [
        (each.fixed_s, each.memory_s, each.sms_s, each.work_s, each.fill_s, each.share, each.host_s, each.serial_s,
         each.work_power.intensity, rated, *factor)
        for each, rated, factor in zip(iterations, rated_s, factors, strict=True)
    ]  # fmt: skip
    return np.array(rows, dtype=np.float64).reshape(len(rows), _WAIT + 1)


def contention_factors(contention: Contention, iterations: Sequence[Iteration]) -> list[tuple[float, float]]:
    """Return (1 + strength S_i, wait kernels_i D_i + wait for memory in s) for each resident i, shape (n, 2).

    D_i is the sum of its co-runners' duty cycles, S_i that sum with each weighted by its share over the resident's own.
    The duty cycle of a resident is its GPU part over its time, alone at the top clock. Neither factor depends on the
    clock, and neither grows with the resident's own share, so that a faster clock or a larger share cannot raise it.
    """
    if len(iterations) == 1:
        return [(1.0, 0.0)]
    duties = [iteration.duty for iteration in iterations]
    weighted = [duty * iteration.share for duty, iteration in zip(duties, iterations, strict=True)]

    def others(values: Sequence[float]) -> list[float]:
        return [sum(values[:index]) + sum(values[index + 1 :]) for index in range(len(values))]

    return [
        (1.0 + contention.strength * beside / iteration.share, contention.wait_s * iteration.kernels * duty + memory_s)
        for iteration, duty, beside, memory_s in zip(
            iterations, others(duties), others(weighted), bandwidth_waits_s(iterations), strict=True
        )
    ]


def stretches(contention: Contention, parts: FloatArray, sm_slowdown: float, memory_slowdown: float) -> list[float]:
    """Return c_i, the factor on the GPU part of each resident under MPS, (n,); 1 for a resident alone.

    `parts` are the residents, by `resident_parts`; `sm_slowdown` is v = top clock / clock, `memory_slowdown` mu(f).
    """
    if len(parts) < 2:
        return [1.0] * len(parts)
    return cast("list[float]", _stretches(parts, *_numbers(contention), sm_slowdown, memory_slowdown).tolist())


def common_stretch(contention: Contention, parts: FloatArray, sm_slowdown: float, memory_slowdown: float) -> float:
    """Return the factor c with which the GPU parts of all residents together fit into the time, for power.

    It is the root of the same equation with z_j = s_j for every resident; arguments as of `stretches`.
    """
    if len(parts) < 2:
        return 1.0
    return float(_common_stretch(parts, *_numbers(contention), sm_slowdown, memory_slowdown))


def bandwidth_waits_s(iterations: Sequence[Iteration]) -> list[float]:
    """Return for how much longer each resident waits for memory, s, shape (n,), if some are language models.

    All wait longer in proportion, such that together they use at most the whole bandwidth when each runs as fast as
    alone at the top clock. Without a language model nothing is added: `Contention.memory` is fitted to pairs.
    """
    parts_s = [each.bandwidth_s or each.memory_s for each in iterations]
    times_s = [each.time_s(1.0, 1.0) for each in iterations]

    def used(longer: float) -> float:
        return sum(part_s / (time_s + longer * part_s) for part_s, time_s in zip(parts_s, times_s, strict=True))

    if not any(each.bandwidth_s for each in iterations) or used(0.0) <= 1.0:
        return [0.0] * len(iterations)
    longer = brentq(lambda value: used(value) - 1.0, 0.0, len(iterations))
    return [longer * part_s for part_s in parts_s]


def _numbers(contention: Contention) -> tuple[float, float, float]:
    return float(contention.memory), float(contention.busy), float(contention.sharpness)


@njit(cache=True)
def crowded_times_s(parts: Any, turns: float, sm_slowdown: float, memory_slowdown: float) -> Any:
    """Return the time of each resident whose GPU part takes `turns` times as long, s, (n,)."""
    times_s = np.empty(len(parts))
    for task in range(len(parts)):
        gpu_s = _gpu_s(parts[task], sm_slowdown, memory_slowdown)
        slowed_s = gpu_s * turns * parts[task, _FACTOR] + parts[task, _WAIT]
        times_s[task] = parts[task, _SERIAL] + _overlap(parts[task, _HOST], slowed_s)
    return times_s


@njit(cache=True)
def work_done(
    parts: Any, times_s: Any, memory: float, sm_slowdown: float, memory_slowdown: float
) -> tuple[float, float, float, float]:
    """Return (B, X, Y, Z) of `board_power` for residents with these times per iteration, s.

    `parts` are their `resident_parts`, `memory` the weight of memory time in the load (`Power.memory`).
    """
    busy = work = rated = total = busiest = strongest = 0.0
    for task in range(len(parts)):
        load = sm_slowdown * (parts[task, _WORK] + memory * parts[task, _MEMORY]) / times_s[task]
        busy += _gpu_s(parts[task], sm_slowdown, memory_slowdown) / times_s[task]
        total += load
        work += parts[task, _INTENSITY] * load
        rated += sm_slowdown * parts[task, _RATED] / times_s[task]
        busiest, strongest = max(busiest, load), max(strongest, parts[task, _INTENSITY])
    return min(1.0, float(busy)), float(min(strongest, work)), float(total - busiest), float(rated)


@njit(cache=True)
def _stretches(
    parts: Any, memory: float, busy: float, sharpness: float, sm_slowdown: float, memory_slowdown: float
) -> Any:
    tasks = _tasks(parts, memory, busy, sm_slowdown, memory_slowdown)
    loads = _loads(tasks)

    total_share = 0.0
    for index in range(len(tasks)):
        total_share += tasks[index, 2]

    found, ordered = np.empty(len(tasks)), np.empty_like(loads)
    for index in range(len(tasks)):
        # Equal residents get the result of the first one: its last bit depends on the order of the others.
        first = 0
        while not _equal(tasks, first, index):
            first += 1
        if first == index:
            # The resident itself stands first. Loops, since numba compiles an assignment to a slice for seconds.
            place = 1
            for other in range(len(tasks)):
                row = 0 if other == index else place
                place += other != index
                for column in range(loads.shape[1]):
                    ordered[row, column] = loads[other, column]
            ordered[0, 0] = tasks[index, 0] + min(1.0, total_share - tasks[index, 2]) * tasks[index, 1]
            found[index] = _stretch(sharpness, ordered)
        else:
            found[index] = found[first]
    return found


@njit(cache=True)
def _common_stretch(
    parts: Any, memory: float, busy: float, sharpness: float, sm_slowdown: float, memory_slowdown: float
) -> float:
    return _stretch(sharpness, _loads(_tasks(parts, memory, busy, sm_slowdown, memory_slowdown)))


@njit(cache=True)
def _tasks(parts: Any, memory: float, busy: float, sm_slowdown: float, memory_slowdown: float) -> Any:
    # (v work, v wait, share, host part, GPU part, serial part) of each resident, (n, 6), times in s.
    tasks = np.empty((len(parts), 6))
    for task in range(len(parts)):
        waiting_s = memory * parts[task, _MEMORY] + busy * (parts[task, _FIXED] + parts[task, _FILL])
        tasks[task, 0] = sm_slowdown * parts[task, _WORK]
        tasks[task, 1] = sm_slowdown * waiting_s
        tasks[task, 2] = parts[task, _SHARE]
        tasks[task, 3] = parts[task, _HOST]
        tasks[task, 4] = _gpu_s(parts[task], sm_slowdown, memory_slowdown)
        tasks[task, 5] = parts[task, _SERIAL]
    return tasks


@njit(cache=True)
def _loads(tasks: Any) -> Any:
    # (v busy_j, host_j, g_j, serial_j) of each resident with z_j = s_j, (n, 4), s, from `_tasks`.
    loads = np.empty((len(tasks), 4))
    for task in range(len(tasks)):
        loads[task, 0] = tasks[task, 0] + tasks[task, 2] * tasks[task, 1]
        for column in range(1, loads.shape[1]):
            loads[task, column] = tasks[task, column + 2]
    return loads


@njit(cache=True)
def _equal(tasks: Any, one: int, other: int) -> bool:
    different = 0
    for column in range(tasks.shape[1]):
        different += tasks[one, column] != tasks[other, column]
    return different == 0


@njit(cache=True)
def _gpu_s(part: Any, sm_slowdown: float, memory_slowdown: float) -> float:
    # What `Iteration.gpu_s` does, s.
    return float(part[_FIXED] + part[_MEMORY] * memory_slowdown + sm_slowdown * part[_SMS])


@njit(cache=True)
def _overlap(host_s: float, gpu_s: float) -> float:
    # What `iteration_time.overlap` does, s.
    if host_s <= 0.0:
        return gpu_s
    longer, shorter = (gpu_s, host_s) if gpu_s > host_s else (host_s, gpu_s)
    return float(longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP))


@njit(cache=True)
def _stretch(p: float, tasks: Any) -> float:
    # The root c for tasks given as from `_loads`, by Newton's method between bounds.
    # With no host part every rho_j is proportional to 1 / c, and the root has a closed form; hosts make it smaller.
    total = powers = 0.0
    hosted = False
    for task in range(len(tasks)):
        alone = tasks[task, 0] / tasks[task, 2]
        total, powers = total + alone, powers + alone**p
        hosted = hosted or tasks[task, 1] + tasks[task, 3] > 0.0
    low, high = 0.0, math.log1p(max(0.0, total**p - powers)) / p
    if high <= _EXACT or not hosted:
        return math.exp(high)

    log_c = high
    for _ in range(_STEPS):
        c = math.exp(log_c)
        total = powers = slope_total = slope_powers = 0.0
        for task in range(len(tasks)):
            busy, host, gpu, serial = tasks[task, 0], tasks[task, 1], tasks[task, 2], tasks[task, 3]
            parallel_s = _overlap(host, c * gpu)
            time_s = serial + parallel_s
            rho, falls = busy / time_s, (c * gpu / parallel_s) ** OVERLAP * parallel_s / time_s
            power = rho**p
            total, powers = total + rho, powers + power
            slope_total, slope_powers = slope_total + rho * falls, slope_powers + power * falls

        left = math.exp(-p * log_c)
        value = 1.0 - left - (total**p - powers)
        low, high = (low, log_c) if value > 0.0 else (log_c, high)
        step = value / (p * (left + total ** (p - 1.0) * slope_total - slope_powers))
        new = log_c - step if low < log_c - step < high else 0.5 * (low + high)

        if abs(new - log_c) <= _EXACT:
            return math.exp(new)
        log_c = new
    return math.exp(log_c)
