"""The command `make calibrate`: fit the device model and rewrite the tables of its constants and errors.

`constants.csv` holds every constant with its unit, a range in which it may lie, and its source; `errors.csv` the errors
on points left out of the fit; `coverage.csv` how often the stated intervals hold on those points; `laboratories.csv`
the errors on each public record that is left out whole.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache

import pandas as pd

from heshare.devices.constants import CardSpeed, HalfPrecision, Laws, Load, PowerLaw, SpeedLaw, Utilisation, WorkloadLaw
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration import copies_fit
from heshare.lab.calibration.contention_fit import PAIRS_GPU, left_out_fits
from heshare.lab.calibration.device_model_fit import Calibration, fit_device_model
from heshare.lab.calibration.language_fit import language_constants
from heshare.lab.calibration.power_fit import RangedValue
from heshare.lab.calibration.time_fit import PARAMETERS, FittedTiming
from heshare.lab.calibration.training_fit import training_constants
from heshare.lab.calibration.validation.laboratories import errors_by_laboratory
from heshare.lab.calibration.validation.left_out import errors_by_test, left_out_points
from heshare.lab.calibration.validation.points import coverage
from heshare.shared import files

COLUMNS = ("kind", "gpu", "engine", "workload", "name", "value", "unit", "low", "high", "source")
UNITS = {"_w": "W", "_mhz": "MHz", "_s": "s"}
"""Unit of a constant by the end of its name; others have the unit 1."""


@cache
def _calibrated() -> Calibration:
    return fit_device_model()


def recalibrate() -> dict[str, pd.DataFrame]:
    """Fit, rewrite the tables, and return errors, coverage and laboratories by the names of their files."""
    folder = files.root() / "data" / "calibration"
    files.write_text(folder / "constants.csv", constants_csv())  # some tests ask the model as it is shipped
    left_out_errors, points = calibration_report()
    # Last, since fits without a record forget what was fitted with it.
    tables = {
        "errors": left_out_errors,
        "coverage": coverage(points),
        "laboratories": errors_by_laboratory(_calibrated()),
    }
    for name, table in tables.items():
        digits = "%.2f" if name == "errors" else "%.3g"
        text = table.to_csv(index=False, float_format=digits, lineterminator="\n")
        files.write_text(folder / f"{name}.csv", text)
    return tables


def calibration_report(*, quick: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (errors, points) on measurements left out of the fit, from `errors_by_test` and `left_out_points`."""
    points = left_out_points(_calibrated(), quick=quick)
    return errors_by_test(points), points


def constants_csv() -> str:
    rows = []
    for keys, ranges in _constants(_calibrated()):
        for name, ranged in ranges.items():
            value, low, high = (f"{number:.4g}" for number in (ranged.value, ranged.low, ranged.high))
            unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "1")
            rows.append((*keys, name, value, unit, low, high, ranged.source))
    return pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(index=False, lineterminator="\n")


_Ranges = Iterator[tuple[tuple[str, ...], Mapping[str, RangedValue]]]


def _constants(calibration: Calibration) -> _Ranges:
    """Kind, GPU, engine and workload of constants, and these by name."""
    constants = calibration.fitted
    for gpu, power in calibration.power.items():
        yield ("power", gpu, "", ""), power
    fits = left_out_fits(calibration.pairs).values()
    source = "icloud-ecnu/igniter: pairs within 100 %; range: a pair of workloads left out"
    for gpu, contention in constants.contention.items():
        suffix = "" if gpu == PAIRS_GPU else f" (measured on the {PAIRS_GPU} only)"
        ranges = {}
        for name in ("strength", "wait_s"):
            partial = [getattr(fit, name) for fit in fits]
            ranges[name] = RangedValue(getattr(contention, name), min(partial), max(partial), source + suffix)
        for name, ranged in calibration.crowding.items():
            basis = PAIRS_GPU if name == "sharpness" else copies_fit.GPU
            suffix = "" if gpu == basis else f" (measured on the {basis} only)"
            ranges[name] = replace(ranged, source=ranged.source + suffix)
        yield ("contention", gpu, "", ""), ranges
    source = "FP16 over FP32 (TF32) in one framework, large inference batches; the mean of like GPUs where none"
    for (gpu, engine, kind), half in constants.half.items():
        yield ("fp16", gpu, engine, kind), _within(half, half.uncertainty, source)
    source = "heshare.lab.calibration.power.load_fit: networks in FP16, and in INT8 under power limits"
    for (gpu, kind, precision), load in constants.loads.items():
        yield ("load", gpu, precision, kind), _within(load, load.uncertainty, source)
    source = "icloud-ecnu/igniter: L2 and DRAM utilisation by inference batch size and MPS percentage"
    yield ("utilisation", "", "", ""), _within(constants.utilisation, 0.3, source)
    yield ("uncertainty", "", "", ""), calibration.spreads
    yield from _law_constants(constants.laws)
    yield from training_constants(constants)
    yield from language_constants(constants)
    for kind, timings in (("timing", calibration.timings), ("fp16 timing", calibration.half_timings)):
        for key, fitted in sorted(timings.items()):
            yield (kind, *key), _timing_ranges(fitted)


def _law_constants(laws: Laws) -> _Ranges:
    source = "data/calibration/cards.csv and times.csv: GPUs compared by one program; uncertainty: a GPU left out"
    for (kind, precision), law in laws.speed.items():
        yield ("speed law", "", precision, kind), _within(law, 0.3, source)
    for (gpu, kind, precision), speed in laws.cards.items():
        sigma = NORMAL_90 * speed.uncertainty
        offset = RangedValue(speed.offset, speed.offset - sigma, speed.offset + sigma, source)
        yield ("card speed", gpu, precision, kind), _within(speed, 0.3, source) | {"offset": offset}
    if laws.power is not None:
        source = "mean of the GPUs with measurements of power; uncertainty: a GPU left out"
        yield ("power law", "", "", ""), _within(laws.power, 0.3, source)
    if laws.workload is not None:
        source = "data/calibration/times.csv: networks on one GPU; uncertainty: a network left out"
        yield ("workload law", "", "", ""), _within(laws.workload, 0.3, source)


_Fitted = HalfPrecision | Load | Utilisation | SpeedLaw | CardSpeed | PowerLaw | WorkloadLaw


def _within(constants: _Fitted, relative: float, source: str) -> dict[str, RangedValue]:
    return {name: RangedValue.within(value, relative, source) for name, value in asdict(constants).items()}


def _timing_ranges(fitted: FittedTiming) -> dict[str, RangedValue]:
    ranges, timing = {}, fitted.timing
    for name, value in asdict(timing).items():
        sigma = math.hypot(fitted.spread.get(name, 0.1), timing.uncertainty, timing.transfer)
        known = min(2.0, sigma) if name in PARAMETERS else 0.0
        ranges[name] = RangedValue.by_factor(float(value), known, fitted.source)
    return ranges
