"""Left-out points of trainings on other GPUs, of pairs of trainings, and of inference in MIG instances."""

import math
from collections.abc import Iterable, Iterator

from heshare.lab.calibration.device_model_fit import Calibration
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

FASTER = "training step on a faster GPU, a training left out"
PAIRS = "pairs of trainings on a V100, a workload left out"
BIAS = "pairs of trainings on a V100, mean slowdown, a workload left out"
INSTANCES = "A100 inference in MIG instances, a workload left out"
TRAINING_TARGETS = {FASTER: (20.0, 35.0), PAIRS: (20.0, 45.0), BIAS: (5.0, 5.0), INSTANCES: (12.0, 25.0)}
"""Targets as in `left_out.TARGETS`."""


def faster_gpus(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield steps on GPUs over those on slower ones, from the other trainings of the kind."""
    points = list(left_out_models())
    yield from _points(FASTER, points, spread(points))


def other_gpus(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield rates of GPUs from those of the others and the time of the resembled network."""
    points = list(left_out_gpus(calibration.constants))
    error = math.hypot(spread(left_out_models()), spread(points))
    yield from _points("training rate of a GPU, the GPU left out", points, error)


def other_hosts(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield whole steps on another GPU and host than those of the record."""
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
    """Yield times of inference in MIG instances from the instances of the other workloads."""
    points = list(left_out_instances(calibration.constants))
    form = spread(points)
    for point in points:
        timing = calibration.constants.timing[MEASURED_GPU, "eager", point.item]
        error = math.hypot(timing.uncertainty, form)
        yield from _points(INSTANCES, [point], error, unit="s", kind="cnn", engine="eager")


def _points(
    test: str, points: Iterable[LeftOut], error: float, *, unit: str = "1", kind: str = "training", engine: str = ""
) -> Iterator[LeftOutPoint]:
    """Points with the relative standard uncertainty `error`."""
    for point in points:
        yield LeftOutPoint(test, *point[:3], unit, *point[3:], error, kind=kind, engine=engine)


TRAINING_TESTS = (faster_gpus, other_gpus, other_hosts, training_pairs, instances)
"""The tests, in the order of `errors.csv`."""
