"""Errors of the device model on measurements left out of its fit, test by test."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.board_power import board_power_w, capped_clock_mhz
from heshare.devices.crowding import resident_parts
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import iteration_at
from heshare.lab.calibration import contention_fit, copies_fit, power_fit, timing_constants, uncertainty_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.half_precision_fit import BERT_CARDS, bert_rows, throttled_in_half
from heshare.lab.calibration.intervals import quantile_spread
from heshare.lab.calibration.measurements import (
    EAGER_MODELS,
    EAGER_RECORD,
    MPS_MODELS,
    MPS_RECORD,
    TimeRows,
    records,
    time_rows,
)
from heshare.lab.calibration.time_fit import Prior, ThrottledGpu, constants_of, fit_timing, times_s
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR
from heshare.lab.calibration.uncertainty_fit import BeyondFit
from heshare.lab.calibration.validation import law_points, left_out_cards
from heshare.lab.calibration.validation.points import LeftOutPoint, cell_point, points, table_of
from heshare.shared.arrays import BoolArray, FloatArray
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

_Cell = Callable[..., LeftOutPoint]
"""`cell_point` of one test and GPU."""
BATCHES, OTHER_BATCHES = (
    "BERT FP16 TensorRT, batch sizes left out, T4 and A100",
    "BERT FP16 TensorRT, batch sizes left out, A30, L4 and L40S",
)
_SEEN = (1.0, 8.0, 32.0, 128.0)
_MOST_USED = ("T4", "A100")
TARGETS = {
    "V100 MPS 40 and 60 % from 20, 50, 80": (2.0, 4.0),
    "A100 inference batch sizes from 1, 8, 32, 128": (3.0, 6.5),
    "BERT inference batch sizes 2 and 4 from 1 and 8": (3.0, 10.0),
    "T4 clock from 585 and 1005 MHz": (1.0, 2.0),
    "A100 clock from three": (2.2, 5.5),
    "pairs within 100 %, a pair of workloads left out": (3.2, 6.5),
    "A100 two processes at b4 and b8, a workload left out": (5.0, 10.0),
    BATCHES: (12.0, 25.0),
    "V100 power, a workload left out": (4.0, 11.5),
    "A100 power from five clocks": (3.0, 6.5),
    **left_out_cards.TARGETS,
    **law_points.TARGETS,
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute relative error, %."""

_SEEN_SHARES = (0.2, 0.5, 0.8)
_SEEN_BATCHES = (1, 8, 32, 128)
_SMALL = (4.0, 8.0)
_LANGUAGE_GPUS = ("T4", "V100-SXM2", "A100")


def left_out_points(calibration: Calibration, *, quick: bool = False) -> pd.DataFrame:
    """Return every left-out point, one a row, as from `points.table_of`; `quick`: of every second test."""
    return table_of(point for test in (TESTS[1::2] if quick else TESTS) for point in test(calibration))


def errors_by_test(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a test from the table of `left_out_points`.

    Returns:
        Columns test, n, mape_pct, p90_pct, target_mape_pct, target_p90_pct (NaN where there is none).
    """
    rows = []
    for test, part in table.groupby("test", sort=False):
        error = part.error_pct.abs()
        rows.append((test, len(part), error.mean(), error.quantile(0.9), *TARGETS.get(str(test), (np.nan, np.nan))))
    return pd.DataFrame(rows, columns=["test", "n", "mape_pct", "p90_pct", "target_mape_pct", "target_p90_pct"])


def mps_shares(test: str, shares: tuple[float, float], calibration: Calibration) -> Iterator[LeftOutPoint]:
    for name in MPS_MODELS:
        rows = time_rows("V100-SXM2", name, MPS_RECORD)
        rows = rows.where(np.isin(rows.share, (*_SEEN_SHARES, *shares)))
        prior, seen = timing_constants.mps_prior(name), np.isin(rows.share, _SEEN_SHARES)
        cell = partial(cell_point, test, calibration.constants, "V100-SXM2")
        yield from _fit_and_test(cell, Workload(name, 1, engine="tensorrt"), rows, seen, prior)


def eager_batches(calibration: Calibration) -> Iterator[LeftOutPoint]:
    for name in EAGER_MODELS:
        rows, prior = time_rows("A100", name, EAGER_RECORD), timing_constants.eager_prior(name)
        test = "A100 inference batch sizes from 1, 8, 32, 128"
        cell = partial(cell_point, test, calibration.constants, "A100")
        yield from _fit_and_test(cell, Workload(name, 1), rows, np.isin(rows.batch, _SEEN_BATCHES), prior)


def bert_batches(calibration: Calibration) -> Iterator[LeftOutPoint]:
    test = "BERT inference batch sizes 2 and 4 from 1 and 8"
    records_used = product(_LANGUAGE_GPUS, ("bert_large", "bert_large_s384"), ("TensorFlow 2", "TensorFlow 1"))
    for gpu, name, framework in records_used:
        rows = time_rows(gpu, name, framework)
        if len(rows) >= 4:
            throttled = timing_constants.throttled_gpu(gpu, calibration.constants.power, "transformer")
            seen = np.isin(rows.batch, (1, 8))
            cell = partial(cell_point, test, calibration.constants, gpu, item=f"{name}, {framework}")
            yield from _fit_and_test(cell, Workload("bert_large", 1), rows, seen, LANGUAGE_PRIOR, throttled)


def t4_clocks(calibration: Calibration) -> Iterator[LeftOutPoint]:
    rows = time_rows("T4", "bert_base_s512", "TensorFlow 2")
    ends = np.isin(rows.sm_mhz, (585, 1005))
    fitted, unseen = timing_constants.fit_clocks(rows.where(ends)), rows.where(~ends)
    throttled = timing_constants.throttled_gpu("T4", calibration.constants.power, "transformer")
    modelled = times_s(fitted.timing, unseen, throttled)
    test = "T4 clock from 585 and 1005 MHz"
    cell = partial(cell_point, test, calibration.constants, "T4", item="bert_base_s512")
    yield from _time_points(cell, Workload("bert_large", 1), unseen, modelled)


def clock_sweep(test: str, gpu: str, unit: str, count: int, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times (s) or power (W) of a sweep from some of its clocks, the knee or voltage curve from the same."""
    sweep, column = power_fit.sweep(gpu), "time_s" if unit == "s" else "power_w"
    seen = sweep.sm_mhz.isin(power_fit.spaced(sweep.sm_mhz.tolist(), count))
    # Of knees that fit three clocks equally well, the highest.
    knees = reversed(power_fit.MEMORY_KNEES_MHZ)
    forms = power_fit.power_forms(gpu) if unit == "W" else (power_fit.time_form(gpu, knee) for knee in knees)
    parts = power_fit.sweep_parts(sweep[seen], sweep[~seen], column)
    errors = min((power_fit.fit_sweep(parts, form) for form in forms), key=lambda fit: fit[0])[1]
    ordered = sweep[~seen].sort_values("application", kind="stable")
    for row, error in zip(records(ordered), errors.tolist(), strict=True):
        value, setting = float(getattr(row, column)), f"{row.sm_mhz} MHz"
        yield LeftOutPoint(test, gpu, str(row.application), setting, unit, value, value * (1.0 + error), kind="code")


def pair_slowdowns(calibration: Calibration) -> Iterator[LeftOutPoint]:
    pairs, test = calibration.pairs, "pairs within 100 %, a pair of workloads left out"
    for pair, contention in contention_fit.left_out_fits(pairs).items():
        rows = pairs[pairs.pair == pair]
        settings = (
            f"{row.workload} b{row.batch_size} {row.mps_pct} % beside b{row.other_batch_size}" for row in records(rows)
        )
        modelled = rows.solo_s.to_numpy(float) * contention_fit.slowdowns(contention, rows)
        yield from points(test, "V100-SXM2", pair, settings, "s", rows.time_s.to_numpy(float), modelled)


def pair_times(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield the same end to end: times alone from the model as well, power limit included."""
    pairs, constants = calibration.pairs, calibration.constants
    gpu = catalogue.gpu(contention_fit.PAIRS_GPU)
    for pair, contention in contention_fit.left_out_fits(pairs).items():
        known = constants.contention[gpu.name]
        own = replace(known, strength=contention.strength, wait_s=contention.wait_s)
        refitted = replace(constants, contention={**constants.contention, gpu.name: own})
        for row in records(pairs[pairs.pair == pair]):
            residents = contention_fit.residents(row)
            modelled = co_run(gpu, residents, constants=refitted).tasks[0].time_s
            test = "pairs within 100 %, end to end, a pair of workloads left out"
            yield cell_point(test, constants, gpu.name, residents, row.time_s, modelled, item=pair)


def mps_power(calibration: Calibration) -> Iterator[LeftOutPoint]:
    gpu, power = catalogue.gpu("V100-SXM2"), calibration.constants.power["V100-SXM2"]
    timings = {name: calibration.timings[gpu.name, "tensorrt", name].timing for name in MPS_MODELS}
    for row in records(power_fit.mps_power()):
        others = [name for name in MPS_MODELS if name != row.workload]
        power = replace(power, dynamic_w=power_fit.fit_dynamic_w(timings, others, power.idle_w, power.memory))
        iterations = [iteration_at(timings[row.workload], int(row.batch_size), row.mps_pct / 100)]
        reached = capped_clock_mhz(power, iterations, gpu.tdp_w, gpu.max_mhz, gpu.max_mhz)
        setting = f"b{row.batch_size:.0f} {row.mps_pct} %"
        modelled = board_power_w(power, resident_parts(iterations, power.cache_mb), reached, gpu.max_mhz)
        own = Resident(Workload(str(row.workload), int(row.batch_size), engine="tensorrt"), int(row.mps_pct))
        test = "V100 power, a workload left out"
        yield cell_point(test, calibration.constants, gpu.name, [own], row.power_w, modelled, unit="W")
        test = "V100 clock under 300 W, a workload left out"
        yield LeftOutPoint(test, gpu.name, row.workload, setting, "MHz", row.sm_mhz, reached)


def two_processes(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times of two processes of a workload on the whole A100, none of its own times together in the fit."""
    constants, gpu = calibration.constants, copies_fit.GPU
    for name, others in calibration.left_out.items():
        unseen = copies_fit.two_process_rows(name)
        fitted = copies_fit.fit_with_copies(name, others, unseen.where(unseen.batch < 0.0))
        modelled = copies_fit.two_processes_s(name, constants_of(fitted.timing), unseen, others)
        for batch, time_s, modelled_s in zip(unseen.batch, unseen.time_s, modelled, strict=True):
            sizes = "b4 and b8" if batch in _SMALL else "other batch sizes"
            test = f"A100 two processes at {sizes}, a workload left out"
            pair = [Resident(Workload(name, int(batch)))] * 2
            yield cell_point(test, constants, gpu, pair, float(time_s), float(modelled_s))


def _fit_and_test(
    cell: _Cell, workload: Workload, rows: TimeRows, seen: BoolArray, prior: Prior, gpu: ThrottledGpu | None = None
) -> Iterator[LeftOutPoint]:
    unseen, fitted = rows.where(~seen), fit_timing(rows.where(seen), prior, gpu)
    yield from _time_points(cell, workload, unseen, times_s(fitted.timing, unseen, gpu))


def _time_points(cell: _Cell, workload: Workload, rows: TimeRows, modelled: FloatArray) -> Iterator[LeftOutPoint]:
    columns = rows.batch, rows.share, rows.sm_mhz, rows.time_s, modelled
    for batch, share, clock, time_s, modelled_s in zip(*(column.tolist() for column in columns), strict=True):
        resident = Resident(replace(workload, batch_size=int(batch)), round(100 * share))
        locked = None if math.isnan(clock) else int(clock)
        setting = f"b{batch:.0f} {100 * share:.0f} %" + ("" if locked is None else f" at {locked} MHz")
        yield cell([resident], time_s, modelled_s, setting=setting, sm_mhz=locked)


def half_bert_batches(calibration: Calibration) -> Iterator[LeftOutPoint]:
    constants = calibration.constants
    for gpu in BERT_CARDS:
        rows, throttled = bert_rows(gpu), throttled_in_half(constants, gpu, "transformer")
        seen = np.isin(rows.batch, _SEEN)
        test = BATCHES if gpu in _MOST_USED else OTHER_BATCHES
        cell, workload = partial(cell_point, test, constants, gpu), Workload("bert_large", 1, "fp16", "tensorrt")
        yield from _fit_and_test(cell, workload, rows, seen, LANGUAGE_PRIOR, throttled)


def other_frameworks(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times in frameworks that entered no fit, the spreads between frameworks fitted without this one."""
    errors = uncertainty_fit.framework_errors(calibration.constants)
    spreads = uncertainty_fit.left_out_framework_spreads(errors)
    uncertainties = {name: errors.uncertainty(fitted) for name, fitted in spreads.items()}
    for index, resident in enumerate(errors.residents):
        workload, framework = resident.workload, errors.framework[index]
        item, setting = f"{workload.model}, {framework}", f"b{workload.batch_size} {workload.precision}"
        values = float(errors.measured[index]), float(errors.modelled[index]), float(uncertainties[framework][index])
        kinds = catalogue.kind(workload.model), workload.precision, workload.engine
        test = "other frameworks, a framework left out"
        yield LeftOutPoint(test, errors.gpu[index], item, setting, "s", *values, *kinds)


def beyond_fit(
    test: str, fits: Callable[[], Mapping[tuple[str, str], BeyondFit]], _: Calibration
) -> Iterator[LeftOutPoint]:
    """Yield times beyond the range of a fit, the growth of uncertainty with distance fitted without this workload."""
    found = fits()
    for (gpu, name), fit in found.items():
        spread = quantile_spread([other.errors for key, other in found.items() if key != (gpu, name)])
        rows, own = fit.unseen, fit.fitted.timing.uncertainty
        uncertainty = np.array([math.hypot(own, spread * distance) for distance in fit.distance])
        settings = (f"b{batch:.0f} {100 * share:.0f} %" for batch, share in zip(rows.batch, rows.share, strict=True))
        values, engine = (rows.time_s, fit.modelled_s, uncertainty), "eager" if gpu == "A100" else "tensorrt"
        yield from points(test, gpu, name, settings, "s", *values, "cnn", "fp32", engine)


TESTS: tuple[Callable[[Calibration], Iterator[LeftOutPoint]], ...] = (
    partial(mps_shares, "V100 MPS 40 and 60 % from 20, 50, 80", (0.4, 0.6)),
    partial(mps_shares, "V100 MPS 10 and 100 % from 20, 50, 80", (0.1, 1.0)),
    eager_batches,
    bert_batches,
    t4_clocks,
    partial(clock_sweep, "A100 clock from three", "A100", "s", 3),
    pair_slowdowns,
    pair_times,
    mps_power,
    partial(clock_sweep, "A100 power from five clocks", "A100", "W", 5),
    partial(clock_sweep, "V100 power from five clocks", "V100", "W", 5),
    two_processes,
    half_bert_batches,
    other_frameworks,
    partial(beyond_fit, "larger inference batch sizes from small ones", uncertainty_fit.larger_batches),
    partial(beyond_fit, "MPS shares of 10 to 60 % from 80 and 100 %", uncertainty_fit.smaller_shares),
    *left_out_cards.TESTS,
    *law_points.POWER_TESTS,
    *law_points.GRID_TESTS,
    *left_out_cards.TRAINING_TESTS,
    *law_points.LANGUAGE_TESTS,
)
"""The tests, in the order of `errors.csv`."""
