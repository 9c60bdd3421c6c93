"""The device contract, held by every device of the package."""

import pytest

from heshare.devices.emulated import EmulatedDevice
from heshare.devices.loading import Loading, LoadingDevice
from heshare.testing.devices import DeviceContract
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
        return LoadingDevice(EmulatedDevice(gpus()["A100"]), Loading())


class TestToyDevice(DeviceContract):
    @pytest.fixture
    def device(self):
        return ToyDevice(toy_gpu(clocks_mhz=(500, 750, 1000)))


class Forgetful(ToyDevice):
    """Loses the energy of idle time: the contract must notice."""

    def _pass(self, seconds):
        super()._pass(seconds)
        if not self._residents:
            self._energy_j = 0.0


def test_the_contract_notices_a_device_that_breaks_it():
    with pytest.raises(AssertionError):
        DeviceContract().test_integrates_power(Forgetful(toy_gpu()))
