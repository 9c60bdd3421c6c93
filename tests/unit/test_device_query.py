"""`heshare.estimate`: the notation, and measured points that went into the fit."""

from __future__ import annotations

import pytest

from heshare.device_query import estimate
from heshare.world import catalogue

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@pytest.mark.parametrize(
    ("gpu", "resident", "engine", "measured_s", "within"),
    [
        ("V100-SXM2", "resnet50:8@50", "tensorrt", 11.613e-3, 0.06),
        ("T4", "resnet101:8", "tensorrt", 24.36e-3, 0.03),
        ("A100", "resnet50:32", "eager", 13.35e-3, 0.08),
    ],
)
def test_measured_points(gpu: str, resident: str, engine: str, measured_s: float, within: float):
    """Times of measured points that went into the fit are near the measured ones."""
    assert estimate(gpu, [resident], engine=engine).tasks[0].time_s == pytest.approx(measured_s, rel=within)


@pytest.mark.parametrize("engine", ["eager", "tensorrt"])
def test_batch_sizes(engine: str):
    """On every GPU times grow with the batch size, times per sample do not, and power is within the GPU's limits."""
    for gpu in catalogue.gpus().values():
        for model in catalogue.paper_models():
            estimates = [estimate(gpu.name, [f"{model}:{batch}"], engine=engine) for batch in SIZES]
            times_s = [result.tasks[0].time_s for result in estimates]
            assert times_s == sorted(times_s)
            assert all(1e-5 < time_s < 20 for time_s in times_s)
            assert all(gpu.idle_w < result.power_w <= gpu.tdp_w for result in estimates)

            per_sample_s = [time_s / batch for time_s, batch in zip(times_s, SIZES, strict=True)]
            for number in range(1, len(SIZES)):
                # A larger batch leaves the cache, draws more, and so may run at a lower clock at the power limit.
                most = 1.03 if estimates[number].sm_mhz < gpu.max_mhz else 1.001
                assert per_sample_s[number] <= most * per_sample_s[number - 1]


def test_not_anchored():
    """Estimates without a measurement of the workload on the GPU say so, and are less certain."""
    known = estimate("A100", ["resnet50:8"]).tasks[0]
    assert known.anchored
    assert not estimate("A100", ["gpt2:8"]).tasks[0].anchored
    for gpu in ("H100-PCIe", "L40S"):
        task = estimate(gpu, ["resnet50:8"]).tasks[0]
        assert not task.anchored
        assert task.uncertainty > known.uncertainty


def test_measured_sizes_fit():
    """What was measured fits into memory."""
    for gpu, resident in (("V100-SXM2", "resnet152:256"), ("T4", "resnet50:256"), ("A100", "resnet50:512")):
        assert estimate(gpu, [resident]).tasks[0].time_s > 0
    assert estimate("A100", ["bert_large:256@50"] * 2).tasks[0].time_s > 0
