"""Dynamic power of FP16 networks on GPUs that they saturate, and of language models that write token by token.

The record holds time and power by batch size. The largest batch of a model fills the GPU; a smaller one does the part
`u` of its work in the same time. Power is `idle + V^2 (f / f_max clock + min(f, u f_full) / f_max dynamic)`, and where
that passes the card's limit, the clock is lower. Boards average a little below their limit (`REGULATED`).
"""

from functools import cache

import numpy as np
import pandas as pd

from heshare.lab.calibration.measurements import table
from heshare.lab.calibration.power.voltage_fit import VoltageCurve
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

REGULATED = 0.977
"""Average power of a board at its limit over that limit: the highest of both GPUs in the record."""
_RATIOS = np.linspace(0.3, 1.0, 141)
_CLOCK_WS = tuple(10.0 * step for step in range(13))
_DYNAMIC_WS = tuple(10.0 * step for step in range(20, 91))


@cache
def saturated_rows(gpu: str) -> pd.DataFrame:
    """Return the diffusion models of the record on a GPU: model, kind, power_w, and `load`, the part of full work."""
    rows = table("saturated_power").query("gpu == @gpu and kind != 'decode'").copy()
    per_sample_s = rows.time_s / rows.batch_size
    largest = rows.groupby(["model", "setting"]).batch_size.transform("max")
    full = per_sample_s.where(rows.batch_size == largest)
    rows["load"] = full.groupby([rows.model, rows.setting]).transform("max") / per_sample_s
    return rows


def modelled_w(gpu: str, load: FloatArray, curve: VoltageCurve, clock_w: float, dynamic_w: float) -> FloatArray:
    """Return the power of a GPU with these loads under its own limit, W, shape (n,)."""
    spec = catalogue.gpu(gpu)
    limit_w = REGULATED * spec.tdp_w
    volts2 = curve.voltage(_RATIOS) ** 2
    full_w = spec.idle_w + volts2 * _RATIOS * (clock_w + dynamic_w)
    full = float(np.interp(limit_w, full_w, _RATIOS))
    rate = np.minimum(_RATIOS[:, None], full * load)
    power_w = spec.idle_w + volts2[:, None] * (clock_w * _RATIOS[:, None] + dynamic_w * rate)
    return np.asarray(np.minimum(power_w[-1], limit_w), dtype=np.float64)


@cache
def _costs(gpu: str, curve: VoltageCurve) -> tuple[pd.DataFrame, tuple[tuple[float, float], ...]]:
    """Sum of absolute log errors of each model (row) by each (clock, dynamic) power (column), and these."""
    rows = saturated_rows(gpu)
    grid = tuple((clock_w, dynamic_w) for clock_w in _CLOCK_WS for dynamic_w in _DYNAMIC_WS)
    load, power_w = rows.load.to_numpy(float), rows.power_w.to_numpy(float)
    errors = [np.abs(np.log(modelled_w(gpu, load, curve, *point) / power_w)) for point in grid]
    return pd.DataFrame(np.array(errors).T, index=rows.model.to_numpy()).groupby(level=0).sum(), grid


def fit_saturated(gpu: str, curve: VoltageCurve, without: str = "") -> tuple[float, float]:
    """Return (clock, dynamic) power of FP16 networks on a GPU, W, without one model."""
    costs, grid = _costs(gpu, curve)
    return grid[int(np.argmin(costs[costs.index != without].sum(axis=0).to_numpy()))]


@cache
def decode_power_w(gpu: str) -> tuple[float, float]:
    """Return (median, relative standard deviation) of the power of language models that serve requests, W."""
    power_w = table("saturated_power").query("gpu == @gpu and kind == 'decode'").power_w.to_numpy(float)
    return float(np.median(power_w)), float(np.log(power_w).std())
