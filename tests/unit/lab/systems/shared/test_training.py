"""Training workloads: their table, memory, epochs, and how they scale."""

from __future__ import annotations

import pytest

from heshare.lab.systems.shared import training
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpus, memory_mib, models, resident
from heshare.world.workload import Resident, Workload


@pytest.mark.parametrize("workload", training.workloads(), ids=str)
def test_every_training_step_is_complete_and_fits_its_gpu(workload):
    one = training.step(workload)
    assert one.workload == workload
    assert 0 < one.busy <= 1
    assert one.like in models()
    assert memory_mib(workload) == one.memory_mib < gpus()[one.gpu].memory_mib
    assert resident(str(workload)).workload == workload


def test_workloads_of_each_record():
    assert {str(one) for one in training.workloads("eaco")} == {
        "eaco_alexnet-train:32",
        "eaco_resnet18-train:32",
        "eaco_resnet50-train:32",
        "eaco_vgg16-train:32",
    }
    assert len(training.workloads("gavel", gpu="V100")) == 26
    assert len(training.workloads("miso", gpu="A100")) == 32
    assert training.workloads("miso", gpu="V100") == ()


def test_step_refuses_an_unknown_batch_size_and_names_the_recorded_ones():
    with pytest.raises(InputError, match=r"\[64, 128, 256, 512\]"):
        memory_mib(Workload("miso_resnet", 7, phase="training"))
    with pytest.raises(InputError, match="eaco_alexnet, eaco_resnet18"):
        resident("resnet50-train:32")


def test_training_steps_give_the_published_hours_and_epochs():
    one = training.workloads("eaco")[2]
    steps = 90 * 1_281_167 / (8 * one.batch_size)
    assert training.step(one).step_s * steps / 3600 == pytest.approx(36.01, rel=1e-3)
    assert training.epoch_count(one, steps, 8) == 90
    assert training.epoch_count(one, 1.0) == 1


def test_scaling_efficiency_by_hand():
    vgg = training.workloads("eaco")[3]
    one = training.step(vgg)
    # 138.36 M FP32 gradients, 2 x 7/8 times over 10 GB/s, half of it hidden.
    waits_s = 0.5 * 4 * 0.13836 * 2 * 7 / 8 / 10
    assert training.scaling_efficiency(vgg, 8) == pytest.approx(one.step_s / (one.step_s + waits_s))
    assert training.scaling_efficiency(vgg, 1) == 1.0
    assert training.scaling_efficiency(Workload("resnet50", 8), 4) == 1.0


def test_measured_slowdown_is_that_of_the_published_hours():
    slowdowns = [100 * (training.measured_slowdown(one) - 1) for one in training.measured_sets()]
    assert [round(each, 1) for each in slowdowns] == [3.5, 3.0, 3.9, 8.4, 8.3, 24.5]


@pytest.mark.parametrize("way", ["time-slice", "mig-1g", "mig-7g", "priority-3"])
def test_way_of_sharing_is_written_and_read_back(way):
    one = Resident(training.workloads("eaco")[0], sharing=way)
    assert str(one) == f"eaco_alexnet-train:32@{way}"
    assert resident(str(one)) == one


@pytest.mark.parametrize("text", ["resnet50:8@mig-5g", "resnet50:8@time", "resnet50:8@50-mig", "resnet50:8@mig-3g@50"])
def test_unknown_way_of_sharing_is_refused(text):
    with pytest.raises(InputError):
        resident(text)
