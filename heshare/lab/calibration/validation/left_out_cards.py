"""Left-out points of GPUs, networks, trainings and MIG instances that are scaled by laws: one left out at a time."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from heshare.devices.derived_constants import nearest_by, scaled_timing, speed_ratio
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import outside
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.half_precision_fit import BERT_RECORD, bert_rows
from heshare.lab.calibration.laws_fit import (
    SPEED_EXPONENTS,
    TIME_EXPONENTS,
    FeatureRows,
    left_out,
    left_out_errors,
    pooled_spread,
    speed_rows,
    speed_spread,
    speeds_without,
    workload_rows,
)
from heshare.lab.calibration.measurements import TimeRows, records, table
from heshare.lab.calibration.time_fit import fit_timing, times_s
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR, throttled_gpu
from heshare.lab.calibration.training_fit import (
    LeftOut,
    left_out_gpus,
    left_out_instances,
    left_out_models,
    left_out_pairs,
    left_out_steps,
    spread,
    usual,
)
from heshare.lab.calibration.validation.points import LeftOutPoint
from heshare.lab.systems.miso.mig import MEASURED_GPU
from heshare.lab.systems.shared.training_step import MEASURED
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def card_speeds(kind: str, precision: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield time a sample of a full GPU, from its features and the other GPUs' times in the same program."""
    rows = speed_rows(kind, precision)
    test = f"{kind} {precision}, a GPU left out, features only"
    for gpu in sorted(set(rows.items)):
        unseen, predicted, _spread = left_out(rows, SPEED_EXPONENTS, gpu)
        uncertainty = speed_spread(without=gpu)
        for group, log, modelled in zip(unseen.groups, unseen.logs, predicted, strict=True):
            measured_s, modelled_s = float(np.exp(-log)), float(np.exp(-modelled))
            yield LeftOutPoint(test, gpu, gpu, group, "s", measured_s, modelled_s, uncertainty, kind, precision)


@cache
def _bert_rows() -> dict[tuple[str, str], TimeRows]:
    cards = table("cards")
    known = cards[cards.record == BERT_RECORD].groupby(["gpu", "workload"], sort=True)
    return {(str(gpu), str(name)): bert_rows(str(gpu), str(name)) for (gpu, name), _rows in known}


def bert_on_cards(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times of BERT in FP16 under TensorRT on a GPU, at all batch sizes, from those on the nearest other GPU."""
    rows, power, far = _bert_rows(), calibration.constants.power, calibration.constants.spreads.batch
    gpus = dict.fromkeys(gpu for gpu, _ in rows)
    for gpu, name in rows:
        laws = speeds_without(gpu, "transformer", "fp16")
        card, law = catalogue.gpu(gpu), laws.speed["transformer", "fp16"]
        base = catalogue.gpu(nearest_by(law, card, [catalogue.gpu(other) for other in gpus if other != gpu]))
        without = replace(calibration.constants, laws=laws)
        ratio, uncertainty = speed_ratio(without, card, base, "transformer", "fp16")
        fitted = fit_timing(rows[base.name, name], LANGUAGE_PRIOR, throttled_gpu(base.name, power))
        timing = scaled_timing(fitted.timing, card, base, power, ratio, uncertainty)
        modelled = times_s(timing, rows[gpu, name], throttled_gpu(gpu, power))
        for batch, measured_s, modelled_s in zip(rows[gpu, name].batch, rows[gpu, name].time_s, modelled, strict=True):
            own = math.hypot(timing.total_uncertainty, far * outside(timing.batch_low, timing.batch_high, batch))
            values = f"b{batch:.0f} from {base.name}", "s", float(measured_s), float(modelled_s), own
            test = "BERT FP16 TensorRT, a GPU left out"
            yield LeftOutPoint(test, gpu, name, *values, "transformer", "fp16", "tensorrt")


def networks(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield time a sample of a network on a full GPU, from its features and the other networks' times there."""
    rows: FeatureRows = workload_rows()
    errors = left_out_errors(rows, TIME_EXPONENTS)
    for name in sorted(errors):
        unseen, predicted, _spread = left_out(rows, TIME_EXPONENTS, name)
        uncertainty = pooled_spread(errors, without=name)
        for group, log, modelled in zip(unseen.groups, unseen.logs, predicted, strict=True):
            values = "s", float(np.exp(log)), float(np.exp(modelled)), uncertainty, catalogue.kind(name)
            yield LeftOutPoint("a network left out, features only", group.split(",")[0], name, group, *values)


FASTER = "training step on a faster GPU, a training left out"
PAIRS = "pairs of trainings on a V100, a workload left out"
BIAS = "pairs of trainings on a V100, mean slowdown, a workload left out"
INSTANCES = "A100 inference in MIG instances, a workload left out"
SECOND_LABORATORY = "A100 {} in MIG instances, a second laboratory"


def faster_gpus(_: Calibration) -> Iterator[LeftOutPoint]:
    points = list(left_out_models())
    yield from _points(FASTER, points, spread(points))


def other_gpus(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield rates of GPUs from those of the others and the time of the resembled network."""
    points = list(left_out_gpus(calibration.constants))
    error = math.hypot(spread(left_out_models()), spread(points))
    yield from _points("training rate of a GPU, the GPU left out", points, error)


def other_hosts(_: Calibration) -> Iterator[LeftOutPoint]:
    points = list(left_out_steps())
    error = math.hypot(MEASURED, spread(left_out_models()), usual(points))
    yield from _points("training step on a P100 from the V100's, a workload left out", points, error, unit="s")


def training_pairs(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield slowdowns of pairs of trainings from the pairs of the other workloads, and their mean."""
    points = left_out_pairs()
    yield from _points(PAIRS, points, math.hypot(MEASURED, spread(points)))
    measured, modelled = (sum(values) / len(points) for values in zip(*(point[3:] for point in points), strict=True))
    yield LeftOutPoint(BIAS, points[0].gpu, "all", "mean over the pairs", "1", measured, modelled, kind="training")


def instances(calibration: Calibration) -> Iterator[LeftOutPoint]:
    points = list(left_out_instances(calibration.constants))
    form = spread(points)
    for point in points:
        timing = calibration.constants.timing[MEASURED_GPU, "eager", point.item]
        error = math.hypot(timing.uncertainty, form)
        yield from _points(INSTANCES, [point], error, unit="s", kind="cnn", engine="eager")


def second_laboratory(phase: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times in instances that entered no fit; framework and host are others, so all of the uncertainty counts.

    The constants of instances and trainings are those of `constants.csv`.
    """
    rows, gpu = table("mig_second_laboratory"), catalogue.gpu(MEASURED_GPU)
    kind, engine = ("cnn", "eager") if phase == "inference" else ("training", "")
    for row in records(rows[rows.phase == phase]):
        own = Resident(Workload(row.workload, int(row.batch_size), phase=phase), sharing=f"mig-{row.slices}g")
        task = co_run(gpu, [own], constants=calibration.constants).tasks[0]
        point = LeftOut(gpu.name, row.workload, f"b{row.batch_size} {row.slices}g", row.time_s, task.time_s)
        test = SECOND_LABORATORY.format(phase)
        yield from _points(test, [point], task.uncertainty, unit="s", kind=kind, engine=engine)


def _points(
    test: str, points: Iterable[LeftOut], error: float, *, unit: str = "1", kind: str = "training", engine: str = ""
) -> Iterator[LeftOutPoint]:
    for point in points:
        yield LeftOutPoint(test, *point[:3], unit, *point[3:], error, kind=kind, engine=engine)


TARGETS = {
    "cnn fp32, a GPU left out, features only": (35.0, 60.0),
    "cnn fp16, a GPU left out, features only": (35.0, 60.0),
    "transformer fp32, a GPU left out, features only": (35.0, 60.0),
    "transformer fp16, a GPU left out, features only": (35.0, 60.0),
    "BERT FP16 TensorRT, a GPU left out": (35.0, 60.0),
    "a network left out, features only": (35.0, 60.0),
    FASTER: (20.0, 35.0),
    PAIRS: (20.0, 45.0),
    BIAS: (5.0, 5.0),
    INSTANCES: (12.0, 25.0),
}
"""As in `left_out`."""
TESTS: tuple[Callable[[Calibration], Iterator[LeftOutPoint]], ...] = (
    partial(card_speeds, "cnn", "fp32"),
    partial(card_speeds, "cnn", "fp16"),
    partial(card_speeds, "transformer", "fp32"),
    partial(card_speeds, "transformer", "fp16"),
    bert_on_cards,
    networks,
)
TRAINING_TESTS = (
    faster_gpus,
    other_gpus,
    other_hosts,
    training_pairs,
    instances,
    partial(second_laboratory, "inference"),
    partial(second_laboratory, "training"),
)
"""The tests of laws, and of trainings, in the order of `errors.csv`."""
