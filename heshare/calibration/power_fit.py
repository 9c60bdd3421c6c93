"""Power constants of every GPU with their ranges and sources: fitted where measured, derived from others elsewhere.

The voltage curve comes from clock sweeps, the dynamic power from inference under MPS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.arrays import FloatArray
from heshare.calibration.measurements import MPS_MODELS, records, table
from heshare.calibration.time_fit import FittedTiming
from heshare.calibration.timing_constants import fit_t4_clocks
from heshare.devices.board_power import activity, relative_voltage
from heshare.devices.constants import Power, Timing
from heshare.devices.iteration_time import iteration_at
from heshare.world import catalogue

SWEEPS = {"A100": 510, "V100": 705}
"""GPUs with clock sweeps and the lowest clock used, MHz: below it the V100's memory clock changes too."""
MEMORY_KNEES_MHZ = range(600, 1101, 50)
"""Clocks among which the one is chosen below which memory time grows as 1/f."""

_KNEES_MHZ = range(990, 1231, 30)
_V_MINS = (0.74, 0.76, 0.78, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9)
_OUTLIERS = ("lavamd", "lud")
T4_CAPPED_MHZ = 1030.0
"""The clock that 70 W leave to a T4 at about 60 C under FP32 BERT, MHz (boringlee24/NLP_on_T4)."""

_T4_KNEE, _T4_V_MIN = 0.8, 0.8


def sweep(gpu: str) -> pd.DataFrame:
    """Return the clock sweep of a GPU: one row an application and clock, without codes whose power jumps."""
    clocks = table("clocks")
    keep = (clocks.gpu == gpu) & (clocks.sm_mhz >= SWEEPS[gpu]) & (clocks.sm_mhz <= catalogue.gpu(gpu).max_mhz)
    return clocks[keep & ((gpu != "V100") | ~clocks.application.isin(_OUTLIERS))]


def spaced(clocks: Sequence[int], count: int) -> list[int]:
    """Return `count` clocks spread evenly over those offered."""
    ordered = sorted(set(clocks))
    return [ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count)]


def clock_power(sm_mhz: FloatArray, max_mhz: float, knee_mhz: float, v_min: float) -> FloatArray:
    """Return `(f / f_max) V(f)^2`, shape (n,): how dynamic power of a busy SM grows with the clock."""
    curve = Power(0, 0, 0, knee_mhz, v_min, 0)
    volts = np.array([relative_voltage(curve, clock, max_mhz) for clock in sm_mhz])
    return np.asarray(sm_mhz / max_mhz * volts**2, dtype=np.float64)


def fit_sweep_power(
    train: pd.DataFrame, test: pd.DataFrame, max_mhz: float, knee_mhz: float, v_min: float
) -> tuple[float, FloatArray]:
    """Fit static and dynamic power of each application; return (error on `train`, relative errors on `test`).

    The error is the sum of squares.
    """

    def columns(rows: pd.DataFrame) -> FloatArray:
        scale = clock_power(rows.sm_mhz.to_numpy(float), max_mhz, knee_mhz, v_min)
        return np.column_stack([np.ones(len(rows)), scale])

    return _fit_applications(train, test, "power_w", columns)


def _fit_applications(
    train: pd.DataFrame, test: pd.DataFrame, quantity: str, columns: Callable[[pd.DataFrame], FloatArray]
) -> tuple[float, FloatArray]:
    """Fit a quantity of each application as a non-negative sum of columns, on relative errors."""
    cost, errors = 0.0, []
    for application, known in train.groupby("application", sort=True):
        unseen = test[test.application == application]
        values = known[quantity].to_numpy(float)
        solution, residual = nnls(columns(known) / values[:, None], np.ones(len(known)))
        cost += residual**2
        errors.append(columns(unseen) @ solution / unseen[quantity].to_numpy(float) - 1.0)
    return cost, np.concatenate(errors)


def fit_voltage_curve(train: pd.DataFrame, max_mhz: float) -> tuple[int, float]:
    """Return (knee in MHz, lowest voltage over that at the top clock) that fit the sweeps of all applications best."""
    _, knee, v_min = min(
        (fit_sweep_power(train, train, max_mhz, knee, v_min)[0], knee, v_min)
        for knee in _KNEES_MHZ
        for v_min in _V_MINS
    )
    return knee, v_min


@cache
def voltage_curve(gpu: str) -> tuple[int, float]:
    """Return (knee, lowest voltage) of a GPU with clock sweeps, from all its clocks."""
    return fit_voltage_curve(sweep(gpu), catalogue.gpu(gpu).max_mhz)


def extend_voltage(knee_mhz: float, v_min: float, from_mhz: float, to_mhz: float) -> tuple[float, float]:
    """Extend a voltage curve with top clock `from_mhz` on its straight line to the top clock `to_mhz`.

    Returns:
        (lowest voltage over that at `to_mhz`, voltage at `from_mhz` over that at `to_mhz`).
    """
    top = v_min + (1.0 - v_min) * (to_mhz - knee_mhz) / (from_mhz - knee_mhz)
    return v_min / top, 1.0 / top


def activity_alone(timing: Timing, batch: int, share: float, memory: float, slow: float = 1.0) -> float:
    """Return the activity of one resident at `slow` = top clock / clock; `memory` weighs its memory time."""
    weights = Power(0, 0, memory, 0, 1, 0)
    return activity(weights, [iteration_at(timing, batch, share)], slow, 1.0)[0]


def mps_power() -> pd.DataFrame:
    """Return the power of single processes under MPS on the V100-SXM2."""
    power = table("power")
    return power[power.batch_size.notna()]


def fit_dynamic_w(timings: Mapping[str, Timing], workloads: Sequence[str], idle_w: float, memory: float) -> float:
    """Return the dynamic power of a full V100-SXM2, W, from runs of these workloads that no power limit throttled."""
    rows = mps_power()
    rows = rows[rows.workload.isin(workloads) & (rows.sm_mhz > catalogue.gpu("V100-SXM2").max_mhz - 1)]
    power_w = rows.power_w.to_numpy(float)
    active = np.array(
        [activity_alone(timings[row.workload], int(row.batch_size), row.mps_pct / 100, memory) for row in records(rows)]
    )
    weight = active / power_w
    return float(weight @ ((power_w - idle_w) / power_w) / (weight @ weight))


def fit_sharing_power(timing: Timing, idle_w: float, memory: float) -> float:
    """Return the extra dynamic power per unit of co-running activity, from 1 to 3 processes of VGG-19 at 20 % each."""
    power = table("power")
    rows = power[power.processes.gt(1) | power.batch_size.isna()].sort_values("processes")
    alone_w = float(rows.power_w.iloc[0]) - idle_w
    per_process = activity_alone(timing, 16, 0.2, memory)
    count = rows.processes.to_numpy(float)[1:]
    excess = (rows.power_w.to_numpy(float)[1:] - idle_w) / (count * alone_w) - 1.0
    others = (count - 1.0) * per_process
    return float(others @ excess / (others @ others))


def dynamic_w_of_sweep(gpu: str, idle_w: float) -> tuple[float, float, float]:
    """Return (median, lower, upper quartile) of a full GPU's dynamic power, W, over busy codes at the top clock."""
    rows = sweep(gpu)
    rows = rows[(rows.sm_mhz == rows.sm_mhz.max()) & (rows.sm_active > 0.9)]
    dynamic_w = (rows.power_w.to_numpy(float) - idle_w) / rows.sm_active.to_numpy(float)
    median, low, high = np.quantile(dynamic_w, (0.5, 0.25, 0.75))
    return float(median), float(low), float(high)


def dynamic_w_at_cap(
    timing: Timing, batch: int, power: Power, capped_mhz: float, max_mhz: float, cap_w: float
) -> float:
    """Return the dynamic power, W, of a GPU on which a limit of `cap_w` leaves `capped_mhz` while it runs `timing`."""
    active = activity_alone(timing, batch, 1.0, power.memory, max_mhz / capped_mhz)
    scale = float(clock_power(np.array([capped_mhz]), max_mhz, power.knee_mhz, power.v_min)[0])
    return (cap_w - power.idle_w) / (min(1.0, active) * scale)


def memory_knee(gpu: str) -> int:
    """Return the clock below which memory time grows as 1/f, MHz: the one that fits the times of a sweep best."""
    rows = sweep(gpu)
    return min((fit_sweep_times(rows, rows, gpu, knee)[0], knee) for knee in MEMORY_KNEES_MHZ)[1]


def fit_sweep_times(train: pd.DataFrame, test: pd.DataFrame, gpu: str, knee_mhz: float) -> tuple[float, FloatArray]:
    """Fit SM, memory and fixed part of each application; return (error on `train`, relative errors on `test`)."""
    top = catalogue.gpu(gpu).max_mhz

    def columns(rows: pd.DataFrame) -> FloatArray:
        clock = rows.sm_mhz.to_numpy(float)
        return np.column_stack([top / clock, np.maximum(1.0, knee_mhz / clock), np.ones(len(rows))])

    cost, errors = _fit_applications(train, test, "time_s", columns)
    return math.sqrt(cost), errors


@dataclass(frozen=True)
class RangedValue:
    """A value with the range in which it may lie, and its source."""

    value: float
    low: float
    high: float
    source: str

    @classmethod
    def within(cls, value: float, relative: float, source: str) -> RangedValue:
        """Return a value with a range of `relative` to both sides."""
        return cls(value, value * (1 - relative), value * (1 + relative), source)


PowerRanges = dict[str, RangedValue]
"""Constants of `heshare.devices.constants.Power`, by name."""


def fit_power(mps: Mapping[str, FittedTiming], memory: RangedValue) -> dict[str, PowerRanges]:
    """Return the power constants of every GPU with measurements of power, by name.

    `mps` holds the timings of the MPS record on the V100-SXM2, `memory` is the weight of memory time (`Power.memory`).
    """
    ranges = {"V100-SXM2": _v100_sxm2(mps, memory)}
    ranges["V100"] = _v100(ranges["V100-SXM2"])
    ranges["A100"] = _a100(ranges["V100-SXM2"]["memory"])
    ranges["T4"] = _t4(ranges["V100-SXM2"]["memory"])
    sharing = ranges["V100-SXM2"]["sharing"]
    return {
        gpu: {"idle_w": _idle_w(gpu), **ranges[gpu], "sharing": sharing} for gpu in catalogue.gpus() if gpu in ranges
    }


def _idle_w(gpu: str) -> RangedValue:
    idle_w = catalogue.gpu(gpu).idle_w
    low, high = {"T4": (15.0, 27.0), "V100-SXM2": (53.5, 53.5)}.get(gpu, (0.85 * idle_w, 1.2 * idle_w))
    return RangedValue(idle_w, low, high, "data/gpus.csv")


def _v100_sxm2(mps: Mapping[str, FittedTiming], memory: RangedValue) -> PowerRanges:
    timings = {name: fitted.timing for name, fitted in mps.items()}
    idle_w = catalogue.gpu("V100-SXM2").idle_w
    partial = [
        fit_dynamic_w(timings, [name for name in MPS_MODELS if name != out], idle_w, memory.value) for out in MPS_MODELS
    ]
    source = "icloud-ecnu/igniter: power by inference batch size and MPS percentage; range: a workload left out"
    dynamic_w = fit_dynamic_w(timings, MPS_MODELS, idle_w, memory.value)
    knee, v_min = voltage_curve("V100")
    low, _ = extend_voltage(knee, v_min, catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz)
    curve = "the V100's curve on one straight line up to 1530 MHz"
    return {
        "dynamic_w": RangedValue(dynamic_w, min(partial), max(partial), source),
        "memory": memory,
        "knee_mhz": RangedValue.within(knee, 0.08, curve),
        "v_min": RangedValue.within(low, 0.05, curve),
        "memory_knee_mhz": RangedValue.within(memory_knee("A100"), 0.1, "as the A100"),
        "sharing": RangedValue.within(
            fit_sharing_power(timings["vgg19"], idle_w, memory.value),
            0.5,
            "icloud-ecnu/igniter: 1 to 3 VGG-19 at 20 % each",
        ),
    }


def _v100(sxm2: PowerRanges) -> PowerRanges:
    knee, v_min = voltage_curve("V100")
    pcie, other = catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz
    _, volts = extend_voltage(knee, v_min, pcie, other)
    scale = pcie / other * volts**2
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 19 codes at 27 clocks"
    known = sxm2["dynamic_w"]
    origin = "the V100-SXM2's at 1380 MHz and its voltage there"
    return {
        "dynamic_w": RangedValue(known.value * scale, known.low * scale * 0.9, known.high * scale * 1.1, origin),
        "memory": sxm2["memory"],
        "knee_mhz": RangedValue.within(knee, 0.08, source),
        "v_min": RangedValue.within(v_min, 0.05, source),
        "memory_knee_mhz": sxm2["memory_knee_mhz"],
    }


def _a100(memory: RangedValue) -> PowerRanges:
    knee, v_min = voltage_curve("A100")
    median, low, high = dynamic_w_of_sweep("A100", catalogue.gpu("A100").idle_w)
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 25 codes at 61 clocks"
    return {
        "dynamic_w": RangedValue(
            median, low, high, f"{source}: median and quartiles of the busy ones; no inference among them"
        ),
        "memory": memory,
        "knee_mhz": RangedValue.within(knee, 0.03, source),
        "v_min": RangedValue.within(v_min, 0.03, source),
        "memory_knee_mhz": RangedValue.within(memory_knee("A100"), 0.1, source),
    }


def t4_power_curve(memory: float, idle_w: float, v_min: float, capped_mhz: float = T4_CAPPED_MHZ) -> Power:
    """Return a T4 with another idle power or lowest voltage to which 70 W leave the same clock under FP32 BERT.

    A T4's power by clock was never published; this is the family of curves that the public record allows.

    Args:
        memory: weight of memory time (`Power.memory`).
        idle_w: idle power, W: 15 to 27.
        v_min: lowest voltage over the voltage at the top clock: 0.72 to 0.88.
        capped_mhz: the clock that the limit leaves, MHz: 950 (73 C) to 1080 (40 C).
    """
    t4 = catalogue.gpu("T4")
    partial = Power(idle_w, 0.0, memory, _T4_KNEE * t4.max_mhz, v_min, 0.0)
    timing = fit_t4_clocks().timing
    dynamic_w = dynamic_w_at_cap(timing, 8, partial, capped_mhz, t4.max_mhz, t4.tdp_w)
    return replace(partial, dynamic_w=dynamic_w)


def _t4(memory: RangedValue) -> PowerRanges:
    idle_w = catalogue.gpu("T4").idle_w
    value, low, high = (
        t4_power_curve(memory.value, idle_w, _T4_V_MIN, clock) for clock in (T4_CAPPED_MHZ, 1080.0, 950.0)
    )
    source = "the clock that 70 W leave to FP32 BERT (boringlee24/NLP_on_T4); range: that clock at 40 C and at 73 C"
    return {
        "dynamic_w": RangedValue(value.dynamic_w, low.dynamic_w, high.dynamic_w, source),
        "memory": memory,
        "knee_mhz": RangedValue.within(value.knee_mhz, 0.1, "assumed: 0.8 of the top clock, as on V100 and A100"),
        "v_min": RangedValue(_T4_V_MIN, 0.72, 0.88, "assumed: between the V100 and the A100"),
        "memory_knee_mhz": RangedValue(0.0, 0.0, 600.0, "boringlee24/NLP_on_T4: no such knee down to 585 MHz"),
    }
