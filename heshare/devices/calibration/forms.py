"""The device model's forms fitted to one GPU's own record, whatever the shipped constants say of it.

The shipped constants come from the public record of other people's measurements. Here the same forms are fitted to
settings of one GPU: times alone by workload, then what co-runners do to them, then power, then all of it at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.optimize import least_squares, nnls

from heshare.devices.calibration import cells, fill
from heshare.devices.calibration.data import FloatArray, Rows
from heshare.devices.calibration.joint import refine
from heshare.devices.calibration.times import Card, Prior
from heshare.devices.calibration.times import fit as fit_times
from heshare.devices.constants import Constants, Contention, Power, Timing, default
from heshare.devices.contention import pushes
from heshare.devices.power import load, stall, voltage
from heshare.devices.timing import Part, fold
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

GOOD = 0.02
"""Mean |ln| of modelled over observed times below which a fit is not tried again from another start."""
_HOST = 0.5
LEAST_ROWS = 8
"""Settings below which contention or power keep their shipped constants."""
_KNEES = tuple(0.5 + 0.025 * step for step in range(17))
_V_MINS = tuple(0.6 + 0.02 * step for step in range(20))
_CLOCK_RANGE = 1.3
_CLOCKS = 4
_SCALE = 0.05
_START = (0.1, 4.0, 0.7)


@dataclass(frozen=True, slots=True)
class Setting:
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


def fit(gpu: Gpu, settings: Sequence[Setting], idle_w: float) -> Constants:
    """Constants of `gpu` from its own settings; what too few of them settle stays as shipped.

    Args:
        gpu: the GPU.
        settings: what was observed, FP32.
        idle_w: its power with nothing running, W.

    Returns:
        Constants of this GPU alone; timing of those workloads that `settings` hold alone.
    """
    constants = _fit(gpu, settings, idle_w, math.inf)
    miss = _miss(gpu, settings, constants)
    if miss <= GOOD:
        return constants
    # A workload that was seen alone once can be explained by its host part alone; from there no step leads back.
    other = _fit(gpu, settings, idle_w, _HOST)
    return other if _miss(gpu, settings, other) < miss else constants


def _fit(gpu: Gpu, settings: Sequence[Setting], idle_w: float, host: float) -> Constants:
    """Constants from a start at which no host part is longer than `host` times the shortest iteration observed."""
    shipped = default()
    power = replace(shipped.power[gpu.name], idle_w=idle_w)
    priors = _priors(gpu, settings, host)
    timing = _timing(gpu, settings, power, priors)
    constants = Constants(timing, {gpu.name: power}, {gpu.name: shipped.contention[gpu.name]}, {}, shipped.utilisation)
    scenes = [_scene(gpu, one, timing, power) for one in settings if covers(constants, gpu, one.residents)]
    crowded = [scene for scene in scenes if len(scene.parts) > 1]
    if len(crowded) >= LEAST_ROWS:
        contention, memory = _contention(power, crowded)
        power = replace(power, memory=memory)
        constants = replace(constants, contention={gpu.name: contention})
    if len(scenes) >= LEAST_ROWS:
        power = _power(power, scenes, gpu.max_mhz)
    constants = replace(constants, power={gpu.name: power})
    return _refined(gpu, settings, constants, priors) if len(crowded) >= LEAST_ROWS else constants


def _miss(gpu: Gpu, settings: Sequence[Setting], constants: Constants) -> float:
    """Mean |ln| of modelled over observed times."""
    seen = [one for one in settings if covers(constants, gpu, one.residents)]
    scenes = [_scene(gpu, one, dict(constants.timing), constants.power[gpu.name]) for one in seen]
    times = [_time_s(one, constants.contention[gpu.name], constants.power[gpu.name]) for one in scenes]
    return float(np.abs(np.log(np.array(times) / [one.time_s for one in seen])).mean()) if seen else 0.0


def _refined(
    gpu: Gpu, settings: Sequence[Setting], constants: Constants, every: Mapping[tuple[str, str], Prior]
) -> Constants:
    """All constants at once, from the single fits."""
    seen = [one for one in settings if covers(constants, gpu, one.residents)]
    mhz, time_s, power_w = np.array([(one.sm_mhz, one.time_s, one.power_w) for one in seen]).T
    timing = {(engine, model): one for (_, engine, model), one in constants.timing.items()}
    priors = {cell: every[cell] for cell in timing}
    shared = (constants.contention[gpu.name], constants.power[gpu.name])
    refined, contention, power = refine(
        [one.residents for one in seen], mhz, (time_s, power_w), timing, priors, *shared, gpu.max_mhz
    )
    found = {(gpu.name, *cell): one for cell, one in refined.items()}
    return replace(constants, timing=found, contention={gpu.name: contention}, power={gpu.name: power})


def covers(constants: Constants, gpu: Gpu, residents: Sequence[Resident]) -> bool:
    """Whether the constants know every workload of a set."""
    return all((gpu.name, one.workload.engine, one.workload.model) in constants.timing for one in residents)


def _timing(
    gpu: Gpu, settings: Sequence[Setting], power: Power, priors: Mapping[tuple[str, str], Prior]
) -> dict[tuple[str, str, str], Timing]:
    """Every workload that was observed alone, one fit each."""
    card = Card(power, gpu.max_mhz, gpu.tdp_w)
    found: dict[tuple[str, str], list[Setting]] = {}
    for one in settings:
        if len(one.residents) == 1:
            workload = one.residents[0].workload
            found.setdefault((workload.engine, workload.model), []).append(one)
    return {
        (gpu.name, *cell): fill.kernels(cell[1], fit_times(_rows(alone), priors[cell], card)).timing
        for cell, alone in sorted(found.items())
    }


def _priors(gpu: Gpu, settings: Sequence[Setting], host: float) -> dict[tuple[str, str], Prior]:
    """The prior of each workload that was observed."""
    least_s: dict[tuple[str, str], float] = {}
    for one in settings:
        cell = (one.residents[0].workload.engine, one.residents[0].workload.model)
        least_s[cell] = min(least_s.get(cell, math.inf), one.time_s)
    found = {cell: _prior(gpu, *cell) for cell in least_s}
    return {
        cell: one if one.host_s is None else replace(one, host_s=min(one.host_s, host * least_s[cell]))
        for cell, one in found.items()
    }


def _rows(alone: Sequence[Setting]) -> Rows:
    columns = [
        (one.residents[0].workload.batch_size, one.residents[0].mps_pct / 100.0, one.time_s, one.sm_mhz)
        for one in alone
    ]
    batch, share, time_s, sm_mhz = np.array(columns, dtype=np.float64).T
    return Rows(batch, share, time_s, sm_mhz)


def _prior(gpu: Gpu, engine: str, model: str) -> Prior:
    """The priors of the calibration: memory traffic from the catalogue, a host part where a host launches kernels."""
    memory_s = cells.memory_s(model, gpu.name, fused=engine == "tensorrt")
    if engine == "tensorrt":
        return Prior(memory_s)
    return Prior(memory_s, catalogue.model(model).layers * cells.HOST_PER_LAYER_S, fill=0.3)


@dataclass(frozen=True, slots=True)
class _Scene:
    """A setting as the model sees it: parts of its residents, factors of its clock, what was observed."""

    parts: tuple[Part, ...]
    sm_mhz: float
    slow: float
    stalled: float
    time_s: float
    power_w: float


def _scene(gpu: Gpu, one: Setting, timing: dict[tuple[str, str, str], Timing], power: Power) -> _Scene:
    parts = tuple(
        fold(timing[gpu.name, r.workload.engine, r.workload.model], r.workload.batch_size, r.mps_pct / 100.0)
        for r in one.residents
    )
    return _Scene(parts, one.sm_mhz, gpu.max_mhz / one.sm_mhz, stall(power, one.sm_mhz), one.time_s, one.power_w)


def _contention(power: Power, scenes: Sequence[_Scene]) -> tuple[Contention, float]:
    """Contention and the weight of memory time when a GPU is full, from the times of tasks that share it."""
    measured = np.array([scene.time_s for scene in scenes])

    def residuals(q: FloatArray) -> FloatArray:
        contention, crowd = Contention(q[0], q[1] * 1e-6), replace(power, memory=float(q[2]))
        modelled = [_time_s(scene, contention, crowd) for scene in scenes]
        return np.asarray(np.log(np.array(modelled) / measured), dtype=np.float64)

    found = least_squares(residuals, _START, bounds=((0, 0, 0), (1, 100, 2)), loss="soft_l1", f_scale=_SCALE)
    strength, wait_us, memory = (float(value) for value in found.x)
    return Contention(strength, wait_us * 1e-6), memory


def _time_s(scene: _Scene, contention: Contention, power: Power) -> float:
    active, _ = load(power, scene.parts, scene.slow, scene.stalled)
    factor, wait_s = pushes(contention, scene.parts)[0]
    return scene.parts[0].time_s(scene.slow, scene.stalled, max(1.0, active) * factor, wait_s)


def _power(power: Power, scenes: Sequence[_Scene], max_mhz: float) -> Power:
    """Dynamic power and its extra under sharing; the voltage curve too where the clocks differ enough."""
    clocks = {round(scene.sm_mhz) for scene in scenes}
    apart = len(clocks) >= _CLOCKS and max(clocks) >= _CLOCK_RANGE * min(clocks)
    curves = product((knee * max_mhz for knee in _KNEES), _V_MINS) if apart else [(power.knee_mhz, power.v_min)]
    loads = [load(power, scene.parts, scene.slow, scene.stalled) for scene in scenes]
    ratio = np.array([1.0 / scene.slow for scene in scenes])
    rate = ratio * np.minimum(1.0, [total for total, _ in loads])
    beside = np.minimum(1.0, [total - most for total, most in loads] * ratio)
    mhz, power_w = (np.array([getattr(scene, name) for scene in scenes]) for name in ("sm_mhz", "power_w"))
    best = min(
        (_watts(replace(power, knee_mhz=knee, v_min=v_min), mhz, max_mhz, rate, beside, power_w), knee, v_min)
        for knee, v_min in curves
    )
    (_, dynamic_w, sharing), knee, v_min = best
    return replace(power, dynamic_w=dynamic_w, sharing=sharing, knee_mhz=knee, v_min=v_min)


def _watts(
    curve: Power, mhz: FloatArray, max_mhz: float, rate: FloatArray, beside: FloatArray, power_w: FloatArray
) -> tuple[float, float, float]:
    """(relative error, dynamic power in W, its extra under sharing) for a voltage curve."""
    volts = np.array([voltage(curve, clock, max_mhz) for clock in mhz])
    active = rate * volts**2
    columns = np.column_stack([active, active * beside]) / power_w[:, None]
    (dynamic_w, extra_w), left = nnls(columns, (power_w - curve.idle_w) / power_w)
    return float(left), float(dynamic_w), float(extra_w / dynamic_w) if dynamic_w > 0 else 0.0
