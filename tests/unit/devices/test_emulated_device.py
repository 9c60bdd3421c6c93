"""Emulated GPU in virtual time: completions, energy, refusals, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.noise import NoiseModel
from heshare.shared.errors import DeviceError, InputError
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

T4 = catalogue.gpu("T4")
SMALL, LARGE = Workload("mobilenet", 4), Workload("vgg19", 8)


def test_order_of_ends():
    """Tasks that complete together are in order of start."""
    device = EmulatedDevice(T4)
    for task in (5, 2, 9):
        device.start(task, SMALL, 30, 10)
    assert device.advance(device.next_event_s()) == [5, 2, 9]


def test_stop():
    """Stopping returns the iterations done; time cannot go back."""
    device = EmulatedDevice(T4)
    device.start(0, LARGE, 100)
    assert device.next_event_s() == math.inf
    device.advance(10.0)
    assert device.stop(0) == pytest.approx(10.0 / co_run(T4, [Resident(LARGE, 100)]).tasks[0].time_s)
    with pytest.raises(DeviceError, match="no task 0"):
        device.stop(0)
    with pytest.raises(DeviceError, match="forward"):
        device.advance(4.0)


def test_throttling():
    """A reading has the clock, and whether a power limit lowers it."""
    device = EmulatedDevice(T4)
    device.start(0, LARGE, 100)
    free = device.read()
    assert free.throttled
    assert free.power_w == pytest.approx(T4.tdp_w)
    device.set_clock(585)
    slow = device.read()
    assert (slow.requested_mhz, slow.sm_mhz, slow.throttled) == (585, 585.0, False)
    with pytest.raises(InputError):
        device.set_clock(586)


def test_noise():
    """Noise has its size and does not change progress."""
    noisy = EmulatedDevice(T4, noise=NoiseModel(np.random.default_rng(3), time_cv=0.02, power_cv=0.01))
    noisy.start(0, LARGE, 100)
    exact = EmulatedDevice(T4)
    exact.start(0, LARGE, 100)
    readings = [noisy.read() for _ in range(2000)]
    times = np.array([reading.residents[0].time_s for reading in readings]) / exact.read().residents[0].time_s
    powers = np.array([reading.power_w for reading in readings]) / exact.read().power_w
    assert times.std() == pytest.approx(0.02, rel=0.1)
    assert powers.std() == pytest.approx(0.01, rel=0.1)
    assert times.mean() == pytest.approx(1.0, abs=0.002)
    noisy.advance(3.0)
    exact.advance(3.0)
    assert noisy.read().energy_j == exact.read().energy_j
    assert noisy.stop(0) == exact.stop(0)


def test_seed_of_noise():
    """Noise of a recording is determined by the seed and its label."""

    def read(label: str, seed: int) -> float:
        device = EmulatedDevice(T4, noise=NoiseModel(np.random.default_rng(seed)))
        device.start(0, LARGE, 100)
        device.read()
        device.restart(label)
        return device.read().power_w

    assert read("a", 3) == read("a", 3)
    assert len({read("a", 3), read("b", 3), read("a", 4)}) == 3
