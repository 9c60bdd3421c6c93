"""Left-out points of power: saturated GPUs, power limits, and what the best clock saves."""

import math
from collections.abc import Iterator
from functools import partial

from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.measurements import records
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.validation.points import LeftOutPoint, points
from heshare.world import catalogue

TARGETS = {
    "A100 saturated power, a model left out": (10.0, 18.0),
    "H100 saturated power, a model left out": (10.0, 18.0),
    "PCIe throughput under a power limit, a submission left out": (7.0, 12.0),
    "A100 saved by the best clock, a code left out, points": (5.0, 10.0),
    "V100 saved by the best clock, a code left out, points": (5.0, 10.0),
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def saturated_power(gpu: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield the power of diffusion models, their work from the times, clock and dynamic power from the other models."""
    rows, curve = load_fit.saturated_rows(gpu), voltage_fit.voltage_curve("A100")
    test = f"{gpu} saturated power, a model left out"
    for model, part in rows.groupby("model", sort=True):
        fitted = load_fit.fit_saturated(gpu, curve, without=str(model))
        modelled_w = load_fit.modelled_w(gpu, part.load.to_numpy(float), curve, *fitted)
        settings = (f"{row.setting} b{row.batch_size:.0f}" for row in records(part))
        values = part.power_w.to_numpy(float), modelled_w, load_fit.FITTED
        yield from points(test, gpu, str(model), settings, "W", *values, str(part.kind.iloc[0]), "fp16", "eager")


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
    partial(clock_savings, "A100"),
    partial(clock_savings, "V100"),
)
"""The tests, in the order of `errors.csv`."""
