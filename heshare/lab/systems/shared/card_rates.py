"""Speed of the GPU part of a training on each GPU: measured throughputs, and elsewhere the network that it resembles.

`data/calibration/cards.csv` has throughputs of the same trainings on several GPUs, with batch sizes that fill them. The
rate of a GPU is their geometric mean over the trainings of a kind (`cnn` or `transformer`), relative to one
GPU; `heshare.lab.calibration.training_fit` fits it. A GPU without such a measurement is scaled from the measured one
(with TF32 or without, as it is) that runs the resembled network of Table IV in the most similar time, by the ratio of
the two times.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

from heshare.devices.constants import Constants, fitted
from heshare.devices.iteration_time import Iteration, iteration_at
from heshare.shared.errors import InputError
from heshare.world import catalogue

SAMPLES = 32
"""Inference batch size at which the network of Table IV is compared between GPUs; assumed."""

Rates = Mapping[tuple[str, str], float]
"""Relative speed by (gpu, kind)."""


def training_kind(like: str) -> str:
    """Return the kind of a training, `cnn` or `transformer`: that of the network of Table IV that it resembles.

    Training has no decoding, so that a network which decodes in inference trains like one on whole sequences.
    """
    return "cnn" if catalogue.kind(like) == "cnn" else "transformer"


def resembled(constants: Constants, gpu: str, like: str) -> Iteration:
    """Return an iteration on `gpu` of the network of Table IV that a training resembles.

    Raises:
        InputError: a GPU without constants.
    """
    timing = constants.timing.get((gpu, "eager", like))
    if timing is None:
        raise InputError(
            repr(gpu),
            "a GPU of the calibrated model",
            "Add the GPU to data/gpus.csv and run `make calibrate`.",
            column="gpu",
        )
    return iteration_at(timing, SAMPLES, 1.0)


def measured_rates() -> dict[tuple[str, str], float]:
    """Return the fitted rates by (gpu, kind)."""
    return {(gpu, kind): values["rate"] for (gpu, _, kind), values in fitted("training").items() if gpu}


@lru_cache(maxsize=4096)
def gpu_part_ratio(constants: Constants, recorded: str, target: str, like: str) -> float:
    """Return the GPU part of a training on the GPU `target` over that on `recorded`.

    Raises:
        InputError: a GPU without constants.
    """
    if recorded == target:
        return 1.0
    rates = measured_rates()
    return rate(constants, rates, recorded, like) / rate(constants, rates, target, like)


def rate(constants: Constants, rates: Rates, gpu: str, like: str) -> float:
    """Return the rate of a GPU for trainings that resemble `like`, in the unit of `rates`.

    Raises:
        InputError: a GPU without constants.
    """
    kind = training_kind(like)
    if (gpu, kind) in rates:
        return rates[gpu, kind]
    own_s = resembled(constants, gpu, like).gpu_s(1.0, 1.0)
    times_s = {
        other: resembled(constants, other, like).gpu_s(1.0, 1.0)
        for other, kind_of_rate in rates
        if kind_of_rate == kind and (other, "eager", like) in constants.timing
    }
    if not times_s:
        return 1.0 / own_s
    alike = [other for other in times_s if _has_tf32(other) == _has_tf32(gpu)] or list(times_s)
    nearest = min(alike, key=lambda other: (abs(math.log(times_s[other] / own_s)), other))
    return rates[nearest, kind] * times_s[nearest] / own_s


def _has_tf32(gpu: str) -> bool:
    """Whether FP32 networks run in TF32 there."""
    return gpu in catalogue.gpus() and catalogue.gpu(gpu).has_tf32


def ratio_uncertainty(constants: Constants, recorded: str, target: str, like: str) -> float:
    """Return the relative standard uncertainty of `gpu_part_ratio`, from trainings and GPUs that were left out."""
    if recorded == target:
        return 0.0
    errors, rates = fitted("training")["", "", ""], measured_rates()
    scaled = [
        math.hypot(errors["gpu"], constants.timing[gpu, "eager", like].transfer)
        for gpu in (recorded, target)
        if (gpu, training_kind(like)) not in rates
    ]
    return math.hypot(errors["model"], *scaled)
