"""Fit of the device model's forms to one GPU's own profiles, independent of the shipped constants.

The shipped constants come from the public record of other people's measurements. Here the same forms are fitted to
settings of one GPU: times alone by workload, then contention, then power, then all of it at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, nnls

from heshare.arrays import FloatArray
from heshare.calibration.joint_fit import EngineModel, refine
from heshare.calibration.measurements import TimeRows, records
from heshare.calibration.time_fit import Prior, ThrottledGpu, fit_timing
from heshare.calibration.timing_constants import HOST_PER_LAYER_S, TimingKey, memory_s, with_kernels
from heshare.devices.board_power import activity, memory_slowdown_at, relative_voltage
from heshare.devices.constants import Constants, Contention, Power, Timing, default
from heshare.devices.device_model import contention_factors
from heshare.devices.iteration_time import Iteration, iteration_at
from heshare.profiles.schema import residents_of
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

GOOD_ERROR = 0.02
"""Mean |ln| of modelled over observed times below which a fit is not repeated from another start."""
LEAST_ROWS = 8
"""Settings below which contention or power keep their shipped constants."""
_HOST_PART = 0.5
_KNEES = tuple(0.5 + 0.025 * step for step in range(17))
_V_MINS = tuple(0.6 + 0.02 * step for step in range(20))
_CLOCK_RANGE = 1.3
_CLOCKS = 4
_SCALE = 0.05
_START = (0.1, 4.0, 0.7)


@dataclass(frozen=True, slots=True)
class ObservedSetting:
    """One task observed on the GPU, alone or beside others.

    Attributes:
        residents: the observed task first.
        sm_mhz: the clock reached, MHz.
        time_s: seconds per iteration of the observed task.
        power_w: board power, W.
    """

    residents: tuple[Resident, ...]
    sm_mhz: float
    time_s: float
    power_w: float


def observed_settings(table: pd.DataFrame) -> list[ObservedSetting]:
    """Return the rows of a profile table as settings."""
    return [
        ObservedSetting(residents_of(row), float(row.sm_mhz_reached), float(row.time_s), float(row.power_w))
        for row in records(table)
    ]


def fit_record(gpu: Gpu, settings: Sequence[ObservedSetting], idle_w: float) -> Constants:
    """Return constants of `gpu` from its own settings; those that too few of them determine stay as shipped.

    Args:
        gpu: the GPU.
        settings: its settings, FP32.
        idle_w: its power with nothing running, W.

    Returns:
        Constants of this GPU alone; timing of those workloads that `settings` hold alone.
    """
    constants = _fit_from(gpu, settings, idle_w, math.inf)
    error = _mean_error(gpu, settings, constants)
    if error <= GOOD_ERROR:
        return constants
    # Host time alone can explain a workload that was observed alone once; the search does not leave that solution.
    other = _fit_from(gpu, settings, idle_w, _HOST_PART)
    return other if _mean_error(gpu, settings, other) < error else constants


def covers(constants: Constants, gpu: Gpu, residents: Sequence[Resident]) -> bool:
    """Return whether the constants hold every workload of a set."""
    return all(_timing_key(gpu, resident.workload) in constants.timing for resident in residents)


def _timing_key(gpu: Gpu, workload: Workload) -> TimingKey:
    return gpu.name, workload.engine, workload.model


def _engine_model(setting: ObservedSetting) -> EngineModel:
    """Engine and workload of the observed task."""
    return setting.residents[0].workload.engine, setting.residents[0].workload.model


def _fit_from(gpu: Gpu, settings: Sequence[ObservedSetting], idle_w: float, host_part: float) -> Constants:
    """Constants from a start at which no host time exceeds `host_part` times the shortest iteration observed."""
    shipped = default()
    power = replace(shipped.power[gpu.name], idle_w=idle_w)
    priors = _priors(gpu, settings, host_part)
    timing = _fit_timing(gpu, settings, power, priors)
    constants = Constants(timing, {gpu.name: power}, {gpu.name: shipped.contention[gpu.name]}, {}, shipped.utilisation)
    covered = [setting for setting in settings if covers(constants, gpu, setting.residents)]
    modelled = [_modelled(gpu, setting, timing, power) for setting in covered]
    shared = [setting for setting in modelled if len(setting.iterations) > 1]
    if len(shared) >= LEAST_ROWS:
        contention, memory = _fit_contention(power, shared)
        power = replace(power, memory=memory)
        constants = replace(constants, contention={gpu.name: contention})
    if len(modelled) >= LEAST_ROWS:
        power = _fit_power(power, modelled, gpu.max_mhz)
    constants = replace(constants, power={gpu.name: power})
    return _refine(gpu, covered, constants, priors) if len(shared) >= LEAST_ROWS else constants


def _mean_error(gpu: Gpu, settings: Sequence[ObservedSetting], constants: Constants) -> float:
    """Mean |ln| of modelled over observed times."""
    covered = [setting for setting in settings if covers(constants, gpu, setting.residents)]
    power, contention = constants.power[gpu.name], constants.contention[gpu.name]
    modelled = [_modelled(gpu, setting, constants.timing, power) for setting in covered]
    times = np.array([setting.modelled_s(contention, power) for setting in modelled])
    return float(np.abs(np.log(times / [setting.time_s for setting in covered])).mean()) if covered else 0.0


def _refine(
    gpu: Gpu, covered: Sequence[ObservedSetting], constants: Constants, priors: Mapping[EngineModel, Prior]
) -> Constants:
    """All constants at once, from the single fits."""
    mhz, time_s, power_w = np.array([(setting.sm_mhz, setting.time_s, setting.power_w) for setting in covered]).T
    timing = {(engine, model): value for (_, engine, model), value in constants.timing.items()}
    refined, contention, power = refine(
        [setting.residents for setting in covered],
        mhz,
        (time_s, power_w),
        timing,
        {key: priors[key] for key in timing},
        constants.contention[gpu.name],
        constants.power[gpu.name],
        gpu.max_mhz,
    )
    fitted = {(gpu.name, *key): value for key, value in refined.items()}
    return replace(constants, timing=fitted, contention={gpu.name: contention}, power={gpu.name: power})


def _priors(gpu: Gpu, settings: Sequence[ObservedSetting], host_part: float) -> dict[EngineModel, Prior]:
    """The priors of the calibration: memory traffic from the catalogue, host time where a host launches kernels."""
    least_s: dict[EngineModel, float] = {}
    for setting in settings:
        key = _engine_model(setting)
        least_s[key] = min(least_s.get(key, math.inf), setting.time_s)
    priors = {}
    for (engine, model), least in least_s.items():
        fused = engine == "tensorrt"
        prior = Prior(memory_s(model, gpu.name, fused=fused))
        if not fused:
            host_s = min(catalogue.model(model).layers * HOST_PER_LAYER_S, host_part * least)
            prior = replace(prior, host_s=host_s, fill=0.3)
        priors[engine, model] = prior
    return priors


def _fit_timing(
    gpu: Gpu, settings: Sequence[ObservedSetting], power: Power, priors: Mapping[EngineModel, Prior]
) -> dict[TimingKey, Timing]:
    """Every workload that was observed alone, one fit each."""
    throttled = ThrottledGpu(power, gpu.max_mhz, gpu.tdp_w)
    alone: dict[EngineModel, list[ObservedSetting]] = {}
    for setting in settings:
        if len(setting.residents) == 1:
            alone.setdefault(_engine_model(setting), []).append(setting)
    return {
        (gpu.name, *key): with_kernels(key[1], fit_timing(_time_rows(rows), priors[key], throttled)).timing
        for key, rows in sorted(alone.items())
    }


def _time_rows(alone: Sequence[ObservedSetting]) -> TimeRows:
    columns = [
        (setting.residents[0].workload.batch_size, setting.residents[0].mps_pct / 100.0, setting.time_s, setting.sm_mhz)
        for setting in alone
    ]
    batch, share, time_s, sm_mhz = np.array(columns, dtype=np.float64).T
    return TimeRows(batch, share, time_s, sm_mhz)


@dataclass(frozen=True, slots=True)
class _ModelledSetting:
    """A setting in the terms of the device model: iterations of its residents, factors of its clock, observations."""

    iterations: tuple[Iteration, ...]
    slow: float
    stalled: float
    observed: ObservedSetting

    def activity(self, power: Power) -> tuple[float, float]:
        """(activity of all residents, activity of the busiest one)."""
        return activity(power, self.iterations, self.slow, self.stalled)

    def modelled_s(self, contention: Contention, power: Power) -> float:
        """Seconds per iteration of the observed task."""
        total, _ = self.activity(power)
        factor, wait_s = contention_factors(contention, self.iterations)[0]
        return self.iterations[0].time_s(self.slow, self.stalled, max(1.0, total) * factor, wait_s)


def _modelled(gpu: Gpu, setting: ObservedSetting, timing: Mapping[TimingKey, Timing], power: Power) -> _ModelledSetting:
    iterations = tuple(
        iteration_at(
            timing[_timing_key(gpu, resident.workload)], resident.workload.batch_size, resident.mps_pct / 100.0
        )
        for resident in setting.residents
    )
    slow, stalled = gpu.max_mhz / setting.sm_mhz, memory_slowdown_at(power, setting.sm_mhz)
    return _ModelledSetting(iterations, slow, stalled, setting)


def _fit_contention(power: Power, shared: Sequence[_ModelledSetting]) -> tuple[Contention, float]:
    """Contention and the weight of memory time when a GPU is full, from the times of tasks that share it."""
    observed_s = np.array([setting.observed.time_s for setting in shared])

    def residuals(q: FloatArray) -> FloatArray:
        contention, weighted = Contention(q[0], q[1] * 1e-6), replace(power, memory=float(q[2]))
        modelled_s = [setting.modelled_s(contention, weighted) for setting in shared]
        return np.asarray(np.log(np.array(modelled_s) / observed_s), dtype=np.float64)

    solved = least_squares(residuals, _START, bounds=((0, 0, 0), (1, 100, 2)), loss="soft_l1", f_scale=_SCALE)
    strength, wait_us, memory = (float(value) for value in solved.x)
    return Contention(strength, wait_us * 1e-6), memory


def _fit_power(power: Power, settings: Sequence[_ModelledSetting], max_mhz: float) -> Power:
    """Dynamic power and its extra under sharing; the voltage curve too where the clocks differ enough."""
    mhz = np.array([setting.observed.sm_mhz for setting in settings])
    power_w = np.array([setting.observed.power_w for setting in settings])
    clocks = {round(clock) for clock in mhz.tolist()}
    fit_curve = len(clocks) >= _CLOCKS and max(clocks) >= _CLOCK_RANGE * min(clocks)
    curves = product((knee * max_mhz for knee in _KNEES), _V_MINS) if fit_curve else [(power.knee_mhz, power.v_min)]
    activities = [setting.activity(power) for setting in settings]
    ratio = np.array([1.0 / setting.slow for setting in settings])
    rate = ratio * np.minimum(1.0, [total for total, _ in activities])
    beside = np.minimum(1.0, [total - busiest for total, busiest in activities] * ratio)
    (_, dynamic_w, sharing), knee, v_min = min(
        (_fit_dynamic_w(replace(power, knee_mhz=knee, v_min=v_min), mhz, max_mhz, rate, beside, power_w), knee, v_min)
        for knee, v_min in curves
    )
    return replace(power, dynamic_w=dynamic_w, sharing=sharing, knee_mhz=knee, v_min=v_min)


def _fit_dynamic_w(
    curve: Power, mhz: FloatArray, max_mhz: float, rate: FloatArray, beside: FloatArray, power_w: FloatArray
) -> tuple[float, float, float]:
    """(relative error, dynamic power in W, its extra under sharing) for a voltage curve."""
    volts = np.array([relative_voltage(curve, clock, max_mhz) for clock in mhz])
    active = rate * volts**2
    columns = np.column_stack([active, active * beside]) / power_w[:, None]
    (dynamic_w, extra_w), residual = nnls(columns, (power_w - curve.idle_w) / power_w)
    return float(residual), float(dynamic_w), float(extra_w / dynamic_w) if dynamic_w > 0 else 0.0
