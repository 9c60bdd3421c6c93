"""Left-out points of the laws by which GPUs and networks without measurements are scaled: one left out at a time."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from heshare.devices.derived_constants import nearest_by, scaled_timing, speed_ratio
from heshare.devices.uncertainty import outside
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.measurements import TimeRows, table
from heshare.lab.calibration.scaling.feature_law import FeatureRows, left_out, left_out_errors, root_mean_square
from heshare.lab.calibration.scaling.laws_fit import (
    SPEED_EXPONENTS,
    TIME_EXPONENTS,
    speed_rows,
    speed_spread,
    speeds_without,
    workload_rows,
)
from heshare.lab.calibration.time_fit import fit_timing, times_s
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR, throttled_gpu
from heshare.lab.calibration.validation.points import LeftOutPoint
from heshare.world import catalogue

BERT_RECORD = "TensorRT demo"
"""NVIDIA's BERT in FP16 under TensorRT on five GPUs."""


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
    """Times of NVIDIA's BERTs by (gpu, network)."""
    cards = table("cards")
    chosen = cards[cards.record == BERT_RECORD].sort_values("batch_size", kind="stable")
    return {
        (str(gpu), str(name)): TimeRows(
            rows.batch_size.to_numpy(float),
            np.ones(len(rows)),
            (rows.batch_size / rows.per_s).to_numpy(float),
            np.full(len(rows), np.nan),
        )
        for (gpu, name), rows in chosen.groupby(["gpu", "workload"], sort=True)
    }


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
            yield LeftOutPoint(
                "BERT FP16 TensorRT, a GPU left out",
                gpu,
                name,
                f"b{batch:.0f} from {base.name}",
                "s",
                float(measured_s),
                float(modelled_s),
                math.hypot(timing.total_uncertainty, far * outside(timing.batch_low, timing.batch_high, batch)),
                "transformer",
                "fp16",
                "tensorrt",
            )


def networks(_: Calibration) -> Iterator[LeftOutPoint]:
    """Yield time a sample of a network on a full GPU, from its features and the other networks' times there."""
    rows: FeatureRows = workload_rows()
    errors = left_out_errors(rows, TIME_EXPONENTS)
    for name in sorted(errors):
        unseen, predicted, _spread = left_out(rows, TIME_EXPONENTS, name)
        uncertainty = root_mean_square(errors, without=name)
        for group, log, modelled in zip(unseen.groups, unseen.logs, predicted, strict=True):
            gpu = group.split(",")[0]
            yield LeftOutPoint(
                "a network left out, features only",
                gpu,
                name,
                group,
                "s",
                float(np.exp(log)),
                float(np.exp(modelled)),
                uncertainty,
                catalogue.kind(name),
            )


TARGETS = {
    "cnn fp32, a GPU left out, features only": (35.0, 60.0),
    "cnn fp16, a GPU left out, features only": (35.0, 60.0),
    "transformer fp32, a GPU left out, features only": (35.0, 60.0),
    "transformer fp16, a GPU left out, features only": (35.0, 60.0),
    "BERT FP16 TensorRT, a GPU left out": (35.0, 60.0),
    "a network left out, features only": (35.0, 60.0),
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
"""The tests of GPUs and networks left out, in the order of `errors.csv`."""
