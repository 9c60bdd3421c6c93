"""The faulty device of the tests: it fails at the calls that it is set to fail at, and only there."""

from __future__ import annotations

import math

import pytest
from support.faulty_device import FaultyDevice

from heshare.ops.nvml.binding import BusyError, GpuLostError
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.workload import Workload

WORKLOAD = Workload("mobilenet", 4)


def test_fail_raises_after_a_number_of_calls_for_a_number_of_times() -> None:
    device = FaultyDevice().fail("read", BusyError("busy"), after=1, times=2)
    assert device.read().power_w == 10.0
    for _ in range(2):
        with pytest.raises(BusyError):
            device.read()
    assert device.read().power_w == 10.0
    assert device.calls["read"] == 4


def test_lose_makes_every_call_raise() -> None:
    device = FaultyDevice().lose()
    for call in (device.read, device.next_event_s, lambda: device.advance(1.0), lambda: device.stop(0)):
        with pytest.raises(GpuLostError):
            call()
    with pytest.raises(GpuLostError):
        device.start(0, WORKLOAD, 100)


def test_throttle_wrap_energy_and_blind_change_the_readings() -> None:
    device = FaultyDevice(ToyDevice(toy_gpu())).throttle(700.0).wrap_energy(15.0).blind("l2_util_pct", "temperature_c")
    assert device.read().throttled
    assert device.read().sm_mhz == 700.0
    device.set_clock(500)
    assert not device.read().throttled
    device.advance(2.0)
    reading = device.read()
    assert reading.energy_j == 5.0
    assert math.isnan(reading.l2_util_pct)
