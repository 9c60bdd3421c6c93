"""The first GPU of this machine, by `pytest -m gpu`: the contract with PyTorch workers, figures, `heshare doctor`.

With HESHARE_GPU_CLOCKS=1 and CAP_SYS_ADMIN, clocks are locked and unlocked as well; otherwise they are not changed.
"""

from __future__ import annotations

import math
import os
import time

import pytest
from support.counting_worker import ToyLauncher

from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.probe import has_sys_admin, probe
from heshare.testing.device_contract import DeviceContract
from heshare.world.workload import Workload

pytestmark = pytest.mark.gpu

# A machine may let its user lock clocks and still want them left alone: only who says so has them changed.
CLOCKS = os.environ.get("HESHARE_GPU_CLOCKS") == "1" and bool(has_sys_admin())


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class TestRealGpu(DeviceContract):
    light = Workload("mobilenet", 4)
    other = Workload("resnet50", 8)
    iterations = 2000.0
    energy_rtol = 0.6  # power moves while a window lasts; that energy is power times time is asked of windows below
    time_rtol = 0.3
    sets_clocks = CLOCKS

    @pytest.fixture
    def device(self, torch_uuid, state):
        from heshare.ops.workers.worker_pool import ProcessLauncher

        mps = MpsSession(torch_uuid)
        with NvmlDevice(torch_uuid, ProcessLauncher(mps), mps=mps, allow_clocks=CLOCKS, mps_clients=4) as device:
            if device.sharing != "mps":
                pytest.skip(f"shares need MPS: {mps.reason}")
            yield device


@pytest.fixture
def idle(uuid, state):
    with NvmlDevice(uuid, ToyLauncher()) as device:
        yield device


def test_readings(idle):
    """Readings are those of a GPU."""
    reading = idle.read()
    assert idle.power_kind in ("instant", "average")
    assert 5 < reading.power_w <= 1.2 * idle.gpu.tdp_w
    assert 0 < reading.sm_mhz <= idle.gpu.max_mhz
    assert 10 < reading.temperature_c < 100
    assert 0 < idle.free_mib() <= idle.gpu.memory_mib
    assert idle.provenance == "measured"


def test_energy(idle):
    """Energy is mean power times time."""
    before = idle.read()
    powers = []
    while idle.read().time_s - before.time_s < 5.0:
        powers.append(idle.read().power_w)
        time.sleep(0.02)
    after = idle.read()
    mean_w = (after.energy_j - before.energy_j) / (after.time_s - before.time_s)
    assert mean_w == pytest.approx(sum(powers) / len(powers), rel=0.15)


def test_gpm(idle):
    """GPM metrics are percentages or missing."""
    idle.read()
    time.sleep(0.3)
    reading = idle.read()
    for value in (reading.sm_util_pct, reading.dram_util_pct):
        assert math.isnan(value) or 0 <= value <= 100
    assert idle.facts()["gpm"] == (not math.isnan(reading.sm_util_pct))


def test_doctor(uuid, state):
    """`doctor` reports the GPU."""
    found = probe()
    assert found["gpus"][0]["uuid"] == uuid
    assert found["gpus"][0]["catalogue"] is not None
