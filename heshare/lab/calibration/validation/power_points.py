"""Left-out points of power: saturated GPUs, power limits, matrix products, and what the best clock saves.

Power of bf16 matrix products on an H200 follows from their achieved rates: `P = min(regulated limit, base + compute
TFLOP/s + memory TB/s + running t / (t + gap))`. The last part grows with the time t of a product, since between short
ones the GPU waits. Readings that a short product took before the power had risen are not in the table.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.measurements import records, table
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.validation.points import LeftOutPoint
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

TARGETS = {
    "A100 saturated power, a model left out": (10.0, 18.0),
    "H100 saturated power, a model left out": (10.0, 18.0),
    "PCIe throughput under a power limit, a submission left out": (7.0, 12.0),
    "H200 matrix product power, half left out": (12.0, 25.0),
    "A100 saved by the best clock, a code left out, points": (5.0, 10.0),
    "V100 saved by the best clock, a code left out, points": (5.0, 10.0),
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def saturated_power(gpu: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield the power of diffusion models, their work from the times, clock and dynamic power from the other models."""
    rows, curve = load_fit.saturated_rows(gpu), voltage_fit.voltage_curve("A100")
    for model, part in rows.groupby("model", sort=True):
        fitted = load_fit.fit_saturated(gpu, curve, without=str(model))
        modelled_w = load_fit.modelled_w(gpu, part.load.to_numpy(float), curve, *fitted)
        for row, power_w in zip(records(part), modelled_w, strict=True):
            yield LeftOutPoint(
                f"{gpu} saturated power, a model left out",
                gpu,
                str(model),
                f"{row.setting} b{row.batch_size:.0f}",
                "W",
                float(row.power_w),
                float(power_w),
                load_fit.FITTED,
                str(row.kind),
                "fp16",
                "eager",
            )


def limited_throughput(test: str, column: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield throughput under a limit over that without, from a fit without the rows of one value of `column`."""
    rows, curve = voltage_fit.limit_rows(), voltage_fit.voltage_curve("A100")
    for name, part in rows.groupby(column, sort=True):
        fitted = voltage_fit.BusyPower(rows[rows[column] != name], curve)
        modelled = voltage_fit.throughput_left(part, fitted.busy_w(part), curve)
        for row, ratio in zip(records(part), modelled, strict=True):
            setting = f"{row.submission} {row.limit_w} of {row.default_w:.0f} W"
            uncertainty = calibration.constants.spreads.limit * math.log(row.default_w / row.limit_w)
            values = float(row.rate), float(ratio), uncertainty
            yield LeftOutPoint(test, row.gpu, row.benchmark, setting, "1", *values, str(row.kind), "", "tensorrt")


def matrix_products(_: Calibration) -> Iterator[LeftOutPoint]:
    rows = product_rows()
    for half in (0, 1):
        part = rows.iloc[half::2]
        modelled_w = product_w(part, fit_products(rows.iloc[1 - half :: 2]))
        for row, power_w in zip(records(part), modelled_w, strict=True):
            test, item = "H200 matrix product power, half left out", f"{row.m} x {row.n} x {row.k}"
            yield LeftOutPoint(test, row.gpu, item, "bf16", "W", float(row.power_w), float(power_w), precision="fp16")


def clock_savings(gpu: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield what the best clock of a code saves, its power from the other codes' curve and its own top clock.

    Errors are in points: measured is 1, and modelled 1 and the difference of the two savings.
    """
    test, idle_w = f"{gpu} saved by the best clock, a code left out, points", catalogue.gpu(gpu).idle_w
    for code, rows in voltage_fit.sweep_rows(gpu).groupby("application", sort=True):
        curve = voltage_fit.voltage_curve(gpu, without=str(code))
        measured = voltage_fit.best_saving(rows, rows.power_w.to_numpy(float))
        modelled = voltage_fit.best_saving(rows, voltage_fit.modelled_w(rows, curve, idle_w))
        setting = f"{100 * measured:.1f} % measured, {100 * modelled:.1f} % modelled"
        yield LeftOutPoint(test, gpu, str(code), setting, "1", 1.0, 1.0 + modelled - measured, kind="code")


TESTS = (
    partial(saturated_power, "A100"),
    partial(saturated_power, "H100"),
    partial(limited_throughput, "PCIe throughput under a power limit, a submission left out", "group"),
    partial(limited_throughput, "PCIe throughput under a power limit, a benchmark left out", "benchmark"),
    matrix_products,
    partial(clock_savings, "A100"),
    partial(clock_savings, "V100"),
)
"""The tests, in the order of `errors.csv`."""


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


def product_w(rows: pd.DataFrame, constants: FloatArray) -> FloatArray:
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
    measured = rows.power_w.to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return np.asarray(np.log(product_w(rows, q) / measured), dtype=np.float64)

    solved = least_squares(residuals, _START, bounds=(_LOW, _HIGH), x_scale=_START, loss="soft_l1", f_scale=_SCALE)
    return np.asarray(solved.x, dtype=np.float64)
