"""The device contract on a live device: the real binding, over stand-ins for the NVML library, MPS and workers."""

from __future__ import annotations

import time

import pynvml
import pytest
from support import kill_drill
from support.counting_worker import ToyLauncher
from support.fakenvml import SONAME, FakeNvml, compiler

from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.shared.errors import DeviceError
from heshare.testing.device_contract import DeviceContract


class TestNvmlDevice(DeviceContract):
    iterations = 60.0
    energy_rtol = 0.05
    time_rtol = 0.1

    @pytest.fixture
    def device(self, tmp_path_factory, monkeypatch):
        if compiler() is None:
            pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
        folder = tmp_path_factory.mktemp("d", numbered=True)
        for name, value in kill_drill.prepare(folder).items():
            monkeypatch.setenv(name, value)
        fake = FakeNvml(folder / "lib" / SONAME, pynvml)
        fake.reset()
        mps = MpsSession("GPU-00000000-1111-2222-3333-444444444444")
        with NvmlDevice(0, ToyLauncher(), mps=mps, allow_clocks=True, mps_clients=5) as device:
            yield device
        fake.close()
        assert fake.get("samples") == 0

    def test_wall_time(self, device):
        """It advances in wall time."""
        began_s, said_s = time.monotonic(), device.read().time_s
        assert device.advance(said_s + 0.1) == []
        assert time.monotonic() - began_s >= 0.1
        with pytest.raises(DeviceError):
            device.advance(float("inf"))
