"""Starting and ending processes in virtual time."""

from __future__ import annotations

import pytest

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.live.loading_device import LoadingDevice, LoadingTimes
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload

RESNET = Workload("resnet50", 8)
H100 = gpu("H100")


def loading_device(**times):
    return LoadingDevice(EmulatedDevice(H100), LoadingTimes(**times))


def idle_power_w():
    return EmulatedDevice(H100).read().power_w


def test_begin_together():
    """Tasks that load together begin together."""
    device = loading_device(one_s=2.0, more_s=0.5)
    device.start(0, RESNET, 100, 10)
    device.start(1, RESNET, 100, 10)
    assert device.next_event_s() == 2.5
    assert device.advance(2.4) == []
    assert device.read().power_w == idle_power_w()
    assert {progress.done for progress in device.read().residents.values()} == {0.0}
    device.advance(2.5)
    assert device.read().power_w > idle_power_w()
    assert sorted(device.advance(device.next_event_s() + 1e-9)) == [0, 1]


def test_after_end():
    """A task loads `end_s` after the end of another."""
    device = loading_device(one_s=1.0, end_s=0.5)
    device.start(0, RESNET, 100, 1)
    ended_s = device.advance(1.0) or device.next_event_s()
    assert device.advance(ended_s) == [0]
    device.start(1, RESNET, 100, 1)
    assert device.next_event_s() == pytest.approx(ended_s + 1.5)


def test_process_end():
    """A task stays resident until its process has ended."""
    device = loading_device(exit_s=0.5)
    device.start(0, RESNET, 100, 1)
    last_s = device.next_event_s()
    assert device.advance(last_s) == []
    assert device.read().power_w == idle_power_w()
    assert device.read().residents[0].done == 1
    assert device.next_event_s() == pytest.approx(last_s + 0.5)
    assert device.advance(last_s + 0.5) == [0]
    assert device.read().residents == {}


def test_warm_up():
    """Warm-up draws power and counts no iterations."""
    device = loading_device(one_s=2.0, warm_s=0.5)
    device.start(0, RESNET, 100, 1000)
    assert device.next_event_s() == 1.5
    device.advance(1.5)
    assert device.read().power_w > idle_power_w()
    device.advance(2.0)
    plain = EmulatedDevice(H100)
    plain.start(0, RESNET, 100, 1000)
    assert device.next_event_s() - 2.0 == pytest.approx(plain.next_event_s())


def test_stop():
    """A task that loads is stopped without an iteration."""
    device = loading_device(one_s=2.0, warm_s=0.5)
    device.start(0, RESNET, 100, 10)
    device.advance(1.8)
    with pytest.raises(DeviceError, match="already"):
        device.start(0, RESNET, 100, 10)
    assert device.stop(0) == 0.0
    assert device.read().residents == {}
    assert device.next_event_s() == float("inf")


@pytest.mark.parametrize("bad", [{"one_s": -1.0}, {"more_s": float("nan")}])
def test_bad_times(bad):
    """Loading times that are negative or not finite are refused."""
    with pytest.raises(InputError):
        LoadingTimes(**bad)
