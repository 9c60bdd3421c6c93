"""Stated uncertainty: causes combine, and grow outside what was measured; every answer has one for time and power."""

from __future__ import annotations

import math

import pytest

from heshare.device_query import estimate
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import Spreads, Uncertainty, outside
from heshare.world import catalogue


def time_parts(gpu: str, *residents: str, **options) -> Uncertainty:
    return estimate(gpu, residents, **options).tasks[0].uncertainty_parts


def test_total():
    """Parts combine as the root of the sum of squares; the interval is symmetric in logarithms."""
    parts = Uncertainty(fit=0.1, framework=0.2, host=0.2, transfer=0.1, contention=0.1)
    assert parts.total == pytest.approx(math.sqrt(0.11))
    assert parts.within_framework == pytest.approx(math.sqrt(0.03))

    low, high = parts.interval(2.0)
    assert low * high == pytest.approx(4.0)
    assert high == pytest.approx(2.0 * math.exp(1.645 * parts.total))


def test_outside():
    """The distance from a range is in logarithms, zero inside."""
    assert outside(1, 8, 4) == outside(0, 0, 100) == 0.0
    assert outside(2, 8, 1) == pytest.approx(math.log(2))
    assert outside(2, 8, 32) == pytest.approx(math.log(4))


def test_spreads():
    """Tensor cores add to the spread between frameworks."""
    spreads = Spreads(cnn=0.3, tensor=0.4)
    assert spreads.framework("cnn", tensor_cores=False) == pytest.approx(0.3)
    assert spreads.framework("cnn", tensor_cores=True) == pytest.approx(0.5)


def test_idle_power():
    """The power of an idle GPU is uncertain, too."""
    assert co_run(catalogue.gpu("T4"), []).power_uncertainty > 0


TENSORRT = {"engine": "tensorrt"}


@pytest.mark.parametrize(
    ("part", "gpu", "questions"),
    [
        ("transfer", "V100", [("resnet50:8", TENSORRT), ("resnet50:32", TENSORRT), ("resnet50:128", TENSORRT)]),
        ("transfer", "V100-SXM2", [("resnet50:8@40", TENSORRT), ("resnet50:8@5", TENSORRT)]),
        ("transfer", "T4", [("resnet50:8", {}), ("resnet50:8@20", {})]),
        ("transfer", "A100", [("vgg16:16", {}), ("vgg16:16", {"sm_mhz": 705})]),
        ("transfer", "V100", [("resnet50:64", {}), ("resnet50:64", {"precision": "fp16"})]),
        ("framework", "V100", [("resnet50:64", {}), ("resnet50:64", {"precision": "fp16"})]),
        ("host", "A100", [("resnet50:256", {}), ("resnet50:1", {})]),
        ("contention", "V100", [("+".join(["resnet50:8@20"] * count), {}) for count in (1, 2, 5)]),
        ("contention", "A100", [(f"gpt2:8@mig-{slices}g", {}) for slices in (7, 4, 2, 1)]),
    ],
    ids=str,
)
def test_farther_from_records(part: str, gpu: str, questions: list):
    """A part of the uncertainty grows the farther a question is from what was measured."""
    found = [getattr(time_parts(gpu, *residents.split("+"), **options), part) for residents, options in questions]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_alone_is_certain():
    """A task alone, or in an instance of the whole GPU, has no uncertainty of contention."""
    assert time_parts("V100", "resnet50:8@20").contention == time_parts("A100", "resnet50:8@mig-7g").contention == 0


def test_anchor():
    """A measured time holds for the measured batch sizes only."""
    assert estimate("T4", ["resnet50:64"]).tasks[0].anchored
    assert not estimate("T4", ["resnet50:2"]).tasks[0].anchored


def test_power_limit():
    """A power limit makes power certain and time uncertain."""
    free, limited = (estimate("A100", ["vgg16:64"], power_cap_w=cap) for cap in (400.0, 120.0))
    assert limited.power_uncertainty < free.power_uncertainty
    assert limited.tasks[0].uncertainty > free.tasks[0].uncertainty


def test_training_power():
    """Power of a training is as uncertain as that of a load class without a measurement."""
    assert estimate("V100", ["eaco_vgg16-train:32"]).power_uncertainty > 0.05
