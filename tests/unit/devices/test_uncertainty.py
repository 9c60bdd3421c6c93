"""Stated uncertainty: causes combine, and grow outside what was measured; every answer has one for time and power."""

from __future__ import annotations

import math

import pytest

from heshare.device_query import estimate
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import Spreads, Uncertainty, outside
from heshare.world import catalogue


def _time(gpu: str, *residents: str, **options) -> Uncertainty:
    return estimate(gpu, residents, **options).tasks[0].uncertainty_parts


def test_parts_combine_as_the_root_of_the_sum_of_squares():
    parts = Uncertainty(fit=0.1, framework=0.2, host=0.2, transfer=0.1, contention=0.1)
    assert parts.total == pytest.approx(math.sqrt(0.11))
    assert parts.within_framework == pytest.approx(math.sqrt(0.03))
    low, high = parts.interval(2.0)
    assert low * high == pytest.approx(4.0)
    assert high == pytest.approx(2.0 * math.exp(1.645 * parts.total))


def test_outside_is_the_log_distance_from_a_range():
    assert outside(1, 8, 4) == outside(0, 0, 100) == 0.0
    assert outside(2, 8, 1) == pytest.approx(math.log(2))
    assert outside(2, 8, 32) == pytest.approx(math.log(4))


@pytest.mark.parametrize("gpu", list(catalogue.gpus()))
def test_every_workload_has_an_interval_for_time_and_for_power(gpu: str):
    for model in catalogue.paper_models():
        for engine in ("eager", "tensorrt"):
            result = estimate(gpu, [f"{model}:4"], engine=engine)
            assert 0.05 < result.tasks[0].uncertainty < 1.5
            assert 0.01 < result.power_uncertainty < 0.6
            assert 0.01 <= result.tasks[0].uncertainty_parts.within_framework <= result.tasks[0].uncertainty


def test_an_idle_gpu_has_an_interval_for_power():
    assert co_run(catalogue.gpu("T4"), []).power_uncertainty > 0


def test_uncertainty_grows_outside_the_measured_batch_sizes():
    inside, near, far = (_time("V100", f"resnet50:{size}", engine="tensorrt").transfer for size in (8, 32, 128))
    assert inside < near < far


def test_an_anchor_holds_for_the_measured_batch_sizes_only():
    assert estimate("T4", ["resnet50:64"]).tasks[0].anchored
    assert not estimate("T4", ["resnet50:2"]).tasks[0].anchored


def test_uncertainty_grows_below_the_measured_shares():
    inside, far = (_time("V100-SXM2", f"resnet50:8@{share}", engine="tensorrt").transfer for share in (40, 5))
    assert inside < far
    assert _time("T4", "resnet50:8@20").transfer > _time("T4", "resnet50:8").transfer


def test_uncertainty_grows_with_co_runners_and_below_the_top_clock():
    one, two, five = (_time("V100", *["resnet50:8@20"] * count).contention for count in (1, 2, 5))
    assert one == 0 < two < five
    assert _time("A100", "vgg16:16", sm_mhz=705).transfer > _time("A100", "vgg16:16").transfer


def test_the_host_adds_uncertainty_only_where_it_limits():
    assert _time("A100", "resnet50:1").host > 0.2 > 0.01 > _time("A100", "resnet50:256").host


def test_tensor_cores_and_half_precision_add_uncertainty():
    full, half = (_time("V100", "resnet50:64", precision=precision) for precision in ("fp32", "fp16"))
    assert half.framework > full.framework
    assert half.transfer > full.transfer


def test_mig_instances_add_uncertainty_as_they_shrink():
    sizes = [_time("A100", f"resnet50:8@mig-{slices}g").contention for slices in (7, 4, 2, 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0


def test_a_power_limit_makes_power_certain_and_time_uncertain():
    free, limited = (estimate("A100", ["vgg16:64"], power_cap_w=cap) for cap in (400.0, 120.0))
    assert limited.power_uncertainty < free.power_uncertainty
    assert limited.tasks[0].uncertainty > free.tasks[0].uncertainty


def test_spreads_between_frameworks_add_tensor_cores():
    spreads = Spreads(cnn=0.3, tensor=0.4)
    assert spreads.framework("cnn", tensor_cores=False) == pytest.approx(0.3)
    assert spreads.framework("cnn", tensor_cores=True) == pytest.approx(0.5)


def test_power_of_a_training_is_as_uncertain_as_a_class_of_load_without_a_measurement():
    assert estimate("V100", ["eaco_vgg16-train:32"]).power_uncertainty > 0.05
