"""The command `make calibrate`: fit the device model, rewrite `constants.csv` and `errors.csv` of `data/calibration/`.

`constants.csv` holds every constant with its unit, a range in which it may lie, and its source.
"""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache

import pandas as pd

from heshare import files
from heshare.calibration.contention_fit import PAIRS_GPU, left_out_ranges
from heshare.calibration.device_model_fit import Calibration, fit_device_model
from heshare.calibration.power_constants import RangedValue
from heshare.calibration.time_fit import FittedTiming
from heshare.calibration.validation import errors_by_test, left_out_points
from heshare.world import catalogue

COLUMNS = ("kind", "gpu", "engine", "workload", "name", "value", "unit", "low", "high", "source")
ConstantRow = tuple[str, str, str, str, str, str, str, str, str, str]
"""A row of `constants.csv`, columns as in `COLUMNS`."""

_TIMES = {"latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s"}
_NORMAL_90 = 1.645


@cache
def _calibrated() -> Calibration:
    return fit_device_model()


def recalibrate() -> pd.DataFrame:
    """Fit, rewrite constants.csv and errors.csv, and return the errors on points left out of the fit."""
    folder = files.data("calibration")
    left_out_errors, _ = calibration_report()
    files.write_text(folder / "constants.csv", constants_csv())
    text = left_out_errors.to_csv(index=False, float_format="%.2f", lineterminator="\n")
    files.write_text(folder / "errors.csv", text)
    return left_out_errors


def calibration_report() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (errors, points) on measurements left out of the fit.

    Returns:
        errors: one row a test: test, n, mape_pct, p90_pct, target_mape_pct, target_p90_pct.
        points: one row a left-out measurement: test, gpu, item, setting, unit, measured, modelled, error_pct.
    """
    points = left_out_points(_calibrated())
    return errors_by_test(points), points


def constants_csv() -> str:
    """Return the text of `data/calibration/constants.csv` from a new fit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_constant_rows(_calibrated()))
    return text.getvalue()


def _constant_rows(calibration: Calibration) -> Iterator[ConstantRow]:
    """The rows of `constants.csv`, in a fixed order."""
    for gpu in catalogue.gpus():
        for name, ranged in calibration.power[gpu].items():
            unit = "W" if name.endswith("_w") else "MHz" if name.endswith("_mhz") else "1"
            yield _row("power", gpu, "", "", name, ranged, unit)
    ranges = left_out_ranges(calibration.pairs)
    source = "icloud-ecnu/igniter: pairs within 100 %; range: a pair of workloads left out"
    for gpu, contention in calibration.constants.contention.items():
        for name, value in asdict(contention).items():
            suffix = "" if gpu == PAIRS_GPU else f" (measured on the {PAIRS_GPU} only)"
            ranged = RangedValue(value, *ranges[name], source + suffix)
            yield _row("contention", gpu, "", "", name, ranged, "s" if name.endswith("_s") else "1")
    source = "FP16 over FP32 on T4 and V100; assumed on the others"
    for gpu, half in calibration.constants.half.items():
        for name, value in asdict(half).items():
            yield _row("fp16", gpu, "", "", name, RangedValue.within(value, half.uncertainty, source), "1")
    source = "icloud-ecnu/igniter: L2 and DRAM utilisation by inference batch size and MPS percentage"
    for name, value in asdict(calibration.constants.utilisation).items():
        yield _row("utilisation", "", "", "", name, RangedValue.within(value, 0.3, source), "1")
    for (gpu, engine, workload), fitted in sorted(calibration.timings.items()):
        yield from _timing_rows(gpu, engine, workload, fitted)


def _timing_rows(gpu: str, engine: str, workload: str, fitted: FittedTiming) -> Iterator[ConstantRow]:
    for name, value in asdict(fitted.timing).items():
        sigma = min(2.0, math.hypot(fitted.spread.get(name, 0.1), fitted.timing.uncertainty)) if name in _TIMES else 0.0
        factor = math.exp(_NORMAL_90 * sigma)
        ranged = RangedValue(float(value), value / factor, value * factor, fitted.source)
        yield _row("timing", gpu, engine, workload, name, ranged, "s" if name in _TIMES else "1")


def _row(kind: str, gpu: str, engine: str, workload: str, name: str, ranged: RangedValue, unit: str) -> ConstantRow:
    value, low, high = (f"{number:.4g}" for number in (ranged.value, ranged.low, ranged.high))
    return kind, gpu, engine, workload, name, value, unit, low, high, ranged.source
