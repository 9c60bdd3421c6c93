"""`heshare.estimate`: the notation, and measured points that went into the fit."""

from __future__ import annotations

import itertools
import math

import pytest

from heshare.device_query import estimate
from heshare.shared.errors import InputError
from heshare.world import catalogue

GPUS = tuple(catalogue.gpus())


def test_estimate_reads_the_notation_of_the_readme():
    result = estimate("V100", ["resnet50:16@50", "vgg19:8@50"], sm_mhz=None, precision="fp32", engine="eager")
    assert [(task.workload, task.batch_size, task.mps_pct) for task in result.tasks] == [
        ("resnet50", 16, 50),
        ("vgg19", 8, 50),
    ]
    assert result.sm_mhz <= 1380
    assert 25 < result.power_w <= 250


@pytest.mark.parametrize(
    ("gpu", "resident", "engine", "measured_s", "within"),
    [
        ("V100-SXM2", "resnet50:8@50", "tensorrt", 11.613e-3, 0.06),
        ("V100-SXM2", "vgg19:16@80", "tensorrt", 34.619e-3, 0.03),
        ("V100-SXM2", "vgg19:1@100", "tensorrt", 2.829e-3, 0.05),
        ("V100", "densenet121:8", "tensorrt", 8.20e-3, 0.03),
        ("T4", "resnet101:8", "tensorrt", 24.36e-3, 0.03),
        ("T4", "vgg16:1", "tensorrt", 5.62e-3, 0.05),
        ("A100", "resnet50:32", "eager", 13.35e-3, 0.05),
        ("A100", "resnet152:1", "eager", 14.27e-3, 0.06),
        ("T4", "bert_large:8", "eager", 159.71e-3, 0.05),
        ("A100", "bert_large:1", "eager", 6.50e-3, 0.08),
    ],
)
def test_estimate_agrees_with_measured_points(gpu: str, resident: str, engine: str, measured_s: float, within: float):
    assert estimate(gpu, [resident], engine=engine).tasks[0].time_s == pytest.approx(measured_s, rel=within)


def test_power_of_one_to_three_vgg19_agrees_with_the_measured():
    powers = [estimate("V100-SXM2", ["vgg19:16@20"] * count, engine="tensorrt").power_w for count in (1, 2, 3)]
    assert powers == pytest.approx([117.56, 184.89, 258.89], rel=0.1)


@pytest.mark.parametrize("engine", ["eager", "tensorrt"])
@pytest.mark.parametrize("gpu", GPUS)
def test_estimates_are_plausible_and_grow_with_the_batch_size(gpu: str, engine: str):
    for model in catalogue.paper_models():
        estimates = [estimate(gpu, [f"{model}:{batch}"], engine=engine) for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
        times = [result.tasks[0].time_s for result in estimates]
        assert times == sorted(times)
        assert all(1e-5 < time_s < 20 for time_s in times)
        card = catalogue.gpu(gpu)
        assert all(card.idle_w < result.power_w <= card.tdp_w for result in estimates)
        per_sample = [time_s / batch for time_s, batch in zip(times, (1, 2, 4, 8, 16, 32, 64, 128), strict=True)]
        # A larger batch leaves the cache, draws more, and so may run at a lower clock where the limit holds the card.
        worse = [1.03 if result.sm_mhz < card.max_mhz else 1.001 for result in estimates[1:]]
        pairs = itertools.pairwise(per_sample)
        assert all(later <= most * sooner for (sooner, later), most in zip(pairs, worse, strict=True))


def test_estimates_without_measurements_are_not_anchored():
    assert not estimate("A100", ["gpt2:8"]).tasks[0].anchored
    assert not estimate("H100", ["resnet50:8"]).tasks[0].anchored
    assert estimate("H100", ["resnet50:8"]).tasks[0].uncertainty > 0.15  # a record compares it with the A100
    assert estimate("L40S", ["resnet50:8"]).tasks[0].uncertainty > 0.2
    assert estimate("A100", ["resnet50:8"]).tasks[0].anchored


def test_light_models_differ_less_between_gpus_than_heavy_ones():
    light = [estimate(gpu, ["mobilenetv2:4"]).tasks[0].time_s for gpu in ("T4", "A100")]
    heavy = [estimate(gpu, ["bert_large:4"]).tasks[0].time_s for gpu in ("T4", "A100")]
    assert light[0] / light[1] < 1.6
    assert heavy[0] / heavy[1] > 5


def test_estimate_refuses_what_does_not_fit_into_memory():
    with pytest.raises(InputError, match=r"resnet50:100000@100 on V100, which needs \d+ MiB.*at most 32510 MiB"):
        estimate("V100", ["resnet50:100000"])
    with pytest.raises(InputError, match="20 residents on T4"):
        estimate("T4", ["vgg19:32@5"] * 20)
    with pytest.raises(InputError, match="mig-1g"):
        estimate("A100", ["vgg19:2048@mig-1g"])


def test_what_was_measured_fits_into_memory():
    for gpu, resident in (("V100-SXM2", "resnet152:256"), ("T4", "resnet50:256"), ("A100", "resnet50:512")):
        assert estimate(gpu, [resident]).tasks[0].time_s > 0
    assert estimate("A100", ["bert_large:256@50"] * 2).tasks[0].time_s > 0


def test_estimates_are_finite_at_the_smallest_share():
    result = estimate("A100", ["vgg19:8@1"] * 40)
    assert all(math.isfinite(task.time_s) for task in result.tasks)
