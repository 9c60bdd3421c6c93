"""Fit of what trainings and MIG instances need: rates of GPUs, slowdowns of pairs, powers of an instance's slices.

Each fit comes with its errors on what was left out, from which the stated uncertainties follow.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.devices.constants import Constants, default
from heshare.devices.iteration_time import Iteration, filled, iteration_at, overlap
from heshare.lab.calibration.card_curves import RangedValue
from heshare.lab.calibration.measurements import records, table
from heshare.lab.systems.miso import mig
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.training_pairs import record, similar_slowdown
from heshare.lab.systems.shared.training_step import rate, training_iteration, training_kind
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.inputs.csv_table import read_table
from heshare.world import catalogue
from heshare.world.workload import Resident

TRAINING_RECORD = "Lambda, training"
"""The record of trainings in `data/calibration/cards.csv`."""
REFERENCE_GPU = "V100-SXM2"
"""The GPU whose rate is 1."""
LIKE = {"cnn": "resnet50", "transformer": "bert_large"}
"""The network by which a GPU without measured trainings is tried, for each kind."""
_RATIOS = tuple(1.05**power for power in range(-20, 61))
_MEDIAN_LOSS = 0.1
_LEAST_HOST_S = 1e-9
_NORMAL_50 = 0.6745
_GAVEL = "stanford-futuredata/gavel"


class Throughput(NamedTuple):
    model: str
    kind: str
    gpu: str
    batch_size: int
    samples_per_s: float


class LeftOut(NamedTuple):
    """What was measured of a left-out case, and what a fit without it says."""

    gpu: str
    item: str
    setting: str
    measured: float
    modelled: float


@cache
def saturated() -> tuple[Throughput, ...]:
    cards = table("cards")
    rows = records(cards[(cards.record == TRAINING_RECORD) & cards.precision.isin(["fp32", "tf32"])])
    return tuple(Throughput(row.workload, row.kind, row.gpu, int(row.batch_size), float(row.per_s)) for row in rows)


@cache
def elsewhere() -> tuple[Throughput, ...]:
    models = {step.workload.model: training_kind(step.like) for step in training.steps().values()}
    columns = ("model", "gpu", "batch_size", "samples_per_s")
    return tuple(
        Throughput(
            row.text("model"),
            models[row.text("model")],
            row.text("gpu"),
            row.whole("batch_size", least=1),
            row.number_of("samples_per_s", above=True),
        )
        for row in read_table(files.data("training", "hosts.csv"), columns)
    )


def fit_rates(without: str = "") -> dict[tuple[str, str], float]:
    """Return the rate of each GPU by (gpu, kind): the geometric mean over trainings, all but `without`."""
    logs: dict[tuple[str, str], list[float]] = {}
    rows = [row for row in saturated() if row.model != without]
    reference = {row.model: row.samples_per_s for row in rows if row.gpu == REFERENCE_GPU}
    for row in rows:
        logs.setdefault((row.gpu, row.kind), []).append(math.log(row.samples_per_s / reference[row.model]))
    return {key: math.exp(sum(values) / len(values)) for key, values in logs.items()}


def left_out_models() -> Iterator[LeftOut]:
    """Yield the time of a step on a GPU over that on a slower one, by the rates of the other trainings of its kind."""
    rows = saturated()
    for model in dict.fromkeys(row.model for row in rows):
        rates = fit_rates(without=model)
        of_model = sorted((row for row in rows if row.model == model), key=lambda row: row.samples_per_s)
        for slower, faster in combinations(of_model, 2):
            modelled = rates[slower.gpu, slower.kind] / rates[faster.gpu, faster.kind]
            measured = slower.samples_per_s / faster.samples_per_s
            yield LeftOut(faster.gpu, model, f"over a step on {slower.gpu}", measured, modelled)


def left_out_gpus(constants: Constants) -> Iterator[LeftOut]:
    """Yield the rate of each GPU whose inference was measured from that of the others, as without measured trainings.

    Inference on the other GPUs is itself scaled by these trainings.
    """
    anchored = {
        (gpu, network) for gpu, _, precision, network in constants.timing.effects.rows if precision in ("fp32", "tf32")
    }
    rates = {(gpu, kind): value for (gpu, kind), value in fit_rates().items() if (gpu, LIKE[kind]) in anchored}
    for gpu, kind in rates:
        others = {key: value for key, value in rates.items() if key[0] != gpu}
        yield LeftOut(gpu, kind, "", rates[gpu, kind], rate(constants, others, gpu, LIKE[kind]))


def left_out_steps() -> Iterator[LeftOut]:
    """Yield steps of the record on other GPUs than its own, the GPU part's ratio fitted to its other workloads.

    This is the error of a whole step elsewhere: host part and GPU part, other hosts included.
    """
    steps = training.steps()
    for row in elsewhere():
        others = [other for other in elsewhere() if (other.gpu, other.kind) == (row.gpu, row.kind) and other is not row]
        ratio = min(_RATIOS, key=lambda ratio: sum(abs(_log_error(other, ratio)) for other in others))
        measured = row.batch_size / row.samples_per_s
        step = steps[row.model, row.batch_size]
        yield LeftOut(row.gpu, row.model, f"b{row.batch_size}", measured, whole_step_s(step, ratio))


def whole_step_s(step: training.TrainingStep, ratio: float) -> float:
    return step.step_s * (1.0 - step.busy + step.busy * ratio)


def _log_error(row: Throughput, ratio: float) -> float:
    step = training.steps()[row.model, row.batch_size]
    return math.log(whole_step_s(step, ratio) * row.samples_per_s / row.batch_size)


@cache
def left_out_pairs() -> tuple[LeftOut, ...]:
    """Return slowdowns of pairs of trainings, each workload in turn with all of its pairs left out of the record."""
    slowdowns, points = record(), []
    for workload in sorted({first for first, _ in slowdowns}):
        others = {pair: slowdown for pair, slowdown in slowdowns.items() if workload not in pair}
        for (first, second), slowdown in slowdowns.items():
            if workload in (first, second):
                item, setting = str(workload), f"{first} beside {second}"
                points.append(LeftOut("V100", item, setting, slowdown, similar_slowdown(first, second, others)))
    return tuple(points)


def fit_instance(constants: Constants, without: str = "") -> tuple[float, float]:
    """Return the powers of (slices, memory slices) of an instance, `without` one workload."""
    rows = [row[2:] for row in _instances(constants) if row[0] != without]
    ratios = [(mig.COMPUTE / slices, mig.MEMORY / mig.MEMORY_SLICES[slices], time_s) for slices, time_s, _ in rows]
    wholes = [(max(whole.host_s, _LEAST_HOST_S), whole.time_s(1.0, 1.0)) for _, _, whole in rows]
    gpu_parts = [(part.fixed_s, part.memory_s, part.batch_s, part.fill_s) for _, _, part in rows]
    (slices, bandwidth, measured_s), (host_s, whole_s) = np.array(ratios).T, np.array(wholes).T
    fixed_s, memory_s, batch_s, fill_s = np.array(gpu_parts).T

    def residuals(powers: FloatArray) -> FloatArray:
        slower = slices ** powers[0]
        gpu_s = fixed_s + memory_s * bandwidth ** powers[1] + filled(slower * batch_s, fill_s)
        modelled_s = np.maximum(overlap(host_s, gpu_s), whole_s)
        return np.asarray(np.log(modelled_s / measured_s), dtype=np.float64)

    # Median-like: sizes at which the host hides the GPU part say nothing about the powers.
    work, memory = least_squares(residuals, (1.0, 1.0), loss="soft_l1", f_scale=_MEDIAN_LOSS).x
    return float(work), float(memory)


@lru_cache(maxsize=4)
def left_out_instances(constants: Constants) -> tuple[LeftOut, ...]:
    rows, points = _instances(constants), []
    powers = {name: fit_instance(constants, without=name) for name in dict.fromkeys(row[0] for row in rows)}
    for name, size, slices, time_s, whole in rows:
        modelled_s = mig.in_instance(whole, slices, *powers[name]).time_s(1.0, 1.0)
        modelled_s = max(modelled_s, whole.time_s(1.0, 1.0))
        points.append(LeftOut(mig.MEASURED_GPU, name, f"b{size} {slices}g", time_s, modelled_s))
    return tuple(points)


def _instances(constants: Constants) -> list[tuple[str, int, int, float, Iteration]]:
    """(model, batch size, slices, measured time in s, iteration on the whole GPU) of each measured instance."""
    timing = constants.timing
    return [
        (model, size, slices, time_s, iteration_at(timing[mig.MEASURED_GPU, "eager", model, "tf32"], size, 1.0))
        for (model, size, slices), time_s in mig.measured_instance_times_s().items()
        if slices < mig.COMPUTE and model in catalogue.models()
    ]


def training_constants(constants: Constants) -> Iterator[tuple[tuple[str, str, str, str], dict[str, RangedValue]]]:
    """Yield (kind, gpu, engine, workload) and the constants of trainings, their pairs, and MIG instances."""
    model_error = spread(left_out_models())
    source = "lambdal/deeplearning-benchmark: training throughput, FP32 (TF32 from Ampere on)"
    for (gpu, kind), value in fit_rates().items():
        yield ("training", gpu, "", kind), {"rate": RangedValue.by_factor(value, model_error, source)}

    errors = {
        "model": (model_error, "rate of a GPU: a training left out"),
        "gpu": (spread(left_out_gpus(constants)), "rate of a GPU: the GPU left out"),
        "host": (
            usual(left_out_steps()),
            "stanford-futuredata/gavel: steps on a P100 from the V100's; from the median",
        ),
    }
    yield (
        ("training", "", "", ""),
        {name: RangedValue.within(value, 0.0, source) for name, (value, source) in errors.items()},
    )

    source, slowdowns = f"{_GAVEL}: pairs on one V100", record()
    mean = sum(slowdowns.values()) / len(slowdowns)
    over_mean = [LeftOut("", "", "", slowdown, mean) for slowdown in slowdowns.values()]
    ranges = {"mean": RangedValue.by_factor(mean, spread(over_mean), source)}
    ranges["similar"] = RangedValue.within(spread(left_out_pairs()), 0.0, f"{source}, a workload left out")
    ranges["elsewhere"] = RangedValue.within(spread(over_mean), 0.0, f"{source}, over their mean")
    yield ("training-pairs", "", "", ""), ranges

    work, memory = fit_instance(constants)
    names = dict.fromkeys(row[0] for row in _instances(constants))
    powers = np.array([fit_instance(constants, without=name) for name in names])
    source = "MunQ-Lee/ParvaGPU_SC24: MIG instances of an A100; range: a workload left out"
    (work_low, memory_low), (work_high, memory_high) = powers.min(axis=0).tolist(), powers.max(axis=0).tolist()
    ranges = {"work": RangedValue(work, work_low, work_high, source)}
    yield ("mig", "", "", ""), ranges | {"memory": RangedValue(memory, memory_low, memory_high, source)}


def spread(points: Iterable[LeftOut]) -> float:
    """Return the root mean square of ln(modelled / measured)."""
    return math.sqrt(float(np.mean([math.log(point.modelled / point.measured) ** 2 for point in points])))


def usual(points: Iterable[LeftOut]) -> float:
    """Return the standard deviation of a normal whose median of |ln(modelled / measured)| is that of the points."""
    return float(np.median([abs(math.log(point.modelled / point.measured)) for point in points])) / _NORMAL_50


def mig_instance_errors(constants: Constants | None = None, powers: tuple[float, float] | None = None) -> pd.DataFrame:
    """Return MISO's steps in MIG instances beside the effect of a share of SMs and bandwidth on the whole GPU's step.

    `constants`, and the `powers` of slices and memory slices, are the calibrated ones unless given.

    Returns:
        One row a workload and instance: columns workload, slices, measured and modelled (slowdowns), error.
    """
    steps_s = training.mig_step_times_s()
    rows = []
    for (workload, slices), step_s in steps_s.items():
        if slices < mig.COMPUTE:
            whole = training_iteration(constants or default(), mig.MEASURED_GPU, Resident(workload))
            instance = mig.inside(whole, slices) if powers is None else mig.in_instance(whole, slices, *powers)
            modelled = instance.time_s(1.0, 1.0) / whole.time_s(1.0, 1.0)
            rows.append((str(workload), slices, step_s / steps_s[workload, mig.COMPUTE], modelled))
    table = pd.DataFrame(rows, columns=["workload", "slices", "measured", "modelled"])
    return table.assign(error=table["modelled"] / table["measured"] - 1)
