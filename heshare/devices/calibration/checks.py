"""The device model against measurements that its fit never saw, test by test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from heshare.devices.calibration import cells, features, pairs
from heshare.devices.calibration import power as watts
from heshare.devices.calibration.data import EAGER, MODELS_EAGER, MODELS_MPS, MPS, Rows, records, rows
from heshare.devices.calibration.fit import Calibration
from heshare.devices.calibration.times import Fitted, fit, times_s
from heshare.devices.constants import Power
from heshare.devices.model import co_run
from heshare.devices.power import board_w, clock_under
from heshare.devices.timing import fold
from heshare.world import catalogue

TARGETS = {
    "V100 MPS 40 and 60 % from 20, 50, 80": (2.0, 4.0),
    "A100 inference batch sizes from 1, 8, 32, 128": (3.0, 6.5),
    "BERT inference batch sizes 2 and 4 from 1 and 8": (3.0, 10.0),
    "T4 clock from 585 and 1005 MHz": (1.0, 2.0),
    "A100 clock from three": (2.2, 5.5),
    "pairs within 100 %, a pair of workloads left out": (3.2, 6.5),
    "V100 power, a workload left out": (4.0, 11.5),
    "A100 power from five clocks": (3.0, 6.5),
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute relative error, %."""

_POINTS = ("test", "gpu", "item", "setting", "unit", "measured", "modelled")
_SEEN_BATCHES = (1, 8, 32, 128)
_LANGUAGE_GPUS = ("T4", "V100-SXM2", "A100")

Point = tuple[str, str, str, str, str, float, float]


def _times(test: str, gpu: str, item: str, found: Rows, modelled: np.ndarray) -> Iterator[Point]:
    for batch, share, clock, time_s, answer in zip(
        found.batch, found.share, found.sm_mhz, found.time_s, modelled, strict=True
    ):
        where = "" if np.isnan(clock) else f" at {clock:.0f} MHz"
        yield test, gpu, item, f"b{batch:.0f} {100 * share:.0f} %{where}", "s", float(time_s), float(answer)


def mps_shares(_: Calibration) -> Iterator[Point]:
    """Shares of 40 and 60 % from 20, 50 and 80 %."""
    for name in MODELS_MPS:
        found = rows("V100-SXM2", name, MPS)
        cell = fit(found.where(np.isin(found.share, (0.2, 0.5, 0.8))), cells.mps_prior(name))
        asked = found.where(np.isin(found.share, (0.4, 0.6)))
        test = "V100 MPS 40 and 60 % from 20, 50, 80"
        yield from _times(test, "V100-SXM2", name, asked, times_s(cell.timing, asked))


def mps_ends(_: Calibration) -> Iterator[Point]:
    """Shares of 10 and 100 % from 20, 50 and 80 %."""
    for name in MODELS_MPS:
        found = rows("V100-SXM2", name, MPS)
        cell = fit(found.where(np.isin(found.share, (0.2, 0.5, 0.8))), cells.mps_prior(name))
        asked = found.where(np.isin(found.share, (0.1, 1.0)))
        test = "V100 MPS 10 and 100 % from 20, 50, 80"
        yield from _times(test, "V100-SXM2", name, asked, times_s(cell.timing, asked))


def eager_batches(_: Calibration) -> Iterator[Point]:
    """The A100's inference batch sizes from four of them."""
    for name in MODELS_EAGER:
        found = rows("A100", name, EAGER)
        seen = np.isin(found.batch, _SEEN_BATCHES)
        cell = fit(found.where(seen), cells.eager_prior(name))
        asked = found.where(~seen)
        test = "A100 inference batch sizes from 1, 8, 32, 128"
        yield from _times(test, "A100", name, asked, times_s(cell.timing, asked))


def bert_batches(found: Calibration) -> Iterator[Point]:
    """BERT Large at inference batch sizes 2 and 4, 128 and 384 tokens, from 1 and 8."""
    for gpu in _LANGUAGE_GPUS:
        for name in ("bert_large", "bert_large_s384"):
            for framework in ("TensorFlow 2", "TensorFlow 1"):
                known = rows(gpu, name, framework)
                if len(known) < 4:
                    continue
                card = cells.card(gpu, found.constants.power)
                ends = np.isin(known.batch, (1, 8))
                cell = fit(known.where(ends), cells.LANGUAGE, card)
                asked = known.where(~ends)
                test = "BERT inference batch sizes 2 and 4 from 1 and 8"
                yield from _times(test, gpu, f"{name}, {framework}", asked, times_s(cell.timing, asked, card))


def t4_clocks(found: Calibration) -> Iterator[Point]:
    """The T4's clocks from the lowest and the highest."""
    known = rows("T4", "bert_base_s512", "TensorFlow 2")
    ends = np.isin(known.sm_mhz, (585, 1005))
    cell = cells.clock_fit(known.where(ends))
    asked = known.where(~ends)
    card = cells.card("T4", found.constants.power)
    yield from _times(
        "T4 clock from 585 and 1005 MHz", "T4", "bert_base_s512", asked, times_s(cell.timing, asked, card)
    )


def _sweep(test: str, gpu: str, unit: str, asked: pd.DataFrame, errors: np.ndarray) -> Iterator[Point]:
    column = "time_s" if unit == "s" else "power_w"
    ordered = pd.concat([part for _, part in asked.groupby("application", sort=True)])
    for row, error in zip(records(ordered), errors, strict=True):
        value = float(getattr(row, column))
        yield test, gpu, str(row.application), f"{row.sm_mhz} MHz", unit, value, value * (1.0 + float(error))


def a100_clocks(_: Calibration) -> Iterator[Point]:
    """Times of the A100's sweep from three clocks."""
    sweep = watts.sweep("A100")
    seen = sweep.sm_mhz.isin(watts.spaced(sweep.sm_mhz.tolist(), 3))
    knees = range(600, 1101, 50)
    knee = min((watts.memory_times(sweep[seen], sweep[seen], "A100", knee)[0], -knee) for knee in knees)[1]
    off = watts.memory_times(sweep[seen], sweep[~seen], "A100", -knee)[1]
    yield from _sweep("A100 clock from three", "A100", "s", sweep[~seen], off)


def sweep_power(gpu: str, test: str) -> Iterator[Point]:
    """Power of a sweep from five clocks, the voltage curve from the same five."""
    sweep = watts.sweep(gpu)
    seen = sweep.sm_mhz.isin(watts.spaced(sweep.sm_mhz.tolist(), 5))
    top = catalogue.gpu(gpu).max_mhz
    _, errors = watts.sweep_fit(sweep[seen], sweep[~seen], top, *watts.curve(sweep[seen], top))
    yield from _sweep(test, gpu, "W", sweep[~seen], errors)


def a100_power(_: Calibration) -> Iterator[Point]:
    """The A100's power from five clocks."""
    yield from sweep_power("A100", "A100 power from five clocks")


def v100_power_clocks(_: Calibration) -> Iterator[Point]:
    """The V100's power from five clocks."""
    yield from sweep_power("V100", "V100 power from five clocks")


def pair_slowdowns(found: Calibration) -> Iterator[Point]:
    """Times of pairs within 100 %, from the measured time alone and a fit without this pair of workloads."""
    for row in records(pairs.left_out(found.pairs)):
        setting = f"{row.workload} b{row.batch_size} {row.mps_pct} % beside b{row.other_batch_size}"
        test = "pairs within 100 %, a pair of workloads left out"
        yield test, "V100-SXM2", str(row.pair), setting, "s", row.time_s, row.solo_s * row.modelled


def pair_times(found: Calibration) -> Iterator[Point]:
    """The same, end to end: times alone from the model as well, power limit included."""
    known = found.pairs
    gpu = catalogue.gpu("V100-SXM2")
    for pair in sorted(known.pair.unique()):
        unseen = known[known.pair == pair]
        contention = pairs.fit(known[known.pair != pair])
        constants = replace(found.constants, contention={**found.constants.contention, gpu.name: contention})
        for row in records(unseen):
            both = pairs.residents(row)
            answer = co_run(gpu, both, constants=constants).tasks[0].time_s
            test = "pairs within 100 %, end to end, a pair of workloads left out"
            yield test, gpu.name, str(pair), f"{both[0]} beside {both[1]}", "s", row.time_s, answer


def _without(found: Calibration, workload: str) -> tuple[Power, Fitted]:
    mps = {name: found.cells["V100-SXM2", "tensorrt", name] for name in MODELS_MPS}
    timings = {name: cell.timing for name, cell in mps.items()}
    others = [name for name in MODELS_MPS if name != workload]
    power = found.constants.power["V100-SXM2"]
    return replace(power, dynamic_w=watts.dynamic_w(timings, others, power.idle_w, power.memory)), mps[workload]


def v100_power(found: Calibration) -> Iterator[Point]:
    """Power under MPS, the dynamic power fitted without the workload asked for."""
    gpu = catalogue.gpu("V100-SXM2")
    for row in records(watts.mps_power()):
        power, cell = _without(found, row.workload)
        parts = [fold(cell.timing, int(row.batch_size), row.mps_pct / 100)]
        reached = clock_under(power, parts, gpu.tdp_w, gpu.max_mhz, gpu.max_mhz)
        setting = f"b{row.batch_size:.0f} {row.mps_pct} %"
        answer = board_w(power, parts, reached, gpu.max_mhz)
        yield "V100 power, a workload left out", gpu.name, row.workload, setting, "W", row.power_w, answer
        yield "V100 clock under 300 W, a workload left out", gpu.name, row.workload, setting, "MHz", row.sm_mhz, reached


def crowded(found: Calibration) -> Iterator[Point]:
    """Two processes of one workload on the whole A100, the weight of memory time fitted without this workload."""
    costs = pairs.crowd_costs(found.constants)
    for name in pairs.CROWDED:
        weight = pairs.memory_weight(costs, without=name)
        known, modelled = pairs.crowd(found.constants.with_power("A100", memory=weight), name)
        for batch, time_s, answer in zip(known.batch, known.time_s, modelled, strict=True):
            test = "A100 two processes at 100 % each, a workload left out"
            yield test, "A100", name, f"b{batch:.0f} x 2", "s", float(time_s), float(answer)


def unseen_workloads(_: Calibration) -> Iterator[Point]:
    """Times of a workload that was never measured, from its features alone."""
    for gpu, name, known, modelled in features.left_out():
        yield from _times(f"{gpu} a workload left out, features only", gpu, name, known, modelled)


TESTS: tuple[Callable[[Calibration], Iterator[Point]], ...] = (
    mps_shares,
    mps_ends,
    eager_batches,
    bert_batches,
    t4_clocks,
    a100_clocks,
    pair_slowdowns,
    pair_times,
    v100_power,
    a100_power,
    v100_power_clocks,
    crowded,
    unseen_workloads,
)


def points(found: Calibration) -> pd.DataFrame:
    """Every left-out point: test, gpu, item, setting, unit, measured, modelled, error_pct."""
    table = pd.DataFrame([point for test in TESTS for point in test(found)], columns=list(_POINTS))
    return table.assign(error_pct=100.0 * (table.modelled / table.measured - 1.0))


def errors(left_out: pd.DataFrame) -> pd.DataFrame:
    """One row a test: test, n, mape_pct, p90_pct, target_mape_pct, target_p90_pct (NaN where there is none)."""
    table = []
    for test, part in left_out.groupby("test", sort=False):
        error = part.error_pct.abs()
        target = TARGETS.get(str(test), (np.nan, np.nan))
        table.append((test, len(part), error.mean(), error.quantile(0.9), *target))
    columns = ["test", "n", "mape_pct", "p90_pct", "target_mape_pct", "target_p90_pct"]
    return pd.DataFrame(table, columns=columns)
