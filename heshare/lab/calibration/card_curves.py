"""Voltage curve, memory knee and idle power of every GPU: from clock sweeps and readings, or from like GPUs.

The voltage curve comes from the clock sweeps of an A100 and a V100; other GPUs take the A100's in proportion to their
top clocks. Idle and parked power are readings. What the SMs draw is fitted with everything else
(`heshare.lab.calibration.pooled_fit`).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.devices.constants import Power
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration import voltage_fit
from heshare.lab.calibration.measurements import table
from heshare.world import catalogue
from heshare.world.gpu import Gpu

MEMORY_WEIGHT = 0.7
"""Energy of a second of memory time over that of a second of SM time (`Power.memory`); assumed, 0.5 to 1."""
MEMORY_KNEES_MHZ = range(600, 1101, 50)
"""Clocks among which the one is chosen below which memory time grows as 1/f."""
SWEEPS = {"A100": 510, "V100": 705}
"""GPUs with clock sweeps and the lowest clock used, MHz: below it the V100's memory clock changes too."""
PARKED = 0.88
"""Power of a GPU without a context over that with one, where neither was read: the mean of the readings."""
_T4_KNEE, _T4_V_MIN = 0.8, 0.8
_OUTLIERS = ("lavamd", "lud")


@dataclass(frozen=True)
class RangedValue:
    """A value with the range in which it may lie, and its source."""

    value: float
    low: float
    high: float
    source: str

    @classmethod
    def within(cls, value: float, relative: float, source: str) -> "RangedValue":
        """Return a value with a range of `relative` of it to both sides."""
        return cls(value, value * (1 - relative), value * (1 + relative), source)

    @classmethod
    def by_factor(cls, value: float, spread: float, source: str) -> "RangedValue":
        """Return a value with the 90 % range of a relative standard deviation."""
        factor = math.exp(NORMAL_90 * spread)
        return cls(value, value / factor, value * factor, source)


PowerRanges = dict[str, RangedValue]
"""Constants of `heshare.devices.constants.Power`, by name."""


def card_curves(gpu: Gpu) -> PowerRanges:
    """Return idle power, voltage curve and memory knee of a GPU, by the names of `Power`."""
    found = {"idle_w": _idle_w(gpu), "memory": RangedValue(MEMORY_WEIGHT, 0.5, 1.0, "assumed")}
    found |= _voltage(gpu)
    found["memory_knee_mhz"] = _memory_knee(gpu)
    parked = RangedValue.within(PARKED * gpu.idle_w, 0.2, "mean of the GPUs with readings")
    found["parked_w"] = _reading(gpu.name, "parked") or parked
    found["idle_clock_w"] = _reading(gpu.name, "idle clock") or RangedValue(0.0, 0.0, 0.0, "assumed")
    return found


def power_of(ranges: PowerRanges) -> Power:
    """Return the constants without their ranges; `dynamic_w` and `clock_w` are 0 unless given."""
    return Power(**{"dynamic_w": 0.0} | {name: ranged.value for name, ranged in ranges.items()})


def _reading(gpu: str, state: str) -> RangedValue | None:
    # A reading of `idle_power.csv`: `parked`, `idle`, or what the top clock adds to an idle GPU (`idle clock`).
    rows = table("idle_power").query("gpu == @gpu and state == @state")
    if not len(rows):
        return None
    row = rows.iloc[0]
    return RangedValue(float(row.value), float(row.low), float(row.high), str(row.source))


def _idle_w(gpu: Gpu) -> RangedValue:
    read = _reading(gpu.name, "idle")
    return read or RangedValue(gpu.idle_w, 0.85 * gpu.idle_w, 1.2 * gpu.idle_w, "data/gpus.csv")


def _voltage(gpu: Gpu) -> PowerRanges:
    if gpu.name == "T4":
        return {
            "knee_mhz": RangedValue.within(_T4_KNEE * gpu.max_mhz, 0.1, "assumed: as on V100 and A100"),
            "v_min": RangedValue(_T4_V_MIN, 0.72, 0.88, "assumed: between the V100 and the A100"),
        }
    measured = "V100" if gpu.architecture == "volta" else "A100"
    curve, (knees, v_mins) = voltage_fit.voltage_curve(measured), voltage_fit.curve_ranges(measured)
    source = f"clock sweep of the {measured}; range: curves within 10 % of the smallest error"
    wider = 1.0 if gpu.name == measured else 1.05
    if gpu.name == "V100-SXM2":
        return _longer_v100_curve(gpu, curve, source)
    top_mhz = gpu.max_mhz
    return {
        "knee_mhz": RangedValue(curve.knee * top_mhz, knees[0] / wider * top_mhz, knees[1] * wider * top_mhz, source),
        "v_min": RangedValue(curve.v_min, v_mins[0] / wider, v_mins[1] * wider, source),
    }


def _longer_v100_curve(gpu: Gpu, curve: voltage_fit.VoltageCurve, source: str) -> PowerRanges:
    # The V100's curve on one straight line up to the top clock of the V100-SXM2.
    measured_mhz = catalogue.gpu("V100").max_mhz
    knee_mhz = curve.knee * measured_mhz
    top = curve.v_min + (1.0 - curve.v_min) * (gpu.max_mhz - knee_mhz) / (measured_mhz - knee_mhz)
    return {
        "knee_mhz": RangedValue.within(knee_mhz, 0.08, source),
        "v_min": RangedValue.within(curve.v_min / top, 0.05, source),
    }


def _memory_knee(gpu: Gpu) -> RangedValue:
    if gpu.name == "T4":
        return RangedValue(0.0, 0.0, 600.0, "boringlee24/NLP_on_T4: no such knee down to 585 MHz")
    if gpu.architecture == "volta":
        return RangedValue.within(memory_knee_mhz("A100"), 0.1, "as the A100")
    ratio = gpu.max_mhz / catalogue.gpu("A100").max_mhz
    return RangedValue.within(memory_knee_mhz("A100") * ratio, 0.1 if gpu.name == "A100" else 0.3, "clock sweep, A100")


def sweep(gpu: str) -> pd.DataFrame:
    """Return the clock sweep of a GPU: one row an application and clock, without codes whose power jumps."""
    clocks = table("clocks")
    keep = (clocks.gpu == gpu) & (clocks.sm_mhz >= SWEEPS[gpu]) & (clocks.sm_mhz <= catalogue.gpu(gpu).max_mhz)
    return clocks[keep & ((gpu != "V100") | ~clocks.application.isin(_OUTLIERS))]


@cache
def memory_knee_mhz(gpu: str) -> int:
    """Return the clock below which memory time grows as 1/f, MHz: the one that fits the times of a sweep best.

    The time of each application is a sum of one part that goes with the clock, one that waits for memory, and one that
    does neither.
    """
    top_mhz, parts = catalogue.gpu(gpu).max_mhz, [part for _, part in sweep(gpu).groupby("application")]

    def cost(knee_mhz: float) -> float:
        total = 0.0
        for part in parts:
            clock, time_s = part.sm_mhz.to_numpy(float), part.time_s.to_numpy(float)
            columns = np.column_stack([top_mhz / clock, np.maximum(1.0, knee_mhz / clock), np.ones(len(clock))])
            total += float(nnls(columns / time_s[:, None], np.ones(len(clock)))[1]) ** 2
        return total

    return min(MEMORY_KNEES_MHZ, key=cost)
