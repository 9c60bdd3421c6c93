"""Fit of the spreads behind the stated intervals (`heshare.devices.uncertainty.Spreads`), from errors left out.

Each is the 90 % quantile of the absolute logarithmic error, per unit of what it grows with, over 1.645. Its range is
that over fits without one workload, pair or framework.

Tables of other frameworks for workloads whose times were fitted enter no fit of times and test its intervals: from them
come the spread between frameworks, by kind of network, and that of the host.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.board_power import relative_voltage
from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import iteration_of, overlap_arrays
from heshare.devices.uncertainty import NORMAL_90, Spreads
from heshare.lab.calibration import contention_fit, timing_constants
from heshare.lab.calibration.intervals import interval_score, quantile_spread
from heshare.lab.calibration.measurements import (
    EAGER_MODELS,
    EAGER_RECORD,
    MPS_MODELS,
    MPS_RECORD,
    TimeRows,
    records,
    table,
    time_rows,
)
from heshare.lab.calibration.power import voltage_fit
from heshare.lab.calibration.power_fit import RangedValue, sweep
from heshare.lab.calibration.time_fit import FittedTiming, Prior, fit_timing, times_s
from heshare.lab.calibration.training_fit import fit_instance, mig_instance_errors
from heshare.lab.systems.miso.mig import COMPUTE
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.world import catalogue
from heshare.world.workload import KINDS, Resident, Workload

SpreadRanges = dict[str, RangedValue]
"""Fields of `Spreads`, by name."""
SEEN_BATCH = {"A100": 16, "V100-SXM2": 8}
"""Largest inference batch size of the fits that test larger ones, by GPU: below it the host hides the GPU part."""
SEEN_SHARE = 0.8
"""Smallest share of the fits that test smaller ones."""
_BUSY, _LEAST_DISTANCE = 0.9, 0.08
_IDLE = RangedValue(0.1, 0.05, 0.2, "assumed: range of the idle power between cards of one type")
_TIME_SLICE = RangedValue(0.25, 0.1, 0.4, "assumed: as pairs of trainings (stanford-futuredata/gavel)")
_LOAD = RangedValue(0.15, 0.08, 0.25, "assumed: a class of load without a measurement")


def fit_spreads(constants: Constants, pairs: pd.DataFrame) -> SpreadRanges:
    """Return every spread; `constants` hold none yet, `pairs` are the measured pairs with their throttling."""
    larger, smaller = ({name: fit.errors for name, fit in own().items()} for own in (larger_batches, smaller_shares))
    ranges = {
        "batch": quantile_range(larger, "larger batch sizes of a record from up to 8 or 16 samples"),
        "share": quantile_range(smaller, "icloud-ecnu/igniter: shares of 20 to 60 % from those of 80 %"),
        "contention": quantile_range(pair_errors(pairs), "icloud-ecnu/igniter: pairs, a pair of workloads left out"),
        "voltage": quantile_range(voltage_errors(constants), "dynamic power of the codes of the A100's clock sweep"),
        "mig": quantile_range(mig_errors(constants), "boringlee24/socc22-miso: instances from the whole GPU"),
        "limit": quantile_range(limit_errors(), "mlcommons/inference_results: throughput under limits, one left out"),
        "time_slice": _TIME_SLICE,
        "clock": _clock_range(constants),
        "idle": _IDLE,
        "load": _LOAD,
    }
    return ranges | framework_ranges(replace(constants, spreads=stated(ranges)))


def framework_ranges(constants: Constants) -> SpreadRanges:
    """Return the spreads between frameworks and hosts; `constants` hold all others."""
    errors = framework_errors(constants)
    fitted = fit_framework_spreads(errors, np.ones(len(errors.measured), dtype=bool))
    partial = left_out_framework_spreads(errors).values()
    source = "other frameworks' tables of the same GPU and workload; range: a framework left out"
    values = {name: [value, *(fit[name] for fit in partial)] for name, value in fitted.items()}
    return {name: RangedValue(own[0], min(own), max(own), source) for name, own in values.items()}


def quantile_range(errors: Mapping[Any, FloatArray], source: str) -> RangedValue:
    """Return `quantile_spread` with its range when one item is left out; `errors` by item."""
    values = [quantile_spread([part for name, part in errors.items() if name != out]) for out in (None, *errors)]
    return RangedValue(values[0], min(values), max(values), source + "; range: one left out")


@dataclass(frozen=True)
class BeyondFit:
    """A fit to some rows of a workload and its other rows: n of these, at `distance`, (n,), e-folds from the fitted."""

    fitted: FittedTiming
    unseen: TimeRows
    distance: FloatArray

    @property
    def modelled_s(self) -> FloatArray:
        return times_s(self.fitted.timing, self.unseen)

    @property
    def errors(self) -> FloatArray:
        """Log errors per e-fold of distance, (n,)."""
        return np.asarray(np.log(self.modelled_s / self.unseen.time_s) / self.distance, dtype=np.float64)


def _beyond(rows: TimeRows, seen: BoolArray, prior: Prior, ratio: FloatArray) -> BeyondFit:
    return BeyondFit(fit_timing(rows.where(seen), prior), rows.where(~seen), np.log(ratio[~seen]))


def larger_batches() -> dict[tuple[str, str], BeyondFit]:
    """Return, by GPU and workload, fits to small inference batch sizes, with the larger ones."""
    found: dict[tuple[str, str], BeyondFit] = {}
    for gpu, framework, names, prior in (
        ("A100", EAGER_RECORD, EAGER_MODELS, timing_constants.eager_prior),
        ("V100-SXM2", MPS_RECORD, MPS_MODELS, timing_constants.mps_prior),
    ):
        for name in names:
            rows = time_rows(gpu, name, framework)
            rows, seen = rows.where(rows.share >= SEEN_SHARE), SEEN_BATCH[gpu]
            found[gpu, name] = _beyond(rows, rows.batch <= seen, prior(name), rows.batch / seen)
    return found


def smaller_shares() -> dict[tuple[str, str], BeyondFit]:
    """Return, by GPU and workload, fits to large shares, with the smaller ones."""
    measured = {name: time_rows("V100-SXM2", name, MPS_RECORD) for name in MPS_MODELS}
    return {
        ("V100-SXM2", name): _beyond(
            rows, rows.share >= SEEN_SHARE, timing_constants.mps_prior(name), SEEN_SHARE / rows.share
        )
        for name, rows in measured.items()
    }


def pair_errors(pairs: pd.DataFrame) -> dict[str, FloatArray]:
    found = {}
    for name, contention in contention_fit.left_out_fits(pairs).items():
        rows = pairs[pairs.pair == name]
        measured = (rows.time_s / rows.solo_s).to_numpy(float)
        found[name] = np.log(contention_fit.slowdowns(contention, rows) / measured)
    return found


def _busy_codes() -> Iterator[tuple[str, pd.DataFrame, pd.Series]]:
    """Each code of the A100's sweep that keeps the SMs busy, with its row at the top clock."""
    for name, rows in sweep("A100").groupby("application", sort=True):
        top = rows[rows.sm_mhz == rows.sm_mhz.max()].iloc[0]
        if float(top.sm_active) >= _BUSY:
            yield str(name), rows, top


def voltage_errors(constants: Constants) -> dict[str, FloatArray]:
    """Return, by busy code of the A100's sweep, log errors of dynamic power over that at the top clock.

    Dynamic power is the square of the voltage times the rate of work, both over those at the top clock; errors are per
    e-fold of clock below the top clock.
    """
    gpu, power, found = catalogue.gpu("A100"), constants.power["A100"], {}
    for name, rows, top in _busy_codes():
        below = rows[rows.sm_mhz < 0.9 * gpu.max_mhz]
        volts = [relative_voltage(power, float(row.sm_mhz), gpu.max_mhz) for row in records(below)]
        modelled = np.array(volts) ** 2 * float(top.time_s) / below.time_s.to_numpy(float)
        measured = (below.power_w.to_numpy(float) - power.idle_w) / (float(top.power_w) - power.idle_w)
        found[name] = np.log(modelled / measured) / np.log(gpu.max_mhz / below.sm_mhz.to_numpy(float))
    return found


def limit_errors() -> dict[str, FloatArray]:
    """Return, by benchmark, log errors of throughput under a power limit by a fit without it, per e-fold of limit."""
    rows, curve, found = voltage_fit.limit_rows(), voltage_fit.voltage_curve("A100"), {}
    for name, part in rows.groupby("benchmark", sort=True):
        busy_w = voltage_fit.BusyPower(rows[rows.benchmark != name], curve).busy_w(part)
        ratio = voltage_fit.throughput_left(part, busy_w, curve) / part.rate.to_numpy(float)
        found[str(name)] = np.log(ratio) / np.log(part.default_w.to_numpy(float) / part.limit_w.to_numpy(float))
    return found


def _clock_range(constants: Constants) -> RangedValue:
    """The spread of times below the top clock: from one network; at most as if nothing were known of a code."""
    network = quantile_spread([clock_errors(constants)])
    elasticity = np.array(list(clock_elasticities().values()))
    unknown = quantile_spread([elasticity - np.median(elasticity)])
    source = "boringlee24/NLP_on_T4: BERT base by clock from the row of BERT Large; range: codes of a sweep"
    return RangedValue(network, min(network, 0.5 * unknown), max(network, unknown), source)


def clock_errors(constants: Constants) -> FloatArray:
    """Return log errors of a T4's times at clocks over that at the highest measured one, per e-fold of clock, (n,)."""
    gpu, rows = catalogue.gpu("T4"), time_rows("T4", "bert_base_s512", "TensorFlow 2")
    like = [Resident(Workload("bert_large", int(rows.batch[0])))]
    modelled = np.array([co_run(gpu, like, int(mhz), constants=constants).tasks[0].time_s for mhz in rows.sm_mhz])
    distance = np.log(rows.sm_mhz[-1] / rows.sm_mhz)
    far = distance > _LEAST_DISTANCE
    ratio = (modelled / modelled[-1]) / (rows.time_s / rows.time_s[-1])
    return np.asarray(np.log(ratio[far]) / distance[far], dtype=np.float64)


def clock_elasticities() -> dict[str, float]:
    """Return, by busy code of the A100's sweep, how its time grows down to half of the top clock, an e-fold."""
    found = {}
    for name, rows, top in _busy_codes():
        low = rows.iloc[(rows.sm_mhz - 0.5 * top.sm_mhz).abs().argmin()]
        found[name] = float(np.log(low.time_s / top.time_s) / np.log(top.sm_mhz / low.sm_mhz))
    return found


def mig_errors(constants: Constants) -> dict[str, FloatArray]:
    """Return, by training, log errors of its steps in MIG instances, per e-fold of slices below the whole GPU's."""
    steps = mig_instance_errors(constants, fit_instance(constants))
    distance = np.log(steps.modelled / steps.measured) / np.log(COMPUTE / steps.slices)
    return {str(name): part.to_numpy(float) for name, part in distance.groupby(steps.workload)}


def stated(ranges: Mapping[str, RangedValue]) -> Spreads:
    return Spreads(**{name: ranged.value for name, ranged in ranges.items()})


PARAMETERS = (*KINDS, "tensor", "host")
"""Fields of `Spreads` that these tables determine."""
_CARDS = {"A100 40 GB": "A100"}
_UNFITTED = ("MXNet", "MXNet 1.2", "TensorFlow 1", "PyTorch, slower host")
_FITTED = ("TensorFlow 2",)
_TABLE = ["framework", "gpu", "engine", "precision", "kind"]
_GRID = tuple(round(0.02 * step, 2) for step in range(61))
_START, _ROUNDS = 0.3, 6


@dataclass(frozen=True)
class FrameworkErrors:
    """Errors of the model on n rows of other frameworks' tables: measured and modelled seconds per iteration.

    `table` numbers (framework, GPU, engine, precision, kind); `known` is the uncertainty without framework and host;
    `kind` is 1 where a row is of that kind, (3, n), `tensor` where tensor cores compute; `host` is the effect of each
    host spread of the grid on the logarithm of the time, (61, n).
    """

    residents: Sequence[Resident]
    framework: Sequence[str]
    gpu: Sequence[str]
    table: IntArray
    measured: FloatArray
    modelled: FloatArray
    known: FloatArray
    kind: FloatArray
    tensor: FloatArray
    host: FloatArray

    def uncertainty(self, spreads: Mapping[str, float]) -> FloatArray:
        """Return the relative standard uncertainty of each row, (n,), with these spreads by name."""
        host = self.host[round(spreads["host"] / _GRID[1])]
        framework = sum(spreads[name] ** 2 * row for name, row in zip(KINDS, self.kind, strict=True))
        return np.asarray(np.sqrt(self.known**2 + framework + spreads["tensor"] ** 2 * self.tensor + host**2))


@cache
def framework_rows() -> pd.DataFrame:
    """Return the rows that enter no fit of times: gpu, workload, engine, framework, precision, batch_size, time_s."""
    times = table("times")
    times = times[(times.processes == 1) & times.sm_mhz.isna()]
    unfitted = times.framework.isin(_UNFITTED)
    # The eager record fits image models only; PyTorch on T4 and V100 at sizes whose host time does not show.
    unfitted |= (times.framework == EAGER_RECORD) & (times.workload == "bert_large")
    unfitted |= (times.framework == "PyTorch") & (times.precision == "fp32") & (times.batch_size < 16)
    frameworks = table("frameworks")
    rows = pd.concat([times[unfitted], frameworks[~frameworks.framework.isin(_FITTED)]], ignore_index=True)
    rows = rows.assign(gpu=rows.gpu.replace(_CARDS))
    known = rows.gpu.isin(list(catalogue.gpus())) & rows.workload.isin(list(catalogue.models()))
    return rows[known].reset_index(drop=True)


def framework_errors(constants: Constants) -> FrameworkErrors:
    """Return the errors of the model on `framework_rows`; `constants` need no spreads between frameworks."""
    rows = framework_rows()
    residents = [
        Resident(Workload(row.workload, int(row.batch_size), row.precision, row.engine)) for row in records(rows)
    ]
    stated = [
        co_run(catalogue.gpu(gpu), [resident], constants=constants).tasks[0]
        for gpu, resident in zip(rows.gpu, residents, strict=True)
    ]
    parts = [iteration_of(constants, gpu, resident) for gpu, resident in zip(rows.gpu, residents, strict=True)]
    hosts = np.maximum([part.host_s for part in parts], 1e-12)
    gpus = np.array([part.gpu_s(1.0, 1.0) for part in parts])
    alone = overlap_arrays(hosts, gpus)
    effects = [np.log(overlap_arrays(hosts * math.exp(spread), gpus) / alone) for spread in _GRID]
    kinds = [catalogue.kind(str(name)) for name in rows.workload]
    tensor = [row.precision == "fp16" or catalogue.gpu(row.gpu).has_tf32 for row in records(rows)]
    return FrameworkErrors(
        residents,
        rows.framework.tolist(),
        rows.gpu.tolist(),
        np.asarray(rows.assign(kind=kinds).groupby(_TABLE).ngroup(), dtype=np.int64),
        rows.time_s.to_numpy(float),
        np.array([task.time_s for task in stated]),
        np.array([math.hypot(task.uncertainty_parts.fit, task.uncertainty_parts.transfer) for task in stated]),
        np.array([[kind == name for kind in kinds] for name in KINDS], dtype=np.float64),
        np.array(tensor, dtype=np.float64),
        np.array(effects),
    )


def fit_framework_spreads(errors: FrameworkErrors, used: BoolArray) -> dict[str, float]:
    """Return the spreads with the smallest mean interval score over the rows `used`, (n,).

    A table counts as the root of its rows, since these are not independent.
    """
    _, index, counts = np.unique(errors.table, return_inverse=True, return_counts=True)
    weights = used / np.sqrt(counts[index])
    deviations = np.abs(np.log(errors.modelled / errors.measured))

    def loss(spreads: Mapping[str, float]) -> float:
        return float(weights @ interval_score(deviations, NORMAL_90 * errors.uncertainty(spreads)))

    spreads = dict.fromkeys(PARAMETERS, _START)
    for _ in range(_ROUNDS):
        for name in PARAMETERS:
            spreads[name] = min((loss({**spreads, name: value}), value) for value in _GRID)[1]
    return spreads


def left_out_framework_spreads(errors: FrameworkErrors) -> dict[str, dict[str, float]]:
    names = np.array(errors.framework)
    return {name: fit_framework_spreads(errors, names != name) for name in sorted(set(errors.framework))}
