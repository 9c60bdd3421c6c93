"""Voltage curve of a GPU from codes whose time and power are known at many clocks; power counts the work done.

Above idle a code draws `V(f)^2 (f / f_max clock + rate dynamic)`, with `rate = t(f_max) / t(f)`. A code that waits for
memory or for the host does not slow down with the clock, so its rate stays near 1 and its power falls with V^2 alone.
The dynamic power of each code follows from its power at the top clock.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pandas as pd

from heshare.lab.calibration.measurements import table
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

TABLES = {"A100": "clocks", "V100": "kernel_clocks"}
"""GPUs with times and power by clock, and the table of each."""
_KNEES = tuple(0.56 + 0.0125 * step for step in range(30))
_V_MINS = tuple(0.66 + 0.01 * step for step in range(27))
_CLOCK_WS = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)


@dataclass(frozen=True)
class VoltageCurve:
    """A voltage curve: knee and lowest voltage over those at the top clock, and the power of the clocks, W."""

    knee: float
    v_min: float
    clock_w: float

    def voltage(self, ratio: FloatArray) -> FloatArray:
        rise = (ratio - self.knee) / (1.0 - self.knee)
        return np.asarray(self.v_min + (1.0 - self.v_min) * np.maximum(0.0, rise), dtype=np.float64)


@cache
def sweep_rows(gpu: str) -> pd.DataFrame:
    """Return one row a code and clock of a GPU of `TABLES`.

    Columns application, sm_mhz, time_s, power_w, ratio (clock over the top clock), rate (speed over that at the top
    clock), top_w (power at the top clock).
    """
    rows = table(TABLES[gpu]).query("gpu == @gpu and time_s == time_s")
    top_mhz = catalogue.gpu(gpu).max_mhz
    top = rows[rows.sm_mhz == top_mhz].set_index("application")
    rows = rows[rows.application.isin(top.index)].sort_values(["application", "sm_mhz"], kind="stable")
    return rows.assign(
        ratio=rows.sm_mhz / top_mhz,
        rate=rows.application.map(top.time_s) / rows.time_s,
        top_w=rows.application.map(top.power_w),
    )


def modelled_w(rows: pd.DataFrame, curve: VoltageCurve, idle_w: float) -> FloatArray:
    """Return the power of each row from its power at the top clock, W, shape (n,)."""
    ratio, rate, top_w = (rows[name].to_numpy(float) for name in ("ratio", "rate", "top_w"))
    clock_w = np.minimum(curve.clock_w, top_w - idle_w)
    dynamic_w = top_w - idle_w - clock_w
    return np.asarray(idle_w + curve.voltage(ratio) ** 2 * (clock_w * ratio + dynamic_w * rate), dtype=np.float64)


@cache
def _costs(gpu: str) -> tuple[pd.DataFrame, tuple[VoltageCurve, ...]]:
    """Mean absolute relative error of each code (row) by each curve (column), and the curves."""
    rows, idle_w = sweep_rows(gpu), catalogue.gpu(gpu).idle_w
    curves = tuple(VoltageCurve(*parts) for parts in product(_KNEES, _V_MINS, _CLOCK_WS))
    power_w = rows.power_w.to_numpy(float)
    starts = np.flatnonzero(np.r_[True, rows.application.to_numpy()[1:] != rows.application.to_numpy()[:-1]])
    counts = np.diff(np.r_[starts, len(rows)])
    errors = [np.add.reduceat(np.abs(modelled_w(rows, curve, idle_w) / power_w - 1.0), starts) for curve in curves]
    names = rows.application.to_numpy()[starts]
    return pd.DataFrame(np.array(errors).T / counts[:, None], index=names), curves


def voltage_curve(gpu: str, without: str = "") -> VoltageCurve:
    costs, curves = _costs(gpu)
    return curves[int(np.argmin(costs[costs.index != without].sum(axis=0).to_numpy()))]


def curve_ranges(gpu: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the (low, high) of knee and of lowest voltage, over curves that fit at most 10 % worse than the best."""
    costs, curves = _costs(gpu)
    total = costs.sum(axis=0).to_numpy()
    close = [curve for curve, cost in zip(curves, total, strict=True) if cost <= 1.1 * total.min()]
    knees, v_mins = [curve.knee for curve in close], [curve.v_min for curve in close]
    return (min(knees), max(knees)), (min(v_mins), max(v_mins))


def best_saving(rows: pd.DataFrame, power_w: FloatArray) -> float:
    """Return the part of the energy at the top clock that the best clock saves for one code, 0 to 1."""
    energy_j = power_w * rows.time_s.to_numpy(float)
    return float(1.0 - energy_j.min() / energy_j[int(np.argmax(rows.sm_mhz.to_numpy()))])
