"""Fit board power: the voltage curve from clock sweeps, the dynamic power from inference under MPS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.devices.calibration.data import FloatArray, records, table
from heshare.devices.constants import Power, Timing
from heshare.devices.power import voltage
from heshare.devices.timing import fold
from heshare.world import catalogue

SWEEPS = {"A100": 510, "V100": 705}
"""GPUs with clock sweeps and the lowest clock used, MHz: below it the V100's memory clock changes too."""

_KNEES_MHZ = range(990, 1231, 30)
_V_MINS = (0.74, 0.76, 0.78, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9)
_OUTLIERS = ("lavamd", "lud")


def sweep(gpu: str) -> pd.DataFrame:
    """The clock sweep of a GPU: one row an application and clock, without codes whose power jumps."""
    clocks = table("clocks")
    keep = (clocks.gpu == gpu) & (clocks.sm_mhz >= SWEEPS[gpu]) & (clocks.sm_mhz <= catalogue.gpu(gpu).max_mhz)
    return clocks[keep & ((gpu != "V100") | ~clocks.application.isin(_OUTLIERS))]


def spaced(clocks: Sequence[int], count: int) -> list[int]:
    """`count` clocks spread evenly over those offered."""
    every = sorted(set(clocks))
    return [every[round(index * (len(every) - 1) / (count - 1))] for index in range(count)]


def shape(sm_mhz: FloatArray, max_mhz: float, knee_mhz: float, v_min: float) -> FloatArray:
    """`(f / f_max) V(f)^2`, shape (n,): how dynamic power of a busy SM grows with the clock."""
    curve = Power(0, 0, 0, knee_mhz, v_min, 0)
    volts = np.array([voltage(curve, clock, max_mhz) for clock in sm_mhz])
    return np.asarray(sm_mhz / max_mhz * volts**2, dtype=np.float64)


def sweep_fit(
    train: pd.DataFrame, test: pd.DataFrame, max_mhz: float, knee_mhz: float, v_min: float
) -> tuple[float, FloatArray]:
    """Static and dynamic power of each application from `train`; (squared error there, relative errors on `test`)."""
    cost, errors = 0.0, []
    for application, known in train.groupby("application", sort=True):
        asked = test[test.application == application]
        base = np.c_[np.ones(len(known)), shape(known.sm_mhz.to_numpy(float), max_mhz, knee_mhz, v_min)]
        power_w = known.power_w.to_numpy(float)
        solution, left = nnls(base / power_w[:, None], np.ones(len(known)))
        ask = np.c_[np.ones(len(asked)), shape(asked.sm_mhz.to_numpy(float), max_mhz, knee_mhz, v_min)]
        cost += left**2
        errors.append(ask @ solution / asked.power_w.to_numpy(float) - 1.0)
    return cost, np.concatenate(errors)


def curve(train: pd.DataFrame, max_mhz: float) -> tuple[int, float]:
    """(knee in MHz, lowest voltage over the voltage at the top clock) that fit the sweeps of all applications best."""
    found = min(
        (sweep_fit(train, train, max_mhz, knee, v_min)[0], knee, v_min) for knee in _KNEES_MHZ for v_min in _V_MINS
    )
    return found[1], found[2]


@cache
def card_curve(gpu: str) -> tuple[int, float]:
    """(knee, lowest voltage) of a GPU with clock sweeps, from all its clocks."""
    return curve(sweep(gpu), catalogue.gpu(gpu).max_mhz)


def extended(knee_mhz: float, v_min: float, from_mhz: float, to_mhz: float) -> tuple[float, float]:
    """(lowest voltage over that at `to_mhz`, voltage at `from_mhz` over that at `to_mhz`) on one straight line."""
    top = v_min + (1.0 - v_min) * (to_mhz - knee_mhz) / (from_mhz - knee_mhz)
    return v_min / top, 1.0 / top


def activity(timing: Timing, batch: int, share: float, memory: float, slow: float = 1.0) -> float:
    """Activity of one resident at `slow` = top clock / clock; `memory` weighs its memory time."""
    part = fold(timing, batch, share)
    return slow * (part.work_s + memory * part.memory_s) / part.time_s(slow, 1.0)


def mps_power() -> pd.DataFrame:
    """Power of single processes under MPS on the V100-SXM2."""
    power = table("power")
    return power[power.batch_size.notna()]


def dynamic_w(timings: Mapping[str, Timing], workloads: Sequence[str], idle_w: float, memory: float) -> float:
    """Dynamic power of a full V100-SXM2, W, from runs of these workloads that no limit held down."""
    rows = mps_power()
    rows = rows[rows.workload.isin(workloads) & (rows.sm_mhz > catalogue.gpu("V100-SXM2").max_mhz - 1)]
    power_w = rows.power_w.to_numpy(float)
    active = np.array(
        [activity(timings[row.workload], int(row.batch_size), row.mps_pct / 100, memory) for row in records(rows)]
    )
    weight = active / power_w
    return float(weight @ ((power_w - idle_w) / power_w) / (weight @ weight))


def sharing(timing: Timing, idle_w: float, memory: float) -> float:
    """Extra dynamic power per unit of co-running activity, from 1 to 3 processes of VGG-19 at 20 % each."""
    power = table("power")
    found = power[power.processes.gt(1) | power.batch_size.isna()].sort_values("processes")
    alone = float(found.power_w.iloc[0]) - idle_w
    one = activity(timing, 16, 0.2, memory)
    count = found.processes.to_numpy(float)[1:]
    excess = (found.power_w.to_numpy(float)[1:] - idle_w) / (count * alone) - 1.0
    others = (count - 1.0) * one
    return float(others @ excess / (others @ others))


def from_sweep(gpu: str, idle_w: float) -> tuple[float, float, float]:
    """(median, lower, upper quartile) of the dynamic power of a full GPU, W, over busy codes at the top clock."""
    rows = sweep(gpu)
    rows = rows[(rows.sm_mhz == rows.sm_mhz.max()) & (rows.sm_active > 0.9)]
    each = np.quantile((rows.power_w.to_numpy(float) - idle_w) / rows.sm_active.to_numpy(float), (0.5, 0.25, 0.75))
    return float(each[0]), float(each[1]), float(each[2])


def from_free_run(timing: Timing, batch: int, power: Power, free_mhz: float, max_mhz: float, cap_w: float) -> float:
    """Dynamic power, W, of a card that a limit of `cap_w` holds at `free_mhz` while it runs `timing`."""
    active = activity(timing, batch, 1.0, power.memory, max_mhz / free_mhz)
    scale = float(shape(np.array([free_mhz]), max_mhz, power.knee_mhz, power.v_min)[0])
    return (cap_w - power.idle_w) / (min(1.0, active) * scale)


def memory_knee(gpu: str) -> int:
    """The clock below which memory time grows as 1/f, MHz: the one that fits the times of a sweep best."""
    rows = sweep(gpu)
    return min((memory_times(rows, rows, gpu, knee)[0], knee) for knee in range(600, 1101, 50))[1]


def memory_times(train: pd.DataFrame, test: pd.DataFrame, gpu: str, knee_mhz: float) -> tuple[float, FloatArray]:
    """Times of a sweep as SM, memory and fixed part; (error on `train`, relative errors on `test`)."""
    top = catalogue.gpu(gpu).max_mhz
    cost, errors = 0.0, []
    for application, known in train.groupby("application", sort=True):
        asked = test[test.application == application]
        time_s = known.time_s.to_numpy(float)
        solution, left = nnls(_columns(known, top, knee_mhz) / time_s[:, None], np.ones(len(known)))
        cost += left**2
        errors.append(_columns(asked, top, knee_mhz) @ solution / asked.time_s.to_numpy(float) - 1.0)
    return math.sqrt(cost), np.concatenate(errors)


def _columns(rows: pd.DataFrame, top: float, knee_mhz: float) -> FloatArray:
    clock = rows.sm_mhz.to_numpy(float)
    return np.column_stack([top / clock, np.maximum(1.0, knee_mhz / clock), np.ones(len(rows))])
