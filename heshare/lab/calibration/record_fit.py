"""Fit of the device model's forms to one GPU's own profiles, independent of the shipped constants.

The shipped constants come from the public record of other people's measurements. Here the same forms are fitted to
settings of one GPU: times alone by workload, then contention, then power, then all of it at once.

The times of a workload alone at one inference batch size do not separate its host time from its SM time; its times
beside co-runners and its power do. The last fit is the maximum a posteriori estimate under the priors of the first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, nnls

from heshare.devices.board_power import idle_power_w, memory_slowdown_at, switching, work_done
from heshare.devices.constants import Constants, Contention, Load, Power, Timing, default
from heshare.devices.crowding import common_stretch, contention_factors, resident_parts, stretches
from heshare.devices.iteration_time import (
    Iteration,
    WorkPower,
    filled_arrays,
    iteration_at,
    overlap_arrays,
    rated_energies_s,
    work_power,
)
from heshare.lab.calibration.copies_fit import stretch_arrays
from heshare.lab.calibration.measurements import TimeRows, records
from heshare.lab.calibration.time_fit import Prior, ThrottledGpu, fit_timing
from heshare.lab.calibration.timing_constants import HOST_PER_LAYER_S, TimingKey, memory_s, with_kernels
from heshare.profiles.schema import residents_of
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

GOOD_ERROR = 0.02
"""Mean |ln| of modelled over observed times below which a fit is not repeated from another start."""
LEAST_ROWS = 8
"""Settings below which contention or power keep their shipped constants."""
JOINT_ORDER = ("latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s")
"""Time constants in the order of the joint fit; another order changes the last bits of a fit."""
_HOST_PART = 0.5
_KNEES = tuple(0.5 + 0.025 * step for step in range(17))
_V_MINS = tuple(0.6 + 0.02 * step for step in range(20))
_CLOCK_RANGE = 1.3
_CLOCKS = 4
_SCALE = 0.05
_START = (0.1, 4.0, 0.7)
# The joint fit: constants of the GPU after those of the workloads, noise of an observation, smallest time, steps.
_SHARED, _SIGMA, _TINY_S, _STEPS = 5, 0.02, 1e-8, 40
_BOUNDS = -25.0, 9.0


@dataclass(frozen=True, slots=True)
class ObservedSetting:
    """One task, the first resident, observed alone or beside others at the clock reached; power is the board's."""

    residents: tuple[Resident, ...]
    sm_mhz: float
    time_s: float
    power_w: float


def observed_settings(table: pd.DataFrame) -> list[ObservedSetting]:
    return [
        ObservedSetting(residents_of(row), float(row.sm_mhz_reached), float(row.time_s), float(row.power_w))
        for row in records(table)
    ]


def fit_record(gpu: Gpu, settings: Sequence[ObservedSetting], idle_w: float) -> Constants:
    """Return constants of `gpu` alone from its own settings in FP32; where too few determine one it stays as shipped.

    Timing is that of the workloads that `settings` hold alone. `idle_w` is the power with nothing running, W.
    """
    constants = _fit_from(gpu, settings, idle_w, math.inf)
    error = _mean_error(gpu, settings, constants)
    if error <= GOOD_ERROR:
        return constants
    # Host time alone can explain a workload that was observed alone once; the search does not leave that solution.
    other = _fit_from(gpu, settings, idle_w, _HOST_PART)
    return other if _mean_error(gpu, settings, other) < error else constants


def covers(constants: Constants, gpu: Gpu, residents: Sequence[Resident]) -> bool:
    return all(_timing_key(gpu, resident) in constants.timing for resident in residents)


def _timing_key(gpu: Gpu, resident: Resident) -> TimingKey:
    return gpu.name, resident.workload.engine, resident.workload.model


def _work_power(loads: Mapping[tuple[str, str, str], Load], gpu: Gpu, resident: Resident) -> WorkPower:
    workload = resident.workload
    return work_power(loads.get((gpu.name, catalogue.kind(workload.model), workload.precision)), workload)


def _fit_from(gpu: Gpu, settings: Sequence[ObservedSetting], idle_w: float, host_part: float) -> Constants:
    """Constants from a start at which no host time exceeds `host_part` times the shortest iteration observed."""
    shipped = default()
    power = replace(shipped.power[gpu.name], idle_w=idle_w)
    priors = _priors(gpu, settings, host_part)
    timing = _fit_timing(gpu, settings, power, priors)
    contention = shipped.contention[gpu.name]
    constants = Constants(timing, {gpu.name: power}, {gpu.name: contention}, {}, shipped.utilisation, shipped.loads)
    modelled = _modelled_settings(gpu, settings, constants)
    shared = [setting for setting in modelled if len(setting.iterations) > 1]
    if len(shared) >= LEAST_ROWS:
        contention = _fit_contention(contention, shared)
        power = replace(power, memory=contention.memory)
        constants = replace(constants, contention={gpu.name: contention})
    if len(modelled) >= LEAST_ROWS:
        power = _fit_power(power, contention, modelled, gpu.max_mhz)
    constants = replace(constants, power={gpu.name: power})
    if len(shared) < LEAST_ROWS:
        return constants
    return _fit_jointly(gpu, [setting.observed for setting in modelled], constants, priors)


def _mean_error(gpu: Gpu, settings: Sequence[ObservedSetting], constants: Constants) -> float:
    modelled = _modelled_settings(gpu, settings, constants)
    times = np.array([setting.modelled_s(constants.contention[gpu.name]) for setting in modelled])
    return float(np.abs(np.log(times / [setting.observed.time_s for setting in modelled])).mean()) if modelled else 0.0


def _priors(gpu: Gpu, settings: Sequence[ObservedSetting], host_part: float) -> dict[TimingKey, Prior]:
    least_s: dict[TimingKey, float] = {}
    for setting in settings:
        key = _timing_key(gpu, setting.residents[0])
        least_s[key] = min(least_s.get(key, math.inf), setting.time_s)
    priors = {}
    for (name, engine, model), least in least_s.items():
        fused = engine == "tensorrt"
        prior = Prior(memory_s(model, name, fused=fused))
        if not fused:
            host_s = min(catalogue.model(model).layers * HOST_PER_LAYER_S, host_part * least)
            prior = replace(prior, host_s=host_s, fill=0.3)
        priors[name, engine, model] = prior
    return priors


def _fit_timing(
    gpu: Gpu, settings: Sequence[ObservedSetting], power: Power, priors: Mapping[TimingKey, Prior]
) -> dict[TimingKey, Timing]:
    throttled = ThrottledGpu(power, gpu.max_mhz, gpu.tdp_w)
    alone: dict[TimingKey, list[tuple[float, ...]]] = {}
    for setting in settings:
        if len(setting.residents) == 1:
            (own,) = setting.residents
            row = (own.workload.batch_size, own.mps_pct / 100.0, setting.time_s, setting.sm_mhz)
            alone.setdefault(_timing_key(gpu, own), []).append(row)
    return {
        key: with_kernels(key[2], fit_timing(TimeRows(*np.array(rows, float).T), priors[key], throttled)).timing
        for key, rows in sorted(alone.items())
    }


@dataclass(frozen=True, slots=True)
class _ModelledSetting:
    iterations: tuple[Iteration, ...]
    slow: float
    stalled: float
    observed: ObservedSetting

    def work_done(self, power: Power, contention: Contention) -> tuple[float, float, float, float]:
        slowdowns = self.slow, self.stalled
        turns = common_stretch(contention, resident_parts(self.iterations), *slowdowns)
        factors = contention_factors(contention, self.iterations)
        times_s = [
            iteration.time_s(*slowdowns, turns * factor, wait_s)
            for iteration, (factor, wait_s) in zip(self.iterations, factors, strict=True)
        ]
        return work_done(power, self.iterations, times_s, *slowdowns)

    def modelled_s(self, contention: Contention) -> float:
        crowding = stretches(contention, resident_parts(self.iterations), self.slow, self.stalled)[0]
        factor, wait_s = contention_factors(contention, self.iterations)[0]
        return self.iterations[0].time_s(self.slow, self.stalled, crowding * factor, wait_s)


def _modelled_settings(gpu: Gpu, settings: Sequence[ObservedSetting], constants: Constants) -> list[_ModelledSetting]:
    def modelled(setting: ObservedSetting) -> _ModelledSetting:
        iterations = tuple(
            iteration_at(
                constants.timing[_timing_key(gpu, resident)],
                resident.workload.batch_size,
                resident.mps_pct / 100.0,
                draws=_work_power(constants.loads, gpu, resident),
            )
            for resident in setting.residents
        )
        stalled = memory_slowdown_at(constants.power[gpu.name], setting.sm_mhz)
        return _ModelledSetting(iterations, gpu.max_mhz / setting.sm_mhz, stalled, setting)

    return [modelled(setting) for setting in settings if covers(constants, gpu, setting.residents)]


def _fit_contention(shipped: Contention, shared: Sequence[_ModelledSetting]) -> Contention:
    observed_s = np.array([setting.observed.time_s for setting in shared])

    def residuals(q: FloatArray) -> FloatArray:
        contention = replace(shipped, strength=q[0], wait_s=q[1] * 1e-6, memory=float(q[2]))
        modelled_s = [setting.modelled_s(contention) for setting in shared]
        return np.asarray(np.log(np.array(modelled_s) / observed_s), dtype=np.float64)

    solved = least_squares(residuals, _START, bounds=((0, 0, 0), (1, 100, 2)), loss="soft_l1", f_scale=_SCALE)
    strength, wait_us, memory = (float(value) for value in solved.x)
    return replace(shipped, strength=strength, wait_s=wait_us * 1e-6, memory=memory)


def _fit_power(power: Power, contention: Contention, settings: Sequence[_ModelledSetting], max_mhz: float) -> Power:
    mhz = np.array([setting.observed.sm_mhz for setting in settings])
    power_w = np.array([setting.observed.power_w for setting in settings])
    clocks = {round(clock) for clock in mhz.tolist()}
    fit_curve = len(clocks) >= _CLOCKS and max(clocks) >= _CLOCK_RANGE * min(clocks)
    curves = product((knee * max_mhz for knee in _KNEES), _V_MINS) if fit_curve else [(power.knee_mhz, power.v_min)]
    ratio = np.array([1.0 / setting.slow for setting in settings])
    clocks, work, others, rated = np.array([setting.work_done(power, contention) for setting in settings]).T
    beside = np.minimum(1.0, others * ratio)

    def fit_dynamic_w(knee: float, v_min: float) -> tuple[float, float, float]:
        """(relative error, dynamic power in W, its extra under sharing) for a voltage curve."""
        curve = replace(power, knee_mhz=knee, v_min=v_min)
        switched = np.array([switching(curve, clock, max_mhz) for clock in mhz])
        columns = (switched * [work + rated, work * beside]).T / power_w[:, None]
        above_w = power_w - [idle_power_w(curve, clock, max_mhz) for clock in mhz] - curve.clock_w * clocks * switched
        (dynamic_w, extra_w), residual = nnls(columns, np.maximum(0.0, above_w) / power_w)
        return float(residual), float(dynamic_w), float(extra_w / dynamic_w) if dynamic_w > 0 else 0.0

    (_, dynamic_w, sharing), knee, v_min = min((fit_dynamic_w(*curve), *curve) for curve in curves)
    return replace(power, dynamic_w=dynamic_w, sharing=sharing, knee_mhz=knee, v_min=v_min)


@dataclass(frozen=True)
class SettingArrays:
    """n settings of at most k residents, the observed task first: arrays (n, k), by clock (n,).

    `weight` is 1 for a resident, 0 beyond a set; `rated_s` the energy of its operations and traffic, as a time at full
    dynamic power; `slow` the top clock over the clock reached; `stalled` the factor on memory time, `switched`
    `board_power.switching` and `idle_w` the idle power, W, at that clock.
    """

    workload: IntArray
    batch: FloatArray
    share: FloatArray
    weight: FloatArray
    intensity: FloatArray
    rated_s: FloatArray
    kernels: FloatArray
    slow: FloatArray
    stalled: FloatArray
    switched: FloatArray
    idle_w: FloatArray


def setting_arrays(
    gpu: Gpu,
    sets: Sequence[Sequence[Resident]],
    sm_mhz: FloatArray,
    timing: Mapping[TimingKey, Timing],
    power: Power,
    loads: Mapping[tuple[str, str, str], Load],
) -> SettingArrays:
    index = {key: number for number, key in enumerate(timing)}
    shape = (len(sets), max(map(len, sets)))
    workload, batch, share, weight = np.zeros(shape, np.int64), np.ones(shape), np.ones(shape), np.zeros(shape)
    intensity, rated_s = np.zeros(shape), np.zeros(shape)
    for row, residents in enumerate(sets):
        draws = [_work_power(loads, gpu, resident) for resident in residents]
        rated_s[row, : len(draws)] = rated_energies_s(draws, power.cache_mb)
        for place, resident in enumerate(residents):
            workload[row, place] = index[_timing_key(gpu, resident)]
            batch[row, place], share[row, place] = resident.workload.batch_size, resident.mps_pct / 100.0
            weight[row, place] = 1.0
            intensity[row, place] = draws[place].intensity
    kernels = np.array([constants.kernels for constants in timing.values()])[workload]
    stalled = np.array([memory_slowdown_at(power, clock) for clock in sm_mhz])
    switched = np.array([switching(power, clock, gpu.max_mhz) for clock in sm_mhz])
    idle_w, slow = np.array([idle_power_w(power, clock, gpu.max_mhz) for clock in sm_mhz]), gpu.max_mhz / sm_mhz
    return SettingArrays(workload, batch, share, weight, intensity, rated_s, kernels, slow, stalled, switched, idle_w)


def time_array(timing: Mapping[TimingKey, Timing]) -> FloatArray:
    return np.array([[getattr(constants, name) for name in JOINT_ORDER] for constants in timing.values()])


def co_run_arrays(
    settings: SettingArrays, times: FloatArray, contention: Contention, power: Power
) -> tuple[FloatArray, FloatArray]:
    """Return what `heshare.devices.device_model.co_run` gives for n settings at the clocks they reached.

    That is (seconds per iteration of the observed task, board power in W), (n,) each; `times` as from `time_array`.
    """
    latency, memory, work, per_sample, fill, host = np.moveaxis(times[settings.workload], 2, 0)
    memory, batch = memory * settings.batch, per_sample * settings.batch
    sms = work / settings.share + filled_arrays(batch / settings.share, fill)
    slow = settings.slow[:, None]
    gpu = latency + memory * settings.stalled[:, None] + slow * sms
    waiting = contention.memory * memory + contention.busy * (latency + fill)
    held = settings.share.copy()
    held[:, 0] = np.minimum(1.0, (settings.share * settings.weight)[:, 1:].sum(axis=1))
    busy = settings.weight * slow * (work + batch + held * waiting)
    together = settings.weight * slow * (work + batch + settings.share * waiting)
    top_clock_gpu = latency + memory + sms
    duty_cycle = settings.weight * top_clock_gpu / overlap_arrays(host, top_clock_gpu)
    others = duty_cycle.sum(axis=1, keepdims=True) - duty_cycle
    weighted = duty_cycle * settings.share
    beside = (weighted.sum(axis=1, keepdims=True) - weighted) / settings.share
    factor, waits_s = 1.0 + contention.strength * beside, contention.wait_s * settings.kernels * others
    turns = stretch_arrays(contention.sharpness, together, host, gpu)[:, None]
    crowded_s = overlap_arrays(host, gpu * turns * factor + waits_s)
    active = settings.weight * slow * (work + batch + power.memory * memory) / crowded_s
    total, busiest = active.sum(axis=1), active.max(axis=1)
    own_turns = stretch_arrays(contention.sharpness, busy, host, gpu)
    time_s = overlap_arrays(host[:, 0], gpu[:, 0] * own_turns * factor[:, 0] + waits_s[:, 0])
    work = np.minimum(settings.intensity.max(axis=1), (settings.intensity * active).sum(axis=1))
    rated = (slow * settings.rated_s / crowded_s).sum(axis=1)
    extra = 1.0 + power.sharing * np.minimum(1.0, (total - busiest) / settings.slow)
    running = np.minimum(1.0, (settings.weight * gpu / crowded_s).sum(axis=1))
    busy_w = power.clock_w * running + power.dynamic_w * (work * extra + rated)
    return time_s, settings.idle_w + settings.switched * busy_w


def _fit_jointly(
    gpu: Gpu, observed: Sequence[ObservedSetting], constants: Constants, priors: Mapping[TimingKey, Prior]
) -> Constants:
    """Timing, contention and power that fit all settings best, in a search from those of the single fits.

    Idle power and the voltage curve stay.
    """
    timing, contention, power = constants.timing, constants.contention[gpu.name], constants.power[gpu.name]
    sm_mhz, time_s, power_w = np.array([(setting.sm_mhz, setting.time_s, setting.power_w) for setting in observed]).T
    settings = setting_arrays(gpu, [setting.residents for setting in observed], sm_mhz, timing, power, constants.loads)
    has_host = np.array([priors[key].host_s is not None for key in timing])
    start = np.log(np.maximum(time_array(timing), _TINY_S))
    centres, spreads = _prior_arrays(start, [priors[key] for key in timing])

    def unpack(q: FloatArray) -> tuple[FloatArray, Contention, Power]:
        times = np.exp(q[:-_SHARED].reshape(start.shape))
        times[:, -1] *= has_host
        strength, wait_us, memory, dynamic_w, sharing = map(float, np.exp(q[-_SHARED:]))
        fitted_power = replace(power, memory=memory, dynamic_w=dynamic_w, sharing=sharing)
        fitted = replace(contention, strength=strength, wait_s=wait_us * 1e-6, memory=memory)
        return times, fitted, fitted_power

    def residuals(q: FloatArray) -> FloatArray:
        """Return those of the settings, then those of the priors."""
        modelled_s, modelled_w = co_run_arrays(settings, *unpack(q))
        gaps = [np.log(modelled_s / time_s), np.log(modelled_w / power_w)]
        logs = q[:-_SHARED].reshape(start.shape)
        features = np.column_stack([logs[:, 1], logs[:, 5], logs[:, 2] - logs[:, 0], logs[:, 4] - logs[:, 0]])
        deviations = (features - centres) / spreads
        return np.concatenate([*(gap / _SIGMA for gap in gaps), deviations.ravel()])

    shared = [contention.strength, contention.wait_s * 1e6, power.memory, power.dynamic_w, power.sharing]
    begin = np.concatenate([start.ravel(), np.log(np.maximum(shared, 1e-3))])
    solved = least_squares(residuals, begin, bounds=_BOUNDS, loss="soft_l1", f_scale=2.0, max_nfev=_STEPS)
    times, contention, power = unpack(solved.x)
    fitted = {
        key: replace(old, **dict(zip(JOINT_ORDER, row, strict=True)))
        for (key, old), row in zip(timing.items(), times.tolist(), strict=True)
    }
    return replace(constants, timing=fitted, contention={gpu.name: contention}, power={gpu.name: power})


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
