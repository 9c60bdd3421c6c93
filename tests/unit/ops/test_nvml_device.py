"""NVML: calls of a double with the signatures of the binding, and the real binding over the stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import pynvml
import pytest
from support.counting_worker import ToyLauncher
from support.fakenvml import FakeNvml, functions
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.clocks import ClockLeftLockedError, locked_clocks
from heshare.ops.mps import MpsSession
from heshare.ops.nvml.binding import NoDriverError, NotSupportedError, NvmlGpu, binding, call_nvml, fault
from heshare.ops.nvml_device import MeterWarning, NvmlDevice
from heshare.ops.open_device import open_device, opened
from heshare.ops.probe import has_sys_admin, match, probe
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpus
from heshare.world.workload import Workload

MOBILENET = Workload("mobilenet", 4)


@pytest.fixture
def double():
    """The binding with the signatures of the real one, so that a call that it would not take fails here."""
    fake_binding = create_autospec(pynvml)
    for name in dir(pynvml):
        if name.startswith(("NVML_", "NVMLError", "NVMLLibrary")):
            setattr(fake_binding, name, getattr(pynvml, name))
    return fake_binding


@pytest.mark.parametrize(("capability", "kind"), [((7, 5), "instant"), ((8, 0), "instant"), ((8, 6), "average")])
def test_power_kind(double, capability, kind) -> None:
    """Whether power is instant or an average follows from the architecture."""
    double.nvmlDeviceGetCudaComputeCapability.return_value = capability
    assert NvmlGpu(double, "handle", "GPU 0").usage_power_kind() == kind


def test_mismatch(double) -> None:
    """Functions that binding or library lack are not supported."""
    del double.nvmlGpmQueryDeviceSupport
    assert NvmlGpu(double, "handle", "GPU 0").has_gpm() is False
    with pytest.raises(NotSupportedError):
        call_nvml(double, "GPU 0", "nvmlNoSuchFunction")
    double.nvmlDeviceGetName.side_effect = pynvml.NVMLLibraryMismatchError("other")
    with pytest.raises(NotSupportedError):
        NvmlGpu(double, "handle", "GPU 0").name()
    assert "12345" in str(fault("GPU 0", "nvmlInit", 12345))


def test_wrong_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package of the name pynvml is refused, as is none."""
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    with pytest.raises(NoDriverError, match="not NVIDIA's binding"):
        binding()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoDriverError, match="not installed"):
        binding()


NAMES = {
    "Tesla T4": "T4", "Tesla V100-SXM2-16GB": "V100-SXM2", "NVIDIA A100 80GB PCIe": "A100-PCIe",
    "NVIDIA H100 80GB HBM3": "H100", "NVIDIA GeForce RTX 4090": "RTX-4090",
}  # fmt: skip


@pytest.mark.parametrize(("name", "like"), NAMES.items())
def test_match(name: str, like: str) -> None:
    """A card's name finds its entry of the catalogue."""
    card = gpus()[like]
    memory_mib = 1.01 * card.memory_mib
    found = match(name, memory_mib=memory_mib, clocks_mhz=(300, 600), cores=card.cuda_cores, tdp_w=99.0)
    assert found == replace(card, memory_mib=memory_mib, clocks_mhz=(300, 600), tdp_w=99.0)


@pytest.mark.parametrize(
    ("name", "memory_mib", "cores"),
    [
        ("NVIDIA GeForce RTX 3080", 10_240, 8_704),
        ("NVIDIA H100 80GB HBM3", 81_559, 1),
        ("NVIDIA A100-SXM-64GB", 65_536, 6_912),
        ("NVIDIA H100 NVL", 95_830, 16_896),
    ],
)
def test_unknown_card(name: str, memory_mib: float, cores: int) -> None:
    """An unknown card is refused, with the file to add it to."""
    with pytest.raises(InputError, match=r"gpus\.csv"):
        match(name, memory_mib=memory_mib, clocks_mhz=(300, 600), cores=cores)


def test_facts(fake: FakeNvml) -> None:
    """A device is opened by its UUID and reports its facts."""
    with NvmlDevice("GPU-00000000-1111-2222-3333-444444444444", ToyLauncher()) as device:
        facts = device.facts()
        assert facts["card"] == "NVIDIA H100 80GB HBM3"
        assert facts["driver"] == "999.99.99"
        assert facts["power_kind"] == "instant"
        assert facts["sharing"] == "time-slice"
        json.dumps(facts)
        reading = device.read()
        assert (reading.power_w, reading.temperature_c, reading.throttled) == (100.0, 41.0, False)
        for reasons, limits in ((0x20, ("thermal limit (software)",)), (0x1, ())):  # idle is no limit
            fake.set("reasons", reasons)
            assert device.read().throttled is bool(limits)
            assert device._card.limits() == limits
    fake.set("instant", 0)
    with NvmlDevice(0, ToyLauncher()) as device:
        assert device.power_kind == "average"
    with pytest.raises(DeviceError, match="not found"):
        NvmlDevice("GPU-none", ToyLauncher())


@pytest.mark.parametrize("failure", ["fails-at-start", "silent", "crashes"])
def test_worker_fails(fake: FakeNvml, failure: str) -> None:
    """A worker that fails raises its error and gives no reading."""
    launcher = ToyLauncher(failure=failure)
    with NvmlDevice(0, launcher, start_timeout_s=0.3 if failure == "silent" else 60.0) as device:
        if failure == "crashes":
            device.start(0, MOBILENET, 100)
            for wait in (lambda: device.advance(device.read().time_s + 60.0), device.read):
                with pytest.raises(DeviceError, match="device-side assert"):
                    wait()
            assert device.stop(0) == 5.0
        else:
            with pytest.raises(DeviceError, match=r"out of memory|did nothing within"):
                device.start(0, MOBILENET, 100)
        assert device.read().residents == {}
    assert all(worker.stopped for worker in launcher.started)


def test_set_clock(doubles) -> None:
    """A clock is locked only if allowed; `close` unlocks it, or else the cleanup process does."""
    with NvmlDevice(0, ToyLauncher()) as device, pytest.raises(DeviceError, match="not allowed"):
        device.set_clock(1200)
    device = NvmlDevice(0, ToyLauncher(), allow_clocks=True)
    device.set_clock(1200)
    assert doubles.fake.get("locked_mhz") == 1200
    device.set_clock(1500)
    assert device.read().sm_mhz == 1500

    reset = "nvmlDeviceResetGpuLockedClocks"
    doubles.fake.fail(reset, 999)
    with pytest.raises(ClockLeftLockedError):
        device.close()
    assert doubles.fake.get("locked_mhz") == 1500
    doubles.fake.fail(reset, 0)
    assert until(lambda: doubles.traces() == [])
    with NvmlDevice(0, ToyLauncher(), allow_clocks=True) as device:
        device.set_clock(1200)
    assert doubles.fake.get("locked_mhz") == 0
    assert locked_clocks() == []


def test_exclusive_mode(fake: FakeNvml, mps_mode) -> None:
    """A GPU in exclusive mode is used with MPS."""
    fake.set("compute_mode", 3)
    mps_mode("works")
    session = MpsSession("GPU-00000000-1111-2222-3333-444444444444")
    with NvmlDevice(0, ToyLauncher(), mps=session) as device:
        assert device.sharing == "mps"
    assert fake.get("open") == 0
    assert doctor() == 0


def test_open_device(fake: FakeNvml, tmp_path: Path, monkeypatch) -> None:
    """A device is opened by name, emulated or live."""
    assert open_device("emulated:t4").gpu.name == "T4"
    with opened("emulated:A100") as device:
        assert device.provenance == "emulated"
    for text in ("", "emulated", "emulated:", "cuda:0", "emulated:T5"):
        with pytest.raises(InputError):
            open_device(text)
    monkeypatch.setenv("PATH", str(tmp_path))
    with opened("nvml:0") as device:
        assert (device.provenance, device.gpu.name) == ("measured", "H100")
    assert fake.get("open") == 0
    with pytest.raises(DeviceError):
        open_device("nvml:7")


def test_constant_counter(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the energy counter stands still, energy is the integral of power, with a note: 300 W for a minute."""
    fake.set("power_mw", 300_000)
    monkeypatch.setattr(NvmlGpu, "energy_j", lambda card: 5_000.0)
    with NvmlDevice(0, ToyLauncher()) as device:
        monkeypatch.setattr(device, "_now_s", lambda: 60.0)
        with pytest.warns(MeterWarning, match="stood still for 60 s"):
            reading = device.read()
    assert reading.energy_j == pytest.approx(18_000.0)


def test_sys_admin(tmp_path: Path) -> None:
    """CAP_SYS_ADMIN is read from the kernel's status file."""
    status = tmp_path / "status"
    for mask, expected in (("0000000000200000", True), ("0000000000000000", False), ("000001ffffffffff", True)):
        status.write_text(f"Name:\tpython\nCapEff:\t{mask}\n")
        assert has_sys_admin(status) is expected
    status.write_text("Name:\tpython\n")
    assert has_sys_admin(status) is None
    assert has_sys_admin(tmp_path / "none") is None


def test_probe(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`probe` reports what follows from the readings."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("heshare.ops.probe.has_sys_admin", lambda: False)
    found = probe()
    lines = " ".join(found["follows"])
    assert found["gpus"][0]["catalogue"] == "H100"
    for word in ("--device nvml:0", "No MPS", "only as root"):
        assert word in lines

    fake.set("gpm", 0)
    fake.set("persistence", 0)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", 3)
    fake.set("mig", 1)
    monkeypatch.setattr("heshare.ops.probe.has_sys_admin", lambda: True)
    lines = " ".join(probe()["follows"])
    for word in ("GPM", "persistence", "nvmlDeviceGetTotalEnergyConsumption", "MIG", "can be locked"):
        assert word in lines
    assert "--device nvml:0" not in lines

    # A clock that is low without a reason of the card is held by somebody.
    fake.reset()
    fake.set("sm_mhz", 210)
    for reasons, told in ((0, True), (1, False), (4, False)):
        fake.set("reasons", reasons)
        assert any("210 of 1980 MHz" in line for line in probe()["follows"]) is told


def doctor() -> int:
    return CliRunner().invoke(app, ["doctor"]).exit_code


def test_doctor_failures(fake: FakeNvml) -> None:
    """`doctor` lists what it finds, whichever NVML function fails."""
    for function in functions():
        fake.reset()
        fake.fail(function, 15)
        found = probe()
        assert found["follows"]
        assert doctor() == bool(found["obstacles"])
        assert found["obstacles"] or found["gpus"]
    fake.reset()
    fake.fail("nvmlInitWithFlags", 18)  # the versions of driver and library differ
    assert "NVML code 18" in probe()["obstacles"][0]


@pytest.mark.parametrize(
    ("figure", "value", "found"),
    [
        ("count", 0, "GPU 0"),
        ("mig", 1, "MIG"),
        ("compute_mode", 2, "prohibited"),
        ("compute_mode", 3, "without MPS"),
        ("remap_failed", 1, "could not be remapped"),
    ],
)
def test_obstacles(fake: FakeNvml, tmp_path, monkeypatch, figure, value, found) -> None:
    """A GPU that cannot be used is refused, and `doctor` exits with 1."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor() == 0
    fake.set(figure, value)
    (obstacle,) = probe()["obstacles"]
    assert obstacle
    assert doctor() == 1
    with pytest.raises(DeviceError, match=found):
        NvmlDevice(0, ToyLauncher())
    assert fake.get("open") == 0


@pytest.mark.slow
def test_doctor_process(library: Path) -> None:
    """`doctor --json` in a process of its own reads the library through the real binding."""
    failing = {"FAKENVML_FAIL": "nvmlDeviceGetPersistenceMode=3,set:temperature_c=55"}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), **failing}
    command = [sys.executable, "-m", "heshare", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert gpu["temperature_c"] == 55
    assert gpu["persistence"] is None
    assert "NVML code 3" in gpu["refused"]["persistence"]
