"""Compiled form of `heshare.devices.crowding` for many sets of residents at once, as a fit to a record needs it."""

import numpy as np

from heshare.devices.iteration_time import OVERLAP
from heshare.shared.arrays import FloatArray
from heshare.shared.compiling import compiled

_STEPS = 60
_EXACT = 1e-13


@compiled
def stretch_arrays(sharpness: float, busy: FloatArray, host: FloatArray, gpu: FloatArray) -> FloatArray:
    """Return the stretch of one resident of each of n sets of at most k residents, shape (n,).

    Args:
        sharpness: p.
        busy: v (work_j + z_j wait_j) of each resident in the equation of that one, s, 0 beyond a set, (n, k).
        host: host parts, s, (n, k).
        gpu: GPU parts, s, (n, k).
    """
    found = np.empty(len(busy))
    for row in range(len(busy)):
        found[row] = _stretch(sharpness, busy[row], host[row], gpu[row])
    return found


@compiled
def _stretch(p: float, busy: FloatArray, host: FloatArray, gpu: FloatArray) -> float:
    """Return the root c of the equation of `heshare.devices.crowding`, by Newton's method between bounds."""
    total = powers = 0.0
    for place in range(len(busy)):
        alone = busy[place] / gpu[place]
        total, powers = total + alone, powers + alone**p
    low, high = 0.0, np.log1p(max(0.0, total**p - powers)) / p
    log_c = high
    for _ in range(_STEPS):
        c = np.exp(log_c)
        total = powers = slope_total = slope_powers = 0.0
        for place in range(len(busy)):
            if busy[place] > 0.0:
                gpu_s = c * gpu[place]
                longer, shorter = max(host[place], gpu_s), min(host[place], gpu_s)
                time_s = longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP)
                rho, falls = busy[place] / time_s, (gpu_s / time_s) ** OVERLAP
                total, powers = total + rho, powers + rho**p
                slope_total, slope_powers = slope_total + rho * falls, slope_powers + rho**p * falls
        left = np.exp(-p * log_c)
        value = 1.0 - left - (total**p - powers)
        if value > 0.0:
            high = log_c
        else:
            low = log_c
        slope = p * (left + total ** (p - 1.0) * slope_total - slope_powers)
        # Constants far off, as a fit tries them, leave no slope: those take the middle of the bounds.
        new = log_c - value / slope if slope > 0.0 else -1.0
        if not low <= new <= high:
            new = 0.5 * (low + high)
        if abs(new - log_c) <= _EXACT:
            return float(np.exp(new))
        log_c = new
    return float(np.exp(log_c))
