"""Every NVML call fails with every code: the device reads no zero and raises one message."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pynvml
import pytest
from support.counting_worker import ToyLauncher
from support.fakenvml import FakeNvml, functions

from heshare.ops.clocks import ClockLock
from heshare.ops.nvml import binding
from heshare.ops.nvml.binding import TABLE, NoPermissionError, NoReadingError, NotSupportedError, Nvml, NvmlError
from heshare.ops.nvml.card_health import CardHealth
from heshare.ops.nvml_device import NvmlDevice
from heshare.shared.errors import DeviceError
from heshare.world.workload import Workload

CODES = sorted({getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")})
INNER = ("field", "metric")
# Without effect on any measurement, so a failure is not reported: the end of NVML, the release of memory.
SILENT = ("nvmlShutdown", "nvmlGpmSampleFree", "nvmlEventSetFree")
# What takes its place is another source, or no check: health counters, and the largest power that can be.
OPTIONAL = (
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlEventSetCreate", "nvmlEventSetWait_v2",
    "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
)  # fmt: skip


def session(fake: FakeNvml) -> list[float]:
    """Make every kind of NVML call of HeShare once; return all numbers that were read."""
    with Nvml() as nvml:
        numbers = [float(nvml.count())]
        card = nvml.card("GPU-00000000-1111-2222-3333-444444444444")
        assert card.uuid().startswith("GPU-")
        assert card.processes() == ()
        health = CardHealth(card)
        try:
            assert health.read() == ()
        finally:
            health.close()
        clock = ClockLock(card, card.uuid())
        try:
            clock.lock(1200)
            clock.release()
        finally:
            fake.fail("nvmlDeviceResetGpuLockedClocks", 0)
            clock.close()
    with NvmlDevice(0, ToyLauncher()) as device:
        assert device.power_kind in ("instant", "average")
        reading = device.read()
        numbers += [reading.sm_mhz, reading.power_w, reading.temperature_c]
        numbers += [reading.sm_util_pct, reading.dram_util_pct]
        numbers += [device.free_mib(), device.gpu.tdp_w, device.gpu.memory_mib, *map(float, device.gpu.clocks_mhz)]
    return numbers


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heshare.ops.nvml.binding.WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(binding.Gpm, "LEAST_S", 0.0)
    # A process for each of some thousand devices would take minutes.
    monkeypatch.setattr("heshare.ops.nvml_device.CleanupProcess", lambda: SimpleNamespace(dismiss=lambda **_: None))


def _replaced_failures(function: str) -> type[NvmlError] | tuple[type[NvmlError], ...]:
    """Return the failures that change nothing.

    A card without instant power reports average power; who may not unlock a clock has not locked it.
    """
    if function == "nvmlDeviceResetGpuLockedClocks":
        return NoPermissionError
    power = function in ("nvmlDeviceGetFieldValues", "field")
    return (NotSupportedError, NoReadingError) if power else NotSupportedError


def make_fail(fake: FakeNvml, function: str, code: int) -> None:
    fake.reset()
    # These calls are made only if a newer or an older one is missing.
    if function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetCudaComputeCapability"):
        fake.set("instant", 0)
    if function == "nvmlDeviceGetTemperatureV":
        fake.fail("nvmlDeviceGetTemperature", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if function == "nvmlDeviceGetCurrentClocksThrottleReasons":
        fake.fail("nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    fake.fail(function, code)


def test_error_table() -> None:
    """The table of errors has every code of the binding."""
    assert set(CODES) == set(TABLE)


@pytest.mark.parametrize("function", [*functions(), *INNER])
def test_every_failure(fake: FakeNvml, function: str) -> None:
    """Whatever call fails with whatever code: one message with the code, or a missing number, never a zero."""
    messages = 0
    for code in CODES:
        make_fail(fake, function, code)
        try:
            numbers, message = session(fake), None
        except DeviceError as error:
            numbers, message = [], str(error)
        assert fake.called(function) > 0
        assert function in SILENT or fake.get("open") == fake.get("samples") == 0, "nothing is left open"
        if message is None:
            # The numbers are still measurements: none is zero, and a missing one is NaN.
            assert all(math.isnan(number) or number > 0 for number in numbers)
            assert function in (*SILENT, *OPTIONAL) or issubclass(TABLE[code][0], _replaced_failures(function))
        else:
            messages += 1
            assert f"NVML code {code}" in message
    assert function in (*SILENT, *OPTIONAL) or messages >= len(CODES) - 8


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        *[(name, 0) for name in ("power_mw", "energy_mj", "temperature_c", "sm_mhz", "memory_mib", "cores")],
        *[(name, 0) for name in ("limit_mw", "last_mhz", "memory_mhz")],
        *[("temperature_c", 255), ("free_mib", 1e6), ("power_mw", 0xFFFFFFFF), ("sm_pct", 250.0), ("dram_pct", -1.0)],
    ],
)
def test_impossible_reading(fake: FakeNvml, figure: str, value: float) -> None:
    """Readings that cannot be measurements are refused."""
    fake.set(figure, value)
    with pytest.raises(DeviceError, match="returned"):
        session(fake)


@pytest.mark.parametrize("name", ["TIMEOUT", "NOT_READY", "IN_USE", "GPU_IS_LOST"])
def test_transient(fake: FakeNvml, name: str) -> None:
    """After a transient code a call is repeated twice; then the reading fails, and the worker is ended at the close."""
    code, calls = getattr(pynvml, f"NVML_ERROR_{name}"), 1 if name == "GPU_IS_LOST" else 3
    launcher = ToyLauncher()
    with NvmlDevice(0, launcher) as device:
        device.start(0, Workload("mobilenet", 4), 100)
        fake.fail("nvmlDeviceGetClockInfo", code, times=calls - 1)
        assert device.read().sm_mhz == 1980
        before = fake.called("nvmlDeviceGetClockInfo")
        fake.fail("nvmlDeviceGetClockInfo", code)
        with pytest.raises(NvmlError, match=f"NVML code {code}"):
            device.read()
        assert fake.called("nvmlDeviceGetClockInfo") == before + calls
    assert [worker.stopped for worker in launcher.started] == [True]
    assert fake.get("open") == 0
