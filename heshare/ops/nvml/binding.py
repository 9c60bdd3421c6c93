"""NVML binding: readings of a GPU in the package's units, error classes, and GPM metrics (Hopper and later).

The only module that imports `pynvml` (`nvidia-ml-py`). `call_nvml` maps NVML's error codes and repeats transient
failures. A value that cannot be a measurement, such as a power of zero, raises `NoReadingError`.
"""

import math
import time
from contextlib import suppress
from typing import Any

from heshare.shared.errors import DeviceError


class NvmlError(DeviceError):
    """An NVML call failed."""


class NoDriverError(NvmlError):
    """There is no NVIDIA driver, no NVML library, or their versions differ."""


class NotSupportedError(NvmlError):
    """This card or this driver does not support it."""


class NoPermissionError(NvmlError):
    """This user has no permission for it."""


class NoSuchGpuError(NvmlError):
    """No GPU has this index or UUID."""


class GpuLostError(NvmlError):
    """The GPU is lost or must be reset; measurements since then are invalid."""


class BusyError(NvmlError):
    """A transient failure, also after repeats."""


class NoReadingError(NvmlError):
    """NVML returned a value that is no measurement."""


class NoReplyError(NvmlError):
    """An NVML call has not returned within its deadline; the state of the GPU is unknown."""


_OURS = "This is a defect of HeShare or of the NVML binding: report the call, the code and the driver's version."
_RESET = "Stop what uses the GPU, reset it or restart the machine, and record again what was measured since."
_DRIVER = "Install NVIDIA's driver, or start the container with the GPUs passed through."

# NVML's return codes are part of its binary interface and never change their meaning.
TABLE: dict[int, tuple[type[NvmlError], str, str]] = {
    1: (NvmlError, "NVML is not initialised", _OURS),
    2: (NvmlError, "invalid argument", _OURS),
    3: (NotSupportedError, "not supported by this card or driver", "Do without it, or use a newer driver or card."),
    4: (NoPermissionError, "no permission", "Run as root, or give the process or container CAP_SYS_ADMIN."),
    5: (NvmlError, "already initialised", _OURS),
    6: (NoSuchGpuError, "not found", "`heshare doctor` lists the GPUs of this machine."),
    7: (NvmlError, "the buffer is too small", _OURS),
    8: (GpuLostError, "the external power cables are not attached properly", "Check the card's power cables."),
    9: (NoDriverError, "the driver is not loaded", _DRIVER),
    10: (BusyError, "timed out", "Try again when the machine is quieter."),
    11: (GpuLostError, "the kernel found an interrupt problem with the GPU", _RESET),
    12: (NoDriverError, "the NVML library libnvidia-ml.so.1 was not found", _DRIVER),
    13: (NotSupportedError, "the driver's NVML does not have this function", "Use a newer driver."),
    14: (NvmlError, "the card's infoROM is corrupted", "Have the card checked."),
    15: (GpuLostError, "the GPU has fallen off the bus or is otherwise lost", _RESET),
    16: (GpuLostError, "the GPU must be reset", _RESET),
    17: (NoPermissionError, "the operating system or its cgroup blocked the request", "Let the container use the GPU."),
    18: (NoDriverError, "the driver and the NVML library have different versions", "Restart the machine."),
    19: (BusyError, "the GPU is in use", "End what uses the GPU, then try again."),
    20: (BusyError, "not enough memory for the request", "Free host memory, then try again."),
    21: (NoReadingError, "no data", "Try again; if it stays so, this card does not report it."),
    22: (NotSupportedError, "not available with ECC memory and vGPU", "Do without it."),
    23: (BusyError, "a resource other than memory ran out", "End what uses the GPU, then try again."),
    24: (NotSupportedError, "the card does not offer this frequency", "Choose a clock of the card's grid."),
    25: (NotSupportedError, "the driver expects another structure version", "Use a newer driver or nvidia-ml-py."),
    26: (NotSupportedError, "the function is deprecated", "Use a newer release of HeShare."),
    27: (BusyError, "the system is not ready", "Try again in a moment."),
    28: (NoSuchGpuError, "no GPU was found", "`heshare doctor` lists the GPUs of this machine."),
    29: (NvmlError, "the GPU is in a state that does not allow it", "Reset the GPU or undo its special mode."),
    30: (NotSupportedError, "this type of reset is not supported", "Reset in another way."),
    999: (NvmlError, "an internal driver error", _RESET),
}

TRANSIENT = frozenset({10, 19, 27})
"""Codes of transient failures, after which a call is repeated."""


def fault(device: str, call: str, code: int) -> NvmlError:
    """Return the exception for a return code of NVML; a plain `NvmlError` for a code that is not in the table."""
    kind, found, action = TABLE.get(code, (NvmlError, "a return code unknown to this release", _OURS))
    return kind(f"{device}: {call} failed: {found} (NVML code {code}). {action}")


def no_reading(device: str, call: str, value: object, expected: str) -> NoReadingError:
    action = "Nothing is recorded from it; if it stays so, this card does not report it."
    return NoReadingError(f"{device}: {call} returned {value}; expected {expected}. {action}")


WAITS_S = (0.01, 0.05)
"""Pauses before the repeats of a call with a transient failure, s; after the last one the failure is final."""

_FUNCTION_NOT_FOUND = 13
_LIMITS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit (software)",
    0x40: "thermal limit (hardware)",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability limit",
}
_IDLE = 0x1
MOST_POWER = 1.5
"""A power reading above this multiple of the largest power limit is invalid."""
_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def binding() -> Any:
    """Return the module `pynvml`, after a check that it is NVIDIA's binding (`nvidia-ml-py`)."""
    try:
        import pynvml
    except ImportError as error:
        raise NoDriverError("NVML: nvidia-ml-py is not installed. Install it: pip install nvidia-ml-py.") from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise NoDriverError(
            "NVML: the module pynvml is not NVIDIA's binding. Uninstall the package pynvml and install nvidia-ml-py."
        )
    return pynvml


def call_nvml(nvml: Any, device: str, call: str, *arguments: Any) -> Any:
    """Call a function of the binding; repeat it after transient failures, see `WAITS_S`."""
    function = getattr(nvml, call, None)
    if function is None:
        raise fault(device, call, _FUNCTION_NOT_FOUND)
    for wait_s in (*WAITS_S, None):
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            if error.value not in TRANSIENT or wait_s is None:
                raise fault(device, call, error.value) from error
            time.sleep(wait_s)
        except nvml.NVMLLibraryMismatchError as error:
            raise fault(device, call, _FUNCTION_NOT_FOUND) from error
    raise AssertionError("unreachable")


class Nvml:
    """An initialised NVML library; raises `NvmlError` if there is none that works."""

    def __init__(self) -> None:
        self.binding = binding()
        call_nvml(self.binding, "NVML", "nvmlInit")
        self._open = True

    def driver(self) -> str:
        return _ask_text(self.binding, "NVML", "nvmlSystemGetDriverVersion")

    def count(self) -> int:
        return int(call_nvml(self.binding, "NVML", "nvmlDeviceGetCount"))

    def card(self, which: int | str) -> "NvmlGpu":
        label = f"GPU {which}"
        call = "nvmlDeviceGetHandleByIndex" if isinstance(which, int) else "nvmlDeviceGetHandleByUUID"
        return NvmlGpu(self.binding, call_nvml(self.binding, label, call, which), label)

    def close(self) -> None:
        """Shut NVML down; errors are ignored. Idempotent."""
        if self._open:
            self._open = False
            with suppress(self.binding.NVMLError):
                self.binding.nvmlShutdown()

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NvmlGpu:
    """One GPU, with readings in the package's units.

    Every method raises `NvmlError` if NVML fails or returns a value that is no measurement.
    """

    def __init__(self, nvml: Any, handle: Any, label: str) -> None:
        self.binding = nvml
        self._handle = handle
        self._most_w: float | None = None
        self.label = label

    def call(self, function: str, *arguments: Any) -> Any:
        return call_nvml(self.binding, self.label, function, self._handle, *arguments)

    def name(self) -> str:
        """Return the vendor's name, such as `NVIDIA H100 80GB HBM3`."""
        return _ask_text(self.binding, self.label, "nvmlDeviceGetName", self._handle)

    def uuid(self) -> str:
        """Return the UUID, such as `GPU-5a2c...`, for CUDA_VISIBLE_DEVICES."""
        return _ask_text(self.binding, self.label, "nvmlDeviceGetUUID", self._handle)

    def cores(self) -> int:
        return int(self._positive("nvmlDeviceGetNumGpuCores"))

    def offered_mhz(self) -> tuple[int, ...]:
        """Return the SM clocks that can be set at the top memory clock, ascending, MHz."""
        memory_mhz = self._list("nvmlDeviceGetSupportedMemoryClocks")
        return tuple(sorted(set(self._list("nvmlDeviceGetSupportedGraphicsClocks", max(memory_mhz)))))

    def sm_mhz(self) -> float:
        return self._positive("nvmlDeviceGetClockInfo", self.binding.NVML_CLOCK_SM)

    def limits(self) -> tuple[str, ...]:
        """Return the limits (throttle reasons) that reduce the clock below the request now."""
        bits = self._reasons()
        return tuple(name for bit, name in _LIMITS.items() if bits & bit)

    def idles(self) -> bool:
        """Return whether the clock is low because nothing runs."""
        return bool(self._reasons() & _IDLE)

    def instant_power_w(self) -> float:
        """Return the instant board power, W, if the card reports it."""
        call = "nvmlDeviceGetFieldValues"
        field = self.call(call, [self.binding.NVML_FI_DEV_POWER_INSTANT])[0]
        if field.nvmlReturn != self.binding.NVML_SUCCESS:
            raise fault(self.label, f"{call}(POWER_INSTANT)", field.nvmlReturn)
        if not 0 <= field.valueType < len(_VALUE):
            raise no_reading(self.label, call, f"type {field.valueType}", "a number")
        return self._plausible_power_w(getattr(field.value, _VALUE[field.valueType]), call)

    def usage_power_w(self) -> float:
        """Return the board power of `nvmlDeviceGetPowerUsage`, W (see `usage_power_kind`)."""
        call = "nvmlDeviceGetPowerUsage"
        return self._plausible_power_w(self.call(call), call)

    def usage_power_kind(self) -> str:
        """Return the kind of `usage_power_w`: `instant` up to the A100, `average` (over 1 s) on later cards."""
        major, minor = self.call("nvmlDeviceGetCudaComputeCapability")
        return "instant" if (major, minor) <= (8, 0) else "average"

    def energy_j(self) -> float:
        """Return the energy since the driver was loaded, J."""
        return self._positive("nvmlDeviceGetTotalEnergyConsumption") / 1e3

    def temperature_c(self) -> float:
        sensor = self.binding.NVML_TEMPERATURE_GPU
        try:
            call, value = "nvmlDeviceGetTemperature", self.call("nvmlDeviceGetTemperature", sensor)
        except NotSupportedError:
            call, value = "nvmlDeviceGetTemperatureV", self.call("nvmlDeviceGetTemperatureV", sensor)
        if not 0 < value < 150:
            raise no_reading(self.label, call, value, "degrees Celsius above 0 and below 150")
        return float(value)

    def memory_mib(self) -> tuple[float, float]:
        """Return the total and the free memory of the GPU, MiB."""
        call = "nvmlDeviceGetMemoryInfo"
        info = self.call(call)
        if not 0 <= info.free <= info.total or info.total == 0:
            raise no_reading(self.label, call, f"{info.free} B free of {info.total} B", "a part of a whole")
        return info.total / 2**20, info.free / 2**20

    def power_limit_w(self) -> float:
        return self._positive("nvmlDeviceGetPowerManagementLimit") / 1e3

    def largest_limit_w(self) -> float:
        """Return the largest power limit that can be set, W, or the present limit if the card does not report it."""
        try:
            most_mw = float(self.call("nvmlDeviceGetPowerManagementLimitConstraints")[1])
        except NotSupportedError:
            return self.power_limit_w()
        return max(most_mw / 1e3, self.power_limit_w())

    def persistent(self) -> bool:
        """Return whether the driver stays loaded when the GPU is not used."""
        return bool(self.call("nvmlDeviceGetPersistenceMode"))

    def compute_mode(self) -> str:
        """Return `default`, `exclusive process`, `prohibited` or `exclusive thread`."""
        mode = self.call("nvmlDeviceGetComputeMode")
        return _COMPUTE_MODES.get(mode, f"mode {mode}")

    def mig(self) -> bool:
        try:
            return bool(self.call("nvmlDeviceGetMigMode")[0])
        except NotSupportedError:
            return False

    def remap_failed(self) -> bool:
        """Return whether a memory row could not be remapped: the card must be repaired."""
        try:
            return bool(self.call("nvmlDeviceGetRemappedRows")[3])
        except NotSupportedError:
            return False

    def obstacle(self) -> str:
        """Return the reason why no job can run on it, else an empty text."""
        if self.mig():
            return "it is divided into MIG slices"
        if self.compute_mode() == "prohibited":
            return "its compute mode is prohibited"
        return "a memory row could not be remapped, so it needs a repair" if self.remap_failed() else ""

    def has_gpm(self) -> bool:
        """Return whether it supports GPM metrics (Hopper and later)."""
        try:
            return bool(self.call("nvmlGpmQueryDeviceSupport").isSupportedDevice)
        except NotSupportedError:
            return False

    def processes(self) -> tuple[tuple[int, float], ...]:
        """Return the processes with a CUDA context on it and the memory of each, MiB (0 if unknown)."""
        found = self.call("nvmlDeviceGetComputeRunningProcesses")
        return tuple((int(one.pid), float(one.usedGpuMemory or 0) / 2**20) for one in found)

    def lock_clock(self, sm_mhz: int) -> None:
        """Lock the SM clock at `sm_mhz` until `unlock_clock`; needs root or CAP_SYS_ADMIN."""
        self.call("nvmlDeviceSetGpuLockedClocks", sm_mhz, sm_mhz)

    def unlock_clock(self) -> None:
        self.call("nvmlDeviceResetGpuLockedClocks")

    def _reasons(self) -> int:
        try:
            return int(self.call("nvmlDeviceGetCurrentClocksEventReasons"))
        except NotSupportedError:
            return int(self.call("nvmlDeviceGetCurrentClocksThrottleReasons"))  # its name before driver 535

    def _plausible_power_w(self, power_mw: float, call: str) -> float:
        """Return a power reading, W, or raise an error if it is impossible with this card's power limit."""
        power_w = self._checked(power_mw, call) / 1e3
        if self._most_w is None:
            try:
                self._most_w = MOST_POWER * self.largest_limit_w()
            except NvmlError:
                return power_w
        if power_w > self._most_w:
            raise no_reading(self.label, call, f"{power_w:.0f} W", f"at most {self._most_w:.0f} W")
        return power_w

    def _positive(self, call: str, *arguments: Any) -> float:
        return self._checked(self.call(call, *arguments), call)

    def _checked(self, value: Any, call: str) -> float:
        """Return `value` unless it is zero or NVML's value for "not available", which are no measurements."""
        marks = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
        if not math.isfinite(value) or value <= 0 or value in marks:
            raise no_reading(self.label, call, value, "a number above zero")
        return float(value)

    def _list(self, call: str, *arguments: Any) -> list[int]:
        values = [int(value) for value in self.call(call, *arguments)]
        if not values or min(values) <= 0:
            raise no_reading(self.label, call, values, "at least one clock above zero")
        return values


def _ask_text(nvml: Any, device: str, call: str, *arguments: Any) -> str:
    value = call_nvml(nvml, device, call, *arguments)
    if not value:
        raise no_reading(device, call, repr(value), "a text")
    return str(value)


class Gpm:
    """GPM metrics between successive readings: SM activity and DRAM bandwidth, % (Hopper and later)."""

    LEAST_S = 0.1

    def __init__(self, card: NvmlGpu) -> None:
        self._nvml, self._card = card.binding, card
        self._last = self._sample()
        self._last_s = time.monotonic()
        self._values = (math.nan, math.nan)

    def read(self) -> tuple[float, float]:
        """Return SM activity and DRAM bandwidth since the last sample at least `LEAST_S` ago, %; NaN before it."""
        if time.monotonic() - self._last_s >= self.LEAST_S:
            now = self._sample()
            try:
                self._values = self._between(self._last, now)
            finally:
                self._free(self._last)
                self._last, self._last_s = now, time.monotonic()
        return self._values

    def close(self) -> None:
        if self._last is not None:
            self._free(self._last)
            self._last = None

    def _sample(self) -> Any:
        sample = call_nvml(self._nvml, self._card.label, "nvmlGpmSampleAlloc")
        try:
            self._card.call("nvmlGpmSampleGet", sample)
        except BaseException:
            self._free(sample)
            raise
        return sample

    def _between(self, first: Any, second: Any) -> tuple[float, float]:
        nvml, call = self._nvml, "nvmlGpmMetricsGet"
        wanted = nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        wanted.sample1, wanted.sample2 = first, second
        wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        wanted.metrics[1].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        call_nvml(nvml, self._card.label, call, wanted)
        return self._percent(wanted.metrics[0]), self._percent(wanted.metrics[1])

    def _percent(self, metric: Any) -> float:
        call = f"nvmlGpmMetricsGet({metric.metricId})"
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
            error = fault(self._card.label, call, metric.nvmlReturn)
            if isinstance(error, NotSupportedError):
                return math.nan
            raise error
        if math.isnan(metric.value):
            return math.nan
        if not 0 <= metric.value <= 101:
            raise no_reading(self._card.label, call, metric.value, "a percentage")
        return float(min(metric.value, 100.0))

    def _free(self, sample: Any) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlGpmSampleFree(sample)
