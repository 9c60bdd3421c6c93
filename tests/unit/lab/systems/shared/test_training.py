"""Training workloads: their table, memory, epochs, how they scale, and their steps on other GPUs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.systems.shared import training, training_step
from heshare.lab.systems.shared.training_step import (
    gpu_part_ratio,
    measured_rates,
    rate,
    ratio_uncertainty,
    training_iteration,
)
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.catalogue import gpus, memory_mib, models, resident
from heshare.world.workload import Resident, Workload


def test_steps():
    """Every recorded training step is complete, fits its GPU, and is read back from its text."""
    for workload in training.workloads():
        one = training.step(workload)
        assert one.workload == workload
        assert 0 < one.busy <= 1
        assert one.like in models()
        assert memory_mib(workload) == one.memory_mib < gpus()[one.gpu].memory_mib
        assert resident(str(workload)).workload == workload


def test_unknown_step():
    """An unknown batch size or workload is refused with the recorded ones."""
    with pytest.raises(InputError, match=r"\[64, 128, 256, 512\]"):
        memory_mib(Workload("miso_resnet", 7, phase="training"))
    with pytest.raises(InputError, match="eaco_alexnet, eaco_resnet18"):
        resident("resnet50-train:32")


def test_hours_and_epochs():
    """Steps give the published hours and epochs."""
    one = training.workloads("eaco")[2]
    steps = 90 * 1_281_167 / (8 * one.batch_size)
    assert training.step(one).step_s * steps / 3600 == pytest.approx(36.01, rel=1e-3)
    assert training.epoch_count(one, steps, 8) == 90
    assert training.epoch_count(one, 1.0) == 1


def test_scaling_efficiency():
    """The scaling efficiency is as computed by hand."""
    vgg = training.workloads("eaco")[3]
    one = training.step(vgg)
    # 138.36 M FP32 gradients, 2 x 7/8 times over 10 GB/s, half of it hidden.
    waits_s = 0.5 * 4 * 0.13836 * 2 * 7 / 8 / 10
    assert training.scaling_efficiency(vgg, 8) == pytest.approx(one.step_s / (one.step_s + waits_s))
    assert training.scaling_efficiency(vgg, 1) == 1.0
    assert training.scaling_efficiency(Workload("resnet50", 8), 4) == 1.0


RESNET = Workload("gavel_resnet50", 128, phase="training")
BERT = Workload("miso_bert", 8, phase="training")


def time_on(gpu: str, workload: Workload) -> float:
    return co_run(catalogue.gpu(gpu), [Resident(workload)], power_cap_w=10_000).tasks[0].time_s


@pytest.mark.parametrize(
    ("workload", "gpu", "samples_per_s"),
    [(RESNET, "A100", (369.4, 1067, 104.8, 304.3)), (RESNET, "H100", (369.4, 1753, 104.8, 524.3))],
)
def test_faster_gpu(workload, gpu, samples_per_s):
    """The GPU part shrinks by the mean ratio of ResNet-50 and SSD; the host part stays."""
    resnet_from, resnet_to, ssd_from, ssd_to = samples_per_s
    faster = ((resnet_to / resnet_from) * (ssd_to / ssd_from)) ** 0.5
    recorded = training.step(workload)
    expected_s = recorded.step_s * (1 - recorded.busy + recorded.busy / faster)
    # The record is of the PCIe card, and the throughput of the SXM2 one.
    by_clock = gpu_part_ratio(default(), "V100", "V100-SXM2", "resnet50")
    assert 0.8 < by_clock < 1
    expected_s -= recorded.step_s * recorded.busy / faster * (1 - by_clock)
    assert time_on(gpu, workload) == pytest.approx(expected_s, rel=1e-3)


def test_faster_gpus():
    """A faster GPU takes no longer, and no GPU takes less than the part of the host."""
    for workload in training.workloads():
        names = ("T4", "V100", "V100-SXM2", "A100-PCIe", "A100", "H100", "H200")
        times_s = [time_on(gpu, workload) for gpu in names]
        assert times_s == sorted(times_s, reverse=True)
        recorded = training.step(workload)
        assert times_s[-1] > (1 - recorded.busy) * recorded.step_s


def test_scaled_rate():
    """The rate of a GPU without measured trainings is scaled from the most similar one."""
    rates = measured_rates()
    known = replace(default(), timing=replace(default().timing, programs={}))  # all run the same program
    h100, h200 = (training_step.resembled(known, gpu, "vgg16").gpu_s(1.0, 1.0) for gpu in ("H100", "H200"))
    assert rate(default(), rates, "H200", "vgg16") == pytest.approx(rates["H100", "cnn"] * h100 / h200)
    assert rate(default(), {}, "H200", "vgg16") == pytest.approx(1 / h200)


def test_ratio_uncertainty():
    """The uncertainty of a ratio grows with what was not measured."""
    one, other, neither = (
        ratio_uncertainty(default(), *pair, "resnet50") for pair in (("A100", "H100"), ("A100", "H200"), ("T4", "H200"))
    )
    assert 0 == ratio_uncertainty(default(), "A100", "A100", "resnet50") < one < other < neither
    at_home, away = (training_iteration(default(), gpu, Resident(BERT)).time[0] for gpu in ("A100", "H100"))
    assert at_home.total == at_home.within_framework == training_step.MEASURED
    assert away.within_framework == pytest.approx(math.hypot(training_step.MEASURED, one))
    assert away.total > away.within_framework + 0.01
