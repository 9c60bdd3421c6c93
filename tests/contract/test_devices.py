"""The device contract on every device of the package."""

import pytest

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.live.loading_device import LoadingDevice, LoadingTimes
from heshare.testing.device_contract import DeviceContract
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.catalogue import gpus


class TestEmulatedDevice(DeviceContract):
    @pytest.fixture(params=list(gpus()))
    def device(self, request):
        return EmulatedDevice(gpus()[request.param])


class TestEmulatedDeviceUnderACap(DeviceContract):
    @pytest.fixture
    def device(self):
        return EmulatedDevice(gpus()["A100"], power_cap_w=150.0)


class TestLoadingDevice(DeviceContract):
    @pytest.fixture
    def device(self):
        return LoadingDevice(EmulatedDevice(gpus()["A100"]), LoadingTimes())


class TestToyDevice(DeviceContract):
    @pytest.fixture
    def device(self):
        return ToyDevice(toy_gpu(clocks_mhz=(500, 750, 1000)))


class WithoutIdleEnergy(ToyDevice):
    """A device whose counter loses the energy of idle time."""

    def _pass(self, to_s):
        super()._pass(to_s)
        if not self._running:
            self._energy_j = 0.0


def test_wrong_counter():
    """The contract fails on a device with a wrong energy counter."""
    with pytest.raises(AssertionError):
        DeviceContract().test_integrates_power(WithoutIdleEnergy(toy_gpu()))
