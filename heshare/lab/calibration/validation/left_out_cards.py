"""Left-out points of GPUs, networks, trainings and MIG instances that are scaled by laws: one left out at a time."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from heshare.devices.derived_constants import nearest_by, scaled_timing, speed_ratio
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import outside
from heshare.lab.calibration import laws_fit, training_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.half_precision_fit import BERT_RECORD, bert_rows
from heshare.lab.calibration.measurements import records, table
from heshare.lab.calibration.time_fit import fit_timing, times_s
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR, throttled_gpu
from heshare.lab.calibration.training_fit import LeftOut, spread, usual
from heshare.lab.calibration.validation.points import LeftOutPoint, points
from heshare.lab.systems.miso.mig import MEASURED_GPU
from heshare.lab.systems.shared.training_step import MEASURED
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

_CLASSES = tuple(product(("cnn", "transformer"), ("fp32", "fp16")))


def card_speeds(kind: str, precision: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield time a sample of a full GPU, from its features and the other GPUs' times in the same program."""
    rows = laws_fit.speed_rows(kind, precision)
    test = f"{kind} {precision}, a GPU left out, features only"
    for gpu in sorted(set(rows.items)):
        unseen, predicted, _spread = laws_fit.left_out(rows, laws_fit.SPEED_EXPONENTS, gpu)
        uncertainty = laws_fit.speed_spread(without=gpu)
        values = np.exp(-unseen.logs), np.exp(-predicted), uncertainty
        yield from points(test, gpu, gpu, unseen.groups, "s", *values, kind, precision)


def bert_on_cards(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times of BERT in FP16 under TensorRT on a GPU, at all batch sizes, from those on the nearest other GPU."""
    power, far, cards = calibration.constants.power, calibration.constants.spreads.batch, table("cards")
    cards = cards[cards.record == BERT_RECORD]
    rows = {key: bert_rows(*key) for key in sorted(set(zip(cards.gpu, cards.workload, strict=True)))}
    gpus = dict.fromkeys(gpu for gpu, _ in rows)
    for (gpu, name), measured in rows.items():
        laws = laws_fit.speeds_without(gpu, "transformer", "fp16")
        card, law = catalogue.gpu(gpu), laws.speed["transformer", "fp16"]
        base = catalogue.gpu(nearest_by(law, card, [catalogue.gpu(other) for other in gpus if other != gpu]))
        without = replace(calibration.constants, laws=laws)
        ratio, uncertainty = speed_ratio(without, card, base, "transformer", "fp16")
        fitted = fit_timing(rows[base.name, name], LANGUAGE_PRIOR, throttled_gpu(base.name, power))
        timing = scaled_timing(fitted.timing, card, base, power, ratio, uncertainty)
        modelled, batches = times_s(timing, measured, throttled_gpu(gpu, power)), measured.batch
        beyond = [outside(timing.batch_low, timing.batch_high, batch) for batch in batches]
        own = np.array([math.hypot(timing.total_uncertainty, far * distance) for distance in beyond])
        settings, values = (f"b{batch:.0f} from {base.name}" for batch in batches), (measured.time_s, modelled, own)
        test = "BERT FP16 TensorRT, a GPU left out"
        yield from points(test, gpu, name, settings, "s", *values, "transformer", "fp16", "tensorrt")


def networks(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield time a sample of a network on a full GPU, from its features and the other networks' times there."""
    rows = laws_fit.workload_rows()
    errors = laws_fit.left_out_errors(rows, laws_fit.TIME_EXPONENTS)
    for name in sorted(errors):
        unseen, predicted, _spread = laws_fit.left_out(rows, laws_fit.TIME_EXPONENTS, name)
        uncertainty = laws_fit.pooled_spread(errors, without=name)
        for group, log, modelled in zip(unseen.groups, unseen.logs, predicted, strict=True):
            values = "s", float(np.exp(log)), float(np.exp(modelled)), uncertainty, catalogue.kind(name)
            yield LeftOutPoint("a network left out, features only", group.split(",")[0], name, group, *values)


FASTER = "training step on a faster GPU, a training left out"
PAIRS = "pairs of trainings on a V100, a workload left out"
BIAS = "pairs of trainings on a V100, mean slowdown, a workload left out"
INSTANCES = "A100 inference in MIG instances, a workload left out"
SECOND_LABORATORY = "A100 {} in MIG instances, a second laboratory"


def faster_gpus(_: Calibration) -> Iterator[LeftOutPoint]:
    points = list(training_fit.left_out_models())
    yield from _points(FASTER, points, spread(points))


def other_gpus(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield rates of GPUs from those of the others and the time of the resembled network."""
    points = list(training_fit.left_out_gpus(calibration.constants))
    error = math.hypot(spread(training_fit.left_out_models()), spread(points))
    yield from _points("training rate of a GPU, the GPU left out", points, error)


def other_hosts(_: Calibration) -> Iterator[LeftOutPoint]:
    points = list(training_fit.left_out_steps())
    error = math.hypot(MEASURED, spread(training_fit.left_out_models()), usual(points))
    yield from _points("training step on a P100 from the V100's, a workload left out", points, error, unit="s")


def training_pairs(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield slowdowns of pairs of trainings from the pairs of the other workloads, and their mean."""
    points = training_fit.left_out_pairs()
    yield from _points(PAIRS, points, math.hypot(MEASURED, spread(points)))
    measured, modelled = (sum(values) / len(points) for values in zip(*(point[3:] for point in points), strict=True))
    yield LeftOutPoint(BIAS, points[0].gpu, "all", "mean over the pairs", "1", measured, modelled, kind="training")


def instances(calibration: Calibration) -> Iterator[LeftOutPoint]:
    points = list(training_fit.left_out_instances(calibration.constants))
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
    **{f"{kind} {precision}, a GPU left out, features only": (35.0, 60.0) for kind, precision in _CLASSES},
    "BERT FP16 TensorRT, a GPU left out": (35.0, 60.0),
    "a network left out, features only": (35.0, 60.0),
    FASTER: (20.0, 35.0),
    PAIRS: (20.0, 45.0),
    BIAS: (5.0, 5.0),
    INSTANCES: (12.0, 25.0),
}
"""As in `left_out`."""
TESTS: tuple[Callable[[Calibration], Iterator[LeftOutPoint]], ...] = (
    *(partial(card_speeds, *each) for each in _CLASSES),
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
