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
from heshare.ops.nvml_device import NvmlDevice
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
def test_usage_power_kind_follows_from_the_architecture(double, capability, kind) -> None:
    double.nvmlDeviceGetCudaComputeCapability.return_value = capability
    assert NvmlGpu(double, "handle", "GPU 0").usage_power_kind() == kind


def test_call_nvml_raises_not_supported_where_binding_and_library_do_not_match(double) -> None:
    del double.nvmlGpmQueryDeviceSupport
    assert NvmlGpu(double, "handle", "GPU 0").has_gpm() is False
    with pytest.raises(NotSupportedError):
        call_nvml(double, "GPU 0", "nvmlNoSuchFunction")
    double.nvmlDeviceGetName.side_effect = pynvml.NVMLLibraryMismatchError("other")
    with pytest.raises(NotSupportedError):
        NvmlGpu(double, "handle", "GPU 0").name()
    assert "12345" in str(fault("GPU 0", "nvmlInit", 12345))


def test_binding_refuses_another_package_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    with pytest.raises(NoDriverError, match="not NVIDIA's binding"):
        binding()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoDriverError, match="not installed"):
        binding()


def test_importing_heshare_does_not_import_the_binding() -> None:
    code = "import sys, heshare, heshare.ops.open_device, heshare.ops.nvml_device; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


NAMES = {
    "Tesla T4": "T4", "Tesla V100-PCIE-32GB": "V100", "Tesla V100-SXM2-16GB": "V100-SXM2", "NVIDIA L4": "L4",
    "NVIDIA A100-SXM4-80GB": "A100", "NVIDIA A100 80GB PCIe": "A100-PCIe", "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100-PCIe", "NVIDIA H200": "H200", "NVIDIA GeForce RTX 4090": "RTX-4090",
}  # fmt: skip


@pytest.mark.parametrize(("name", "like"), NAMES.items())
def test_match_finds_the_catalogue_card_of_a_name(name: str, like: str) -> None:
    card = gpus()[like]
    memory_mib = 1.01 * card.memory_mib
    found = match(name, memory_mib=memory_mib, clocks_mhz=(300, 600), cores=card.cuda_cores, tdp_w=99.0)
    assert found == replace(card, memory_mib=memory_mib, clocks_mhz=(300, 600), tdp_w=99.0)


@pytest.mark.parametrize(
    ("name", "memory_mib", "cores"),
    [
        ("NVIDIA GeForce RTX 3080", 10_240, 8_704),
        ("NVIDIA GH200 480GB", 97_871, 16_896),
        ("NVIDIA A100-SXM-64GB", 65_536, 6_912),
        ("NVIDIA H100 NVL", 95_830, 16_896),
        ("NVIDIA T400", 2_048, 384),
    ],
)
def test_match_refuses_an_unknown_card_and_names_the_file_to_add_it_to(
    name: str, memory_mib: float, cores: int
) -> None:
    with pytest.raises(InputError, match=r"Describe this card in data/gpus.csv"):
        match(name, memory_mib=memory_mib, clocks_mhz=(300, 600), cores=cores)


def test_nvml_device_is_opened_by_its_uuid_and_reports_its_facts(fake: FakeNvml) -> None:
    with NvmlDevice("GPU-00000000-1111-2222-3333-444444444444", ToyLauncher()) as device:
        facts = device.facts()
        assert facts["card"] == "NVIDIA H100 80GB HBM3"
        assert facts["driver"] == "999.99.99"
        assert facts["power_kind"] == "instant"
        assert facts["sharing"] == "time-slice"
        json.dumps(facts)
        reading = device.read()
        assert (reading.power_w, reading.temperature_c, reading.throttled) == (100.0, 41.0, False)
    fake.set("instant", 0)
    with NvmlDevice(0, ToyLauncher()) as device:
        assert device.power_kind == "average"
    with pytest.raises(DeviceError, match="not found"):
        NvmlDevice("GPU-none", ToyLauncher())


def test_read_marks_a_reading_under_a_limit_as_throttled(fake: FakeNvml) -> None:
    with NvmlDevice(0, ToyLauncher()) as device:
        fake.set("reasons", 0x20)
        assert device.read().throttled
        assert device._card.limits() == ("thermal limit (software)",)
        fake.set("reasons", 0x1)  # idle is no limit
        assert not device.read().throttled


@pytest.mark.parametrize(
    ("figure", "value", "found"),
    [("mig", 1, "MIG"), ("compute_mode", 2, "prohibited"), ("remap_failed", 1, "could not be remapped")],
)
def test_nvml_device_refuses_modes_that_forbid_measuring(fake: FakeNvml, figure: str, value: int, found: str) -> None:
    fake.set(figure, value)
    with pytest.raises(DeviceError, match=found):
        NvmlDevice(0, ToyLauncher())
    assert fake.get("open") == 0


@pytest.mark.parametrize("doom", ["unborn", "silent", "crashes"])
def test_nvml_device_raises_if_a_worker_fails_and_returns_no_reading(fake: FakeNvml, doom: str) -> None:
    launcher = ToyLauncher(doom=doom)
    with NvmlDevice(0, launcher, start_timeout_s=0.3) as device:
        if doom == "crashes":
            device.start(0, MOBILENET, 100)
            with pytest.raises(DeviceError, match="device-side assert"):
                device.advance(device.read().time_s + 5.0)
            with pytest.raises(DeviceError, match="device-side assert"):
                device.read()
            assert device.stop(0) == 5.0
        else:
            with pytest.raises(DeviceError, match="out of memory" if doom == "unborn" else "did nothing within"):
                device.start(0, MOBILENET, 100)
        assert device.read().residents == {}
    assert all(worker._process.returncode is not None for worker in launcher.started)


def test_set_clock_locks_only_if_allowed_and_close_unlocks(doubles) -> None:
    with NvmlDevice(0, ToyLauncher()) as device, pytest.raises(DeviceError, match="not allowed"):
        device.set_clock(1200)
    with NvmlDevice(0, ToyLauncher(), allow_clocks=True) as device:
        device.set_clock(1200)
        assert doubles.fake.get("locked_mhz") == 1200
        device.set_clock(1500)
        assert device.read().sm_mhz == 1500
    assert doubles.fake.get("locked_mhz") == 0
    assert locked_clocks() == []


def test_set_clock_is_refused_while_another_process_has_the_clock(doubles, monkeypatch) -> None:
    """Two recorders on one card would measure at each other's clock."""
    monkeypatch.setattr("heshare.ops.clocks._TAKE_OVER_S", 0.1)
    with NvmlDevice(0, ToyLauncher(), allow_clocks=True) as first:
        first.set_clock(1200)
        second = NvmlDevice(0, ToyLauncher(), allow_clocks=True)
        with second, pytest.raises(DeviceError, match="locked at 1200 MHz by process"):
            second.set_clock(1500)
        assert doubles.fake.get("locked_mhz") == 1200


def test_a_clock_that_close_cannot_give_back_is_given_back_later(doubles) -> None:
    """By the cleanup process, as soon as the driver lets it."""
    reset = "nvmlDeviceResetGpuLockedClocks"
    device = NvmlDevice(0, ToyLauncher(), allow_clocks=True)
    device.set_clock(1200)
    doubles.fake.fail(reset, 999)
    with pytest.raises(ClockLeftLockedError):
        device.close()
    assert doubles.fake.get("locked_mhz") == 1200
    doubles.fake.fail(reset, 0)
    assert until(lambda: doubles.traces() == [])


def test_exclusive_mode_needs_mps(fake: FakeNvml, mps_mode) -> None:
    """A second task on the card would fail without it."""
    fake.set("compute_mode", 3)
    with pytest.raises(DeviceError, match=r"exclusive process, and without MPS"):
        NvmlDevice(0, ToyLauncher())
    mps_mode("obeys")
    session = MpsSession("GPU-00000000-1111-2222-3333-444444444444")
    with NvmlDevice(0, ToyLauncher(), mps=session) as device:
        assert device.sharing == "mps"
    assert fake.get("open") == 0


def test_open_device_opens_an_emulated_or_a_live_device_by_name(fake: FakeNvml, tmp_path: Path, monkeypatch) -> None:
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


def test_has_sys_admin_reads_the_kernels_status_file(tmp_path: Path) -> None:
    status = tmp_path / "status"
    for mask, expected in (("0000000000200000", True), ("0000000000000000", False), ("000001ffffffffff", True)):
        status.write_text(f"Name:\tpython\nCapEff:\t{mask}\n")
        assert has_sys_admin(status) is expected
    status.write_text("Name:\tpython\n")
    assert has_sys_admin(status) is None
    assert has_sys_admin(tmp_path / "none") is None


def test_probe_reports_what_follows_from_the_readings(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("heshare.ops.probe.has_sys_admin", lambda: False)
    found = probe()
    lines = " ".join(found["follows"])
    assert found["gpus"][0]["catalogue"] == "H100"
    assert "--device nvml:0" in lines
    assert "No MPS" in lines
    assert "Clocks can be locked here only as root" in lines
    fake.set("gpm", 0)
    fake.set("persistence", 0)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", 3)
    fake.set("mig", 1)
    monkeypatch.setattr("heshare.ops.probe.has_sys_admin", lambda: True)
    lines = " ".join(probe()["follows"])
    counter = "nvmlDeviceGetTotalEnergyConsumption failed"
    for word in ("GPM", "persistence", counter, "MIG", "Clocks can be locked (root"):
        assert word in lines
    assert "--device nvml:0" not in lines


def doctor() -> int:
    return CliRunner().invoke(app, ["doctor"]).exit_code


def test_doctor_lists_what_it_finds_whichever_nvml_function_fails(fake: FakeNvml) -> None:
    """Facts that are missing are no error of its own; without any GPU there is one."""
    for function in functions():
        fake.reset()
        fake.fail(function, 15)
        found = probe()
        assert found["follows"]
        assert doctor() == bool(found["obstacles"])
        assert found["obstacles"] or found["gpus"]


@pytest.mark.parametrize(
    ("figure", "value"), [("count", 0), ("mig", 1), ("compute_mode", 2), ("compute_mode", 3), ("remap_failed", 1)]
)
def test_doctor_exits_with_1_where_a_gpu_cannot_be_used(fake: FakeNvml, tmp_path, monkeypatch, figure, value) -> None:
    """It is a check of a node, before a job gets it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor() == 0
    fake.set(figure, value)
    (obstacle,) = probe()["obstacles"]
    assert obstacle.endswith(".")
    assert doctor() == 1


def test_doctor_exits_with_0_for_exclusive_mode_with_mps(fake: FakeNvml, mps_mode) -> None:
    """All clients are then those of one server."""
    mps_mode("obeys")
    fake.set("compute_mode", 3)
    assert doctor() == 0


@pytest.mark.parametrize("code", [9, 12, 18], ids=["driver not loaded", "no library", "versions differ"])
def test_doctor_exits_with_1_without_a_driver_that_works(fake: FakeNvml, code: int) -> None:
    """And says which of them it is."""
    fake.fail("nvmlInitWithFlags", code)
    assert f"NVML code {code}" in probe()["obstacles"][0]
    assert doctor() == 1


def test_doctor_tells_of_a_clock_that_is_held_low(fake: FakeNvml) -> None:
    """Not of one that is low because nothing runs, or because a limit is reached."""
    fake.set("sm_mhz", 210)
    for reasons, told in ((0, True), (1, False), (4, False)):
        fake.set("reasons", reasons)
        assert any("its clock is 210 of 1980 MHz" in line for line in probe()["follows"]) is told


def test_doctor_reads_the_stand_in_library_through_the_real_binding(library: Path) -> None:
    failing = {"FAKENVML_FAIL": "nvmlDeviceGetPersistenceMode=3,set:temperature_c=55"}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), **failing}
    command = [sys.executable, "-m", "heshare", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert gpu["temperature_c"] == 55
    assert gpu["persistence"] is None
    assert "NVML code 3" in gpu["refused"]["persistence"]
