"""Joint fit of all constants of one GPU to times and powers of all its settings.

The times of a workload alone at one inference batch size do not separate its host time from its SM time; its times
beside co-runners and its power do. The estimate is the maximum a posteriori under the priors of the single fits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from heshare.arrays import FloatArray, IntArray
from heshare.calibration.time_fit import Prior
from heshare.devices.board_power import memory_slowdown_at, relative_voltage
from heshare.devices.constants import Contention, Power, Timing
from heshare.devices.iteration_time import overlap_arrays
from heshare.world.workload import Resident

EngineModel = tuple[str, str]
"""(engine, workload)."""

_NAMES = ("latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s")
_SHARED = 5  # constants of the GPU, after those of the workloads
_SIGMA = 0.02
_TINY_S = 1e-8
_STEPS = 40


@dataclass(frozen=True)
class SettingArrays:
    """n settings of at most k residents, the observed task first; places beyond a set have weight 0.

    Attributes:
        workload: index of each resident's workload, (n, k).
        batch: inference batch sizes, (n, k).
        share: shares, 0 to 1, (n, k).
        weight: 1 for a resident, 0 beyond the set, (n, k).
        kernels: kernels of the observed task, (n,).
        slow: top clock over the clock reached, (n,).
        stalled: factor on memory time at that clock, (n,).
        volts2: square of the voltage at that clock over that at the top, (n,).
    """

    workload: IntArray
    batch: FloatArray
    share: FloatArray
    weight: FloatArray
    kernels: FloatArray
    slow: FloatArray
    stalled: FloatArray
    volts2: FloatArray


def setting_arrays(
    sets: Sequence[Sequence[Resident]],
    sm_mhz: FloatArray,
    timing: Mapping[EngineModel, Timing],
    power: Power,
    max_mhz: float,
) -> SettingArrays:
    """Return settings as arrays; every workload has a row in `timing`."""
    index = {key: number for number, key in enumerate(timing)}
    shape = (len(sets), max(map(len, sets)))
    workload, batch, share, weight = np.zeros(shape, np.int64), np.ones(shape), np.ones(shape), np.zeros(shape)
    for row, residents in enumerate(sets):
        for place, resident in enumerate(residents):
            workload[row, place] = index[resident.workload.engine, resident.workload.model]
            batch[row, place], share[row, place] = resident.workload.batch_size, resident.mps_pct / 100.0
            weight[row, place] = 1.0
    kernels = np.array([constants.kernels for constants in timing.values()])[workload[:, 0]]
    stalled = np.array([memory_slowdown_at(power, clock) for clock in sm_mhz])
    volts = np.array([relative_voltage(power, clock, max_mhz) for clock in sm_mhz])
    return SettingArrays(workload, batch, share, weight, kernels, max_mhz / sm_mhz, stalled, volts**2)


def co_run_arrays(
    settings: SettingArrays, times: FloatArray, contention: Contention, power: Power
) -> tuple[FloatArray, FloatArray]:
    """Return what `heshare.devices.device_model.co_run` gives for settings at the clocks they reached.

    Args:
        settings: n settings.
        times: the constants of each workload, (workloads, 6), columns latency, memory, work, work per sample, fill and
            host time, s.
        contention: how co-runners slow one another down.
        power: of the board.

    Returns:
        (seconds per iteration of the observed task, (n,); board power, W, (n,)).
    """
    latency, memory, work, per_sample, fill, host = np.moveaxis(times[settings.workload], 2, 0)
    memory, batch = memory * settings.batch, per_sample * settings.batch
    sms = work / settings.share + np.hypot(batch / settings.share, fill)
    slow = settings.slow[:, None]
    gpu = latency + memory * settings.stalled[:, None] + slow * sms
    active = settings.weight * slow * (work + batch + power.memory * memory) / overlap_arrays(host, gpu)
    total, busiest = active.sum(axis=1), active.max(axis=1)
    top_clock_gpu = latency + memory + sms
    duty_cycle = settings.weight * top_clock_gpu / overlap_arrays(host, top_clock_gpu)
    others = duty_cycle[:, 1:].sum(axis=1)
    stretch = np.maximum(1.0, total) * (1.0 + contention.strength * others)
    time_s = overlap_arrays(host[:, 0], gpu[:, 0] * stretch + contention.wait_s * settings.kernels * others)
    ratio = 1.0 / settings.slow
    dynamic_w = power.dynamic_w * ratio * np.minimum(1.0, total) * settings.volts2
    beside = np.minimum(1.0, (total - busiest) * ratio)
    return time_s, power.idle_w + dynamic_w * (1.0 + power.sharing * beside)


def refine(
    sets: Sequence[Sequence[Resident]],
    sm_mhz: FloatArray,
    measured: tuple[FloatArray, FloatArray],
    timing: Mapping[EngineModel, Timing],
    priors: Mapping[EngineModel, Prior],
    contention: Contention,
    power: Power,
    max_mhz: float,
) -> tuple[dict[EngineModel, Timing], Contention, Power]:
    """Return timing, contention and power that fit all settings best, in a search from those of the single fits.

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
    settings = setting_arrays(sets, sm_mhz, timing, power, max_mhz)
    first = np.array([[getattr(constants, name) for name in _NAMES] for constants in timing.values()])
    has_host = np.array([priors[key].host_s is not None for key in timing])
    start = np.log(np.maximum(first, _TINY_S))
    centres, spreads = _prior_arrays(start, [priors[key] for key in timing])

    def unpack(q: FloatArray) -> tuple[FloatArray, Contention, Power]:
        times = np.exp(q[:-_SHARED].reshape(start.shape))
        times[:, -1] *= has_host
        strength, wait_us, memory, dynamic_w, sharing = map(float, np.exp(q[-_SHARED:]))
        fitted_power = replace(power, memory=memory, dynamic_w=dynamic_w, sharing=sharing)
        return times, Contention(strength, wait_us * 1e-6), fitted_power

    def residuals(q: FloatArray) -> FloatArray:
        time_s, power_w = co_run_arrays(settings, *unpack(q))
        gaps = [np.log(time_s / measured[0]), np.log(power_w / measured[1])]
        deviations = (_prior_features(q[:-_SHARED].reshape(start.shape)) - centres) / spreads
        return np.concatenate([*(gap / _SIGMA for gap in gaps), deviations.ravel()])

    shared = [contention.strength, contention.wait_s * 1e6, power.memory, power.dynamic_w, power.sharing]
    begin = np.concatenate([start.ravel(), np.log(np.maximum(shared, 1e-3))])
    solved = least_squares(residuals, begin, bounds=(-25.0, 9.0), loss="soft_l1", f_scale=2.0, max_nfev=_STEPS)
    times, contention, power = unpack(solved.x)
    refined = {
        key: replace(old, **dict(zip(_NAMES, row, strict=True)))
        for (key, old), row in zip(timing.items(), times.tolist(), strict=True)
    }
    return refined, contention, power


def _prior_arrays(start: FloatArray, priors: Sequence[Prior]) -> tuple[FloatArray, FloatArray]:
    """(centres, spreads) of ln memory, ln host, ln work / latency and ln fill / latency, (workloads, 4) each.

    Where a prior gives no memory or host time, the centre is the result of the single fit.
    """
    centres = [
        (
            row[1] if prior.memory_s is None else math.log(prior.memory_s),
            row[5] if prior.host_s is None else math.log(prior.host_s),
            math.log(prior.base),
            math.log(prior.fill),
        )
        for prior, row in zip(priors, start, strict=True)
    ]
    return np.array(centres), np.array([prior.spread for prior in priors])


def _prior_features(q: FloatArray) -> FloatArray:
    """The quantities that the priors are about, from log-parameters, (workloads, 6) to (workloads, 4)."""
    return np.column_stack([q[:, 1], q[:, 5], q[:, 2] - q[:, 0], q[:, 4] - q[:, 0]])
