"""Power of busy PCIe cards from what a power limit leaves of their throughput (MLPerf, INT8 and FP16).

A busy card's power above idle is `V(f)^2 (f / f_max) S`, and its throughput goes with the clock, so that S follows from
what a limit leaves of it. S is the product of a card's own power and the intensity of a benchmark.
"""

from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.lab.calibration.measurements import table
from heshare.lab.calibration.power.voltage_fit import VoltageCurve
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

_RATIOS = np.linspace(0.05, 1.0, 381)
# Standard deviations of the logarithm: of the intensity of a benchmark, and of a measured ratio.
_SPREAD, _SIGMA = 0.3, 0.08
_START_W = 450.0


def clock_left(above_idle_w: FloatArray, busy_w: FloatArray, curve: VoltageCurve) -> FloatArray:
    """Return the clock over the top one at which `V^2 (f / f_max) busy_w` is `above_idle_w`, at most 1, shape (n,)."""
    return np.asarray(np.interp(above_idle_w / busy_w, curve.voltage(_RATIOS) ** 2 * _RATIOS, _RATIOS), np.float64)


def limit_rows() -> pd.DataFrame:
    """Return the record, and `group`: card, version and benchmark; submissions of one version differ in cards only."""
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
    """Return the fit to the whole record."""
    return BusyPower(limit_rows(), curve)
