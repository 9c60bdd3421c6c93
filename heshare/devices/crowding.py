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

from heshare.devices.constants import Contention
from heshare.devices.iteration_time import OVERLAP, Iteration, overlap

_STEPS = 60
_EXACT = 1e-13


def stretches(
    contention: Contention, iterations: Sequence[Iteration], sm_slowdown: float, memory_slowdown: float
) -> list[float]:
    """Return c_i, the factor on the GPU part of each resident under MPS, (n,); 1 for a resident alone.

    Args:
        contention: the GPU's constants.
        iterations: the residents.
        sm_slowdown: v = top clock / clock.
        memory_slowdown: mu(f), the factor on memory time at the clock.
    """
    if len(iterations) < 2:
        return [1.0] * len(iterations)
    tasks = _tasks(contention, iterations, sm_slowdown, memory_slowdown)
    loads = [(work + share * waiting, *parts) for work, waiting, share, *parts in tasks]
    total_share = sum(task.share for task in iterations)
    found: dict[tuple[float, ...], float] = {}
    for index, key in enumerate(tasks):
        if key not in found:
            work, waiting, share, *parts = key
            own = work + min(1.0, total_share - share) * waiting
            found[key] = _stretch(contention.sharpness, [(own, *parts), *loads[:index], *loads[index + 1 :]])
    return [found[key] for key in tasks]


def common_stretch(
    contention: Contention, iterations: Sequence[Iteration], sm_slowdown: float, memory_slowdown: float
) -> float:
    """Return the factor c with which the GPU parts of all residents together fit into the time, for power.

    It is the root of the same equation with z_j = s_j for every resident; arguments as of `stretches`.
    """
    if len(iterations) < 2:
        return 1.0
    tasks = _tasks(contention, iterations, sm_slowdown, memory_slowdown)
    loads = [(work + share * waiting, *parts) for work, waiting, share, *parts in tasks]
    return _stretch(contention.sharpness, loads)


def _tasks(
    contention: Contention, iterations: Sequence[Iteration], sm_slowdown: float, memory_slowdown: float
) -> list[tuple[float, ...]]:
    """Return (v work, v wait, share, host part, GPU part, serial part) of each resident, times in s."""
    tasks: list[tuple[float, ...]] = []
    for task in iterations:
        waiting_s = contention.memory * task.memory_s + contention.busy * (task.fixed_s + task.fill_s)
        gpu_s = task.gpu_s(sm_slowdown, memory_slowdown)
        parts = task.host_s, gpu_s, task.serial_s
        tasks.append((sm_slowdown * task.work_s, sm_slowdown * waiting_s, task.share, *parts))
    return tasks


def _stretch(p: float, tasks: Sequence[tuple[float, ...]]) -> float:
    """Return the root c for tasks given as (v busy_j, host_j, g_j, serial_j), s, by Newton's method between bounds."""
    # With no host part every rho_j is proportional to 1 / c, and the root has a closed form; hosts make it smaller.
    alone = [busy / gpu for busy, _, gpu, _ in tasks]
    low, high = 0.0, math.log1p(max(0.0, sum(alone) ** p - sum(load**p for load in alone))) / p
    if high <= _EXACT or all(host + serial <= 0.0 for _, host, _, serial in tasks):
        return math.exp(high)
    log_c = high
    for _ in range(_STEPS):
        c = math.exp(log_c)
        total = powers = slope_total = slope_powers = 0.0
        for busy, host, gpu, serial in tasks:
            parallel_s = overlap(host, c * gpu)
            time_s = serial + parallel_s
            rho, falls = busy / time_s, (c * gpu / parallel_s) ** OVERLAP * parallel_s / time_s
            total, powers = total + rho, powers + rho**p
            slope_total, slope_powers = slope_total + rho * falls, slope_powers + rho**p * falls
        left = math.exp(-p * log_c)
        value = 1.0 - left - (total**p - powers)
        low, high = (low, log_c) if value > 0.0 else (log_c, high)
        step = value / (p * (left + total ** (p - 1.0) * slope_total - slope_powers))
        new = log_c - step if low < log_c - step < high else 0.5 * (low + high)
        if abs(new - log_c) <= _EXACT:
            return math.exp(new)
        log_c = new
    return math.exp(log_c)
