"""Voltage curve of a GPU from codes whose time and power are known at many clocks; power counts the work done.

Above idle a code draws `V(f)^2 (f / f_max clock + rate dynamic)`, with `rate = t(f_max) / t(f)`. A code that waits for
memory or for the host does not slow down with the clock, so its rate stays near 1 and its power falls with V^2 alone.
The dynamic power of each code follows from its power at the top clock.

With such a curve, what a power limit leaves of the throughput of busy PCIe cards (MLPerf, INT8 and FP16) gives their
power: above idle it is `V(f)^2 (f / f_max) S`, and throughput goes with the clock, so that S follows. S is the product
of a card's own power and the intensity of a benchmark.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

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


_RATIOS = np.linspace(0.05, 1.0, 381)
# Standard deviations of the logarithm: of the intensity of a benchmark, and of a measured ratio.
_SPREAD, _SIGMA = 0.3, 0.08
_START_W = 450.0


def clock_left(above_idle_w: FloatArray, busy_w: FloatArray, curve: VoltageCurve) -> FloatArray:
    """Return the clock over the top one at which `V^2 (f / f_max) busy_w` is `above_idle_w`, at most 1, shape (n,)."""
    return np.asarray(np.interp(above_idle_w / busy_w, curve.voltage(_RATIOS) ** 2 * _RATIOS, _RATIOS), np.float64)


def limit_rows() -> pd.DataFrame:
    rows = table("power_limits")
    version = rows.submission.str.split(" ").str[0]
    return rows.assign(group=rows.gpu + " " + version + " " + rows.benchmark)


def throughput_left(rows: pd.DataFrame, busy_w: FloatArray, curve: VoltageCurve) -> FloatArray:
    """Return the throughput under a limit over that under the card's own, shape (n,)."""
    idle_w = np.array([catalogue.gpu(gpu).idle_w for gpu in rows.gpu])
    limited = clock_left(rows.limit_w.to_numpy(float) - idle_w, busy_w, curve)
    return limited / clock_left(rows.default_w.to_numpy(float) - idle_w, busy_w, curve)


class BusyPower:
    """Fitted power above idle of busy cards: `card_w[gpu] * intensity[benchmark]`, W."""

    def __init__(self, rows: pd.DataFrame, curve: VoltageCurve) -> None:
        cards, benchmarks = sorted(rows.gpu.unique()), sorted(rows.benchmark.unique())
        card, benchmark = rows.gpu.map(cards.index).to_numpy(), rows.benchmark.map(benchmarks.index).to_numpy()
        measured = rows.rate.to_numpy(float)

        def residuals(q: FloatArray) -> FloatArray:
            logs, intensity = q[: len(cards)], q[len(cards) :]
            busy_w = _START_W * np.exp(logs[card] + intensity[benchmark])
            gaps = np.log(throughput_left(rows, busy_w, curve) / measured) / _SIGMA
            return np.concatenate([gaps, intensity / _SPREAD])

        start = np.zeros(len(cards) + len(benchmarks))
        solved = least_squares(residuals, start, loss="soft_l1", diff_step=(1e-3,)).x
        self.card_w = dict(zip(cards, _START_W * np.exp(solved[: len(cards)]), strict=True))
        self.intensity = dict(zip(benchmarks, np.exp(solved[len(cards) :]), strict=True))

    def busy_w(self, rows: pd.DataFrame) -> FloatArray:
        """Return the power above idle of each row at the top clock, W; a benchmark not seen has the intensity 1."""
        return np.array([self.card_w[row.gpu] * self.intensity.get(row.benchmark, 1.0) for row in rows.itertuples()])

    def of_kind(self, gpu: str, kind: str) -> float:
        """Return the power above idle of a kind of network on a card, W: the geometric mean over its benchmarks."""
        names = table("power_limits").query("kind == @kind").benchmark.unique()
        return float(self.card_w[gpu] * np.exp(np.mean([np.log(self.intensity[name]) for name in sorted(names)])))


@cache
def busy_power(curve: VoltageCurve) -> BusyPower:
    return BusyPower(limit_rows(), curve)
