"""Training steps on other GPUs than those of their records: ratios of throughputs, and a host part that stays."""

from __future__ import annotations

import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.systems.shared import training, training_step
from heshare.lab.systems.shared.training_step import gpu_part_ratio, measured_rates, rate, ratio_uncertainty
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

RESNET = Workload("gavel_resnet50", 128, phase="training")
BERT = Workload("miso_bert", 8, phase="training")


def step_s(gpu: str, workload: Workload) -> float:
    return co_run(catalogue.gpu(gpu), [Resident(workload)], power_cap_w=10_000).tasks[0].time_s


@pytest.mark.parametrize(
    ("workload", "gpu", "samples_per_s"),
    [(RESNET, "A100", (369.4, 1067, 104.8, 304.3)), (RESNET, "H100", (369.4, 1753, 104.8, 524.3))],
)
def test_training_step_on_a_faster_gpu_by_hand(workload, gpu, samples_per_s):
    """The GPU part shrinks by the mean ratio of ResNet-50 and SSD; the host part stays."""
    resnet_from, resnet_to, ssd_from, ssd_to = samples_per_s
    faster = ((resnet_to / resnet_from) * (ssd_to / ssd_from)) ** 0.5
    recorded = training.step(workload)
    expected_s = recorded.step_s * (1 - recorded.busy + recorded.busy / faster)
    # The record is of the PCIe card, and the throughput of the SXM2 one.
    by_clock = gpu_part_ratio(default(), "V100", "V100-SXM2", "resnet50")
    assert 0.89 < by_clock < 1
    expected_s -= recorded.step_s * recorded.busy / faster * (1 - by_clock)
    assert step_s(gpu, workload) == pytest.approx(expected_s, rel=1e-3)


@pytest.mark.parametrize("workload", training.workloads(), ids=str)
def test_training_step_orders_gpus_by_speed_and_never_undercuts_the_host(workload):
    times_s = [step_s(gpu, workload) for gpu in ("T4", "V100", "V100-SXM2", "A100-PCIe", "A100", "H100", "H200")]
    assert times_s == sorted(times_s, reverse=True)
    recorded = training.step(workload)
    assert times_s[-1] > (1 - recorded.busy) * recorded.step_s


def test_rate_of_a_gpu_without_measured_trainings_is_scaled_from_the_most_similar_one():
    rates = measured_rates()
    h100, h200 = (training_step.resembled(default(), gpu, "vgg16").gpu_s(1.0, 1.0) for gpu in ("H100", "H200"))
    assert rate(default(), rates, "H200", "vgg16") == pytest.approx(rates["H100", "cnn"] * h100 / h200)
    assert rate(default(), {}, "H200", "vgg16") == pytest.approx(1 / h200)


def test_ratio_uncertainty_grows_with_what_was_not_measured():
    one, other, neither = (
        ratio_uncertainty(default(), *pair, "resnet50") for pair in (("A100", "H100"), ("A100", "H200"), ("T4", "H200"))
    )
    assert 0 == ratio_uncertainty(default(), "A100", "A100", "resnet50") < one < other < neither
    at_home, away = (co_run(catalogue.gpu(gpu), [Resident(BERT)]).tasks[0] for gpu in ("A100", "H100"))
    assert at_home.uncertainty_parts.transfer == at_home.uncertainty_parts.host == 0
    assert away.uncertainty_parts.transfer == pytest.approx(one)
    assert away.uncertainty_parts.host > 0.1


def test_gpu_part_ratio_refuses_a_gpu_without_constants():
    with pytest.raises(InputError, match="make calibrate"):
        gpu_part_ratio(default(), "A100", "Voodoo2", "resnet50")
