"""The fake device fails when it is told to, and only then; what records must not take its faults for measurements."""

from __future__ import annotations

import math

import pytest

from heshare.devices.faults import BusyError, GpuLostError
from heshare.testing.fake import FakeDevice
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.workload import Workload

WORKLOAD = Workload("mobilenet", 4)


def test_it_fails_from_a_call_on_and_so_many_times() -> None:
    device = FakeDevice().fail("read", BusyError("busy"), after=1, times=2)
    assert device.read().power_w == 10.0
    for _ in range(2):
        with pytest.raises(BusyError):
            device.read()
    assert device.read().power_w == 10.0
    assert device.calls["read"] == 4


def test_a_lost_gpu_answers_nothing() -> None:
    device = FakeDevice().lose()
    for call in (device.read, device.next_event_s, lambda: device.advance(1.0), lambda: device.stop(0)):
        with pytest.raises(GpuLostError):
            call()
    with pytest.raises(GpuLostError):
        device.start(0, WORKLOAD, 100)


def test_throttling_is_told_and_the_counter_wraps() -> None:
    device = FakeDevice(ToyDevice(toy_gpu())).throttle(700.0).wrap_energy(15.0).blind("l2_util_pct", "temperature_c")
    assert device.read().throttled
    assert device.read().sm_mhz == 700.0
    device.set_clock(500)
    assert not device.read().throttled
    device.advance(2.0)
    reading = device.read()
    assert reading.energy_j == 5.0
    assert math.isnan(reading.l2_util_pct)
