"""Power of bf16 matrix products on an H200 from their achieved rates.

`P = min(regulated limit, base + compute TFLOP/s + memory TB/s + running t / (t + gap))`: the last part grows with the
time t of a product, since between short ones the GPU waits. Readings that a short product took before the power had
risen are not in the table.
"""

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.lab.calibration.measurements import table
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

REGULATED = 0.986
"""Average power at the limit over that limit, in this record."""
_BYTES, _SCALE = 2, 0.05
_START = (110.0, 0.45, 55.0, 400.0, 50.0)
_LOW, _HIGH = (50.0, 0.0, 0.0, 0.0, 1.0), (300.0, 3.0, 300.0, 600.0, 1000.0)


def product_rows() -> pd.DataFrame:
    """Return the record with the achieved TFLOP/s and TB/s (each matrix moved once)."""
    rows = table("gemm_power")
    moved = _BYTES * (rows.m * rows.n + rows.m * rows.k + rows.n * rows.k)
    return rows.assign(tflops=2e-12 * rows.m * rows.n * rows.k / rows.time_s, tbs=1e-12 * moved / rows.time_s)


def modelled_w(rows: pd.DataFrame, constants: FloatArray) -> FloatArray:
    """Return the power of each product, W, shape (n,).

    Args:
        rows: from `product_rows`.
        constants: base, W; W per TFLOP/s; W per TB/s; running, W; gap, us.
    """
    base_w, compute, memory, running_w, gap_us = constants
    time_us = 1e6 * rows.time_s.to_numpy(float)
    power_w = base_w + compute * rows.tflops + memory * rows.tbs + running_w * time_us / (time_us + gap_us)
    limit_w = np.array([catalogue.gpu(gpu).tdp_w for gpu in rows.gpu])
    return np.asarray(np.minimum(power_w, REGULATED * limit_w), dtype=np.float64)


def fit_products(rows: pd.DataFrame) -> FloatArray:
    """Return the constants of `modelled_w` that fit `rows` best, shape (5,)."""
    measured = rows.power_w.to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return np.asarray(np.log(modelled_w(rows, q) / measured), dtype=np.float64)

    solved = least_squares(residuals, _START, bounds=(_LOW, _HIGH), x_scale=_START, loss="soft_l1", f_scale=_SCALE)
    return np.asarray(solved.x, dtype=np.float64)
