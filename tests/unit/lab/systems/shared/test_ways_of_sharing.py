"""Training, time slices and MIG on the emulated device: formulas by hand, and refused requests."""

from __future__ import annotations

import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.miso import mig
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.time_slicing import switching_cost
from heshare.lab.systems.shared.training_step import full_intensity
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload, parse_resident

SXM2, A100, V100, T4 = (gpu(name) for name in ("V100-SXM2", "A100", "V100", "T4"))
ALEXNET, RESNET18, RESNET50, VGG = (
    Workload(f"eaco_{name}", 32, phase="training") for name in ("alexnet", "resnet18", "resnet50", "vgg16")
)
CNN = Workload("resnet50", 8)


def share(way, *workloads):
    return [Resident(one, 100, way) for one in workloads]


@pytest.mark.parametrize("text", ["resnet50:8@mig-5g", "resnet50:8@time", "resnet50:8@50-mig", "resnet50:8@mig-3g@50"])
def test_unknown_way(text):
    """An unknown way of sharing is refused."""
    with pytest.raises(InputError):
        parse_resident(text)


def test_recorded_steps():
    """A training step alone takes the recorded time and draws the recorded power, within the model's range."""
    for workload in training.workloads():
        step = training.step(workload)
        card = gpu(step.gpu)
        found = co_run(card, [Resident(workload)])
        assert found.tasks[0].time_s == pytest.approx(step.step_s, rel=1e-9)
        assert found.tasks[0].anchored == step.measured

        power = default().power[card.name]
        least_w = step.busy * power.clock_w
        full_w = power.dynamic_w * full_intensity(default(), card.name)
        above_w = max(least_w, min(step.dynamic_w, least_w + step.busy * full_w))
        # The record's idle GPU held its clock.
        drawn_w = found.power_w - co_run(card, []).power_w
        assert drawn_w == pytest.approx(power.idle_clock_w + above_w)


def test_measured_sets():
    """In time slices the sets of EaCO have the measured slowdown to 0.9 points, and the node's power to 8 %.

    No set went into a fit of the power.
    """
    for measured in training.measured_sets():
        found = co_run(SXM2, share("time-slice", *measured.workloads))
        pairs = zip(found.tasks, measured.workloads, strict=True)
        slower = [task.time_s / training.step(workload).step_s for task, workload in pairs]
        assert max(slower) == pytest.approx(min(slower))
        assert slower[0] == pytest.approx(training.measured_slowdown(measured), abs=0.009)
        # A node draws 688 W with its GPUs at no work: the line through the four workloads alone.
        assert 688.5 + 8 * (found.power_w - 53.5) == pytest.approx(measured.node_w, rel=0.08)


def test_time_slices():
    """Times in time slices are as computed by hand."""
    found = co_run(SXM2, share("time-slice", VGG, VGG, VGG))
    # Three times 48 % of the time: the GPU is full, and switching costs 8.3 %.
    assert found.tasks[0].time_s == pytest.approx(training.step(VGG).step_s * 3 * 0.4801 * 1.083, rel=1e-4)
    assert [switching_cost(count) for count in (0, 1, 2, 3, 4, 6)] == pytest.approx([0, 0, 0.035, 0.083, 0.245, 0.569])


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 7])
def test_mig_trainings(slices):
    """Trainings in MIG instances take the measured times, and longer than alone where none was measured."""
    known = training.mig_step_times_s()
    for workload in training.workloads("miso")[::3]:
        found = co_run(A100, share(f"mig-{slices}g", workload)).tasks[0].time_s
        if (workload, slices) in known:
            assert found == pytest.approx(max(known[workload, slices], known[workload, 7]))
        else:
            assert found > training.step(workload).step_s


@pytest.mark.parametrize("slices", [1, 2, 3, 4])
@pytest.mark.parametrize(("model", "batch_size"), [("resnet50", 8), ("vgg16", 4), ("mobilenetv2", 16)])
def test_mig_inference(model, batch_size, slices):
    """Inference in MIG instances has the measured slowdown, where no power limit slows either."""
    known = mig.measured_instance_times_s()
    measured = max(known[model, batch_size, size] for size in (1, 2, 3, 4, 7) if size >= slices)
    ways = [share(way, Workload(model, batch_size)) for way in ("mps", f"mig-{slices}g")]
    whole, found = (co_run(A100, each, power_cap_w=10_000).tasks[0] for each in ways)
    assert found.time_s / whole.time_s == pytest.approx(measured / known[model, batch_size, 7])
    assert found.uncertainty_parts == whole.uncertainty_parts


@pytest.mark.parametrize("model", ["resnet50", "bert_large", "gpt2", "resnet34"])
def test_smaller_instance(model):
    """Inference is never faster in a smaller MIG instance."""
    for batch_size in (1, 2, 3, 6, 24, 256):
        times_s = [
            co_run(A100, share(f"mig-{size}g", Workload(model, batch_size))).tasks[0].time_s for size in (1, 2, 3, 4, 7)
        ]
        assert times_s == sorted(times_s, reverse=True)


def test_partitions():
    """The partitions are those of the A100."""
    sets = mig.placeable()
    full = {one for one in sets if not any(tuple(sorted((*one, more), reverse=True)) in sets for more in mig.SLICES)}
    assert full == {
        (7,), (4, 3), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1), (2, 2, 2, 1),
        (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1),
    }  # fmt: skip
    assert mig.fits([1, 3, 2])
    assert not mig.fits([4, 4])
    assert not mig.fits([3, 3, 1])
    assert not mig.fits([7, 1])


class TestStarting:
    @pytest.fixture
    def device(self):
        return EmulatedDevice(A100)

    def test_second_way(self, device):
        """A GPU refuses a second way of sharing."""
        device.start_as(0, Resident(CNN, 100, "time-slice"))
        for other in ("mps", "mig-1g"):
            with pytest.raises(DeviceError, match="one way of sharing"):
                device.start_as(1, Resident(CNN, 100, other))
        device.start_as(1, Resident(CNN, 100, "time-slice"))
        device.stop(0)
        with pytest.raises(DeviceError, match="one way of sharing"):
            device.start(2, CNN, 50)
        device.stop(1)
        device.start(2, CNN, 50)
        assert set(device.read().residents) == {2}

    def test_mig_instances(self, device):
        """MIG instances that do not fit together are refused."""
        device.start_as(0, Resident(CNN, 100, "mig-4g"))
        with pytest.raises(DeviceError, match="fit together"):
            device.start_as(1, Resident(CNN, 100, "mig-4g"))
        device.start_as(1, Resident(CNN, 100, "mig-3g"))

    @pytest.mark.parametrize(("name", "found"), [("V100", "a GPU with MIG"), ("A10", "none"), ("A30", "4")])
    def test_no_mig(self, name, found):
        """MIG is refused on a GPU without it, and where its slices are not modelled."""
        resident = Resident(CNN, 100, "mig-1g")
        with pytest.raises(DeviceError, match=found):
            EmulatedDevice(gpu(name)).start_as(0, resident)
        with pytest.raises(InputError, match=found):
            co_run(gpu(name), [resident])

    def test_instance_memory(self, device):
        """A task larger than the memory of its instance is refused."""
        large = Workload("miso_cyclegan", 4, phase="training")
        with pytest.raises(DeviceError, match="17869 MiB, 10156 are free"):
            device.start_as(0, Resident(large, 100, "mig-1g"))
        device.start_as(0, Resident(large, 100, "mig-2g"))


class TestHolding:
    @pytest.fixture
    def device(self):
        device = EmulatedDevice(SXM2)
        device.start(0, RESNET50, 100, 100.0)
        return device

    def test_held_task(self, device):
        """A held task makes no progress and draws its own power."""
        own_s, power_w = device.read().residents[0].time_s, device.read().power_w
        device.hold(0, 1.0)
        assert device.read().residents[0].time_s == 1.0
        assert device.read().power_w == power_w
        assert device.next_event_s() == pytest.approx(100.0)
        device.advance(50.0)
        device.hold(0, 0.0)
        assert device.read().residents[0].time_s == own_s
        assert device.next_event_s() == pytest.approx(50.0 + 50 * own_s)
        device.hold(0, own_s / 2)
        assert device.read().residents[0].time_s == own_s

    def test_other_tasks(self, device):
        """A task stays held when others start or end."""
        device.hold(0, 0.3)
        device.start(1, ALEXNET, 100, 10.0)
        assert device.read().residents[0].time_s == pytest.approx(max(0.3, device.read().residents[0].time_s))
        assert device.read().residents[1].time_s != 0.3
