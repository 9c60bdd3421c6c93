"""All constants of one GPU refined at once, on times and powers of all its settings.

A workload alone at one inference batch size cannot tell its host part from its SM part; what it does beside others, and
the power that it draws, can. The estimate is the maximum a posteriori under the priors of the single fits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from heshare.devices.calibration.data import FloatArray
from heshare.devices.calibration.times import Prior
from heshare.devices.constants import Contention, Power, Timing
from heshare.devices.power import stall, voltage
from heshare.devices.timing import OVERLAP
from heshare.world.workload import Resident

Cell = tuple[str, str]
"""(engine, workload)."""

_NAMES = ("latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s")
_SHARED = 5
_SIGMA = 0.02
_TINY_S = 1e-8
_STEPS = 40


@dataclass(frozen=True)
class Scenes:
    """n settings of at most k residents, the observed task first; what is beyond a set has weight 0.

    Attributes:
        cell: number of each resident's workload, (n, k).
        batch: inference batch sizes, (n, k).
        share: shares, 0 to 1, (n, k).
        here: 1 for a resident, 0 beyond the set, (n, k).
        kernels: kernels of the observed task, (n,).
        slow: top clock over the clock reached, (n,).
        stalled: factor on memory time at that clock, (n,).
        volts2: square of the voltage at that clock over that at the top, (n,).
    """

    cell: NDArray[np.int64]
    batch: FloatArray
    share: FloatArray
    here: FloatArray
    kernels: FloatArray
    slow: FloatArray
    stalled: FloatArray
    volts2: FloatArray


def scenes(
    sets: Sequence[Sequence[Resident]], sm_mhz: FloatArray, timing: Mapping[Cell, Timing], power: Power, max_mhz: float
) -> Scenes:
    """Settings as arrays; every workload has a row in `timing`."""
    numbers = {cell: at for at, cell in enumerate(timing)}
    wide = max(map(len, sets))
    cell, batch, share, here = (np.full((len(sets), wide), fill) for fill in (0.0, 1.0, 1.0, 0.0))
    for at, residents in enumerate(sets):
        for place, one in enumerate(residents):
            cell[at, place] = numbers[one.workload.engine, one.workload.model]
            batch[at, place], share[at, place] = one.workload.batch_size, one.mps_pct / 100.0
            here[at, place] = 1.0
    launched = np.array([known.kernels for known in timing.values()])
    stalled = np.array([stall(power, clock) for clock in sm_mhz])
    volts = np.array([voltage(power, clock, max_mhz) for clock in sm_mhz])
    known = cell.astype(np.int64)
    return Scenes(known, batch, share, here, launched[known[:, 0]], max_mhz / sm_mhz, stalled, volts**2)


def answers(found: Scenes, times: FloatArray, contention: Contention, power: Power) -> tuple[FloatArray, FloatArray]:
    """What `heshare.devices.model.co_run` says of settings at the clocks they reached.

    Args:
        found: n settings.
        times: the constants of each workload, (workloads, 6), columns latency, memory, work, work per sample, fill and
            host time, s.
        contention: how co-runners slow one another down.
        power: of the board.

    Returns:
        (seconds per iteration of the observed task, (n,); board power, W, (n,)).
    """
    latency, memory, work, per_sample, fill, host = np.moveaxis(times[found.cell], 2, 0)
    memory, batch = memory * found.batch, per_sample * found.batch
    sms = work / found.share + np.hypot(batch / found.share, fill)
    slow = found.slow[:, None]
    gpu = latency + memory * found.stalled[:, None] + slow * sms
    own = found.here * slow * (work + batch + power.memory * memory) / _overlap(host, gpu)
    total, busiest = own.sum(axis=1), own.max(axis=1)
    free = latency + memory + sms
    duty = found.here * free / _overlap(host, free)
    other = duty[:, 1:].sum(axis=1)
    push = np.maximum(1.0, total) * (1.0 + contention.strength * other)
    time_s = _overlap(host[:, 0], gpu[:, 0] * push + contention.wait_s * found.kernels * other)
    ratio = 1.0 / found.slow
    dynamic_w = power.dynamic_w * ratio * np.minimum(1.0, total) * found.volts2
    beside = np.minimum(1.0, (total - busiest) * ratio)
    return time_s, power.idle_w + dynamic_w * (1.0 + power.sharing * beside)


def _overlap(host_s: FloatArray, gpu_s: FloatArray) -> FloatArray:
    longer, shorter = np.maximum(host_s, gpu_s), np.minimum(host_s, gpu_s)
    return np.asarray(longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP), dtype=np.float64)


def refine(
    sets: Sequence[Sequence[Resident]],
    sm_mhz: FloatArray,
    measured: tuple[FloatArray, FloatArray],
    timing: Mapping[Cell, Timing],
    priors: Mapping[Cell, Prior],
    contention: Contention,
    power: Power,
    max_mhz: float,
) -> tuple[dict[Cell, Timing], Contention, Power]:
    """Timing, contention and dynamic power that fit all settings best, from those of the single fits.

    Args:
        sets: residents of n settings, the observed task first.
        sm_mhz: clocks reached, MHz, (n,).
        measured: (times in s, powers in W), (n,) each.
        timing: of each workload.
        priors: of each workload, as for its single fit.
        contention: first guess.
        power: first guess; idle power and the voltage curve stay.
        max_mhz: the top clock.
    """
    found = scenes(sets, sm_mhz, timing, power, max_mhz)
    first = np.array([[getattr(one, name) for name in _NAMES] for one in timing.values()])
    hosted = np.array([priors[cell].host_s is not None for cell in timing])
    start = np.log(np.maximum(first, _TINY_S))
    centres, spreads = _priors(start, [priors[cell] for cell in timing])

    def unpack(q: FloatArray) -> tuple[FloatArray, Contention, Power]:
        times = np.exp(q[:-_SHARED].reshape(start.shape))
        times[:, -1] *= hosted
        strength, wait_us, memory, dynamic, sharing = np.exp(q[-_SHARED:])
        watts = replace(power, memory=float(memory), dynamic_w=float(dynamic), sharing=float(sharing))
        return times, Contention(float(strength), float(wait_us) * 1e-6), watts

    def residuals(q: FloatArray) -> FloatArray:
        time_s, power_w = answers(found, *unpack(q))
        gaps = [np.log(time_s / measured[0]), np.log(power_w / measured[1])]
        known = (_features(q[:-_SHARED].reshape(start.shape)) - centres) / spreads
        return np.concatenate([*(gap / _SIGMA for gap in gaps), known.ravel()])

    shared = [contention.strength, contention.wait_s * 1e6, power.memory, power.dynamic_w, power.sharing]
    begin = np.concatenate([start.ravel(), np.log(np.maximum(shared, 1e-3))])
    solved = least_squares(residuals, begin, bounds=(-25.0, 9.0), loss="soft_l1", f_scale=2.0, max_nfev=_STEPS)
    times, contention, power = unpack(solved.x)
    refined = {cell: _timing(old, row) for (cell, old), row in zip(timing.items(), times, strict=True)}
    return refined, contention, power


def _timing(old: Timing, row: FloatArray) -> Timing:
    values: dict[str, Any] = dict(zip(_NAMES, row.tolist(), strict=True))
    return replace(old, **values)


def _priors(start: FloatArray, priors: Sequence[Prior]) -> tuple[FloatArray, FloatArray]:
    """(centres, spreads) of ln memory, ln host, ln work / latency and ln fill / latency, (workloads, 4) each.

    What a prior does not know is held near where the single fit left it.
    """
    centres = [
        (
            row[1] if one.memory_s is None else math.log(one.memory_s),
            row[5] if one.host_s is None else math.log(one.host_s),
            math.log(one.base),
            math.log(one.fill),
        )
        for one, row in zip(priors, start, strict=True)
    ]
    return np.array(centres), np.array([one.spread for one in priors])


def _features(q: FloatArray) -> FloatArray:
    """What the priors speak of, from log-parameters, (workloads, 6) to (workloads, 4)."""
    return np.column_stack([q[:, 1], q[:, 5], q[:, 2] - q[:, 0], q[:, 4] - q[:, 0]])
