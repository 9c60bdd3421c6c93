"""What can go wrong with a real GPU: the errors of NVML, each as one of the package's own, with what to do."""

from __future__ import annotations

from heshare.errors import DeviceError


class NvmlError(DeviceError):
    """NVML failed.

    Attributes:
        call: the function that failed.
        code: NVML's return code, or None where the answer itself was no answer.
    """

    def __init__(self, message: str, *, call: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.call = call
        self.code = code


class NoDriverError(NvmlError):
    """There is no NVIDIA driver, no NVML library, or the two do not belong together."""


class NotSupportedError(NvmlError):
    """This card or this driver does not offer it."""


class NoPermissionError(NvmlError):
    """It is offered, but not to this user."""


class NoSuchGpuError(NvmlError):
    """No GPU has this index or UUID."""


class GpuLostError(NvmlError):
    """The GPU has gone, or must be reset; nothing measured since can be trusted."""


class BusyError(NvmlError):
    """It failed for the moment, and did so again when it was asked again."""


class NoReadingError(NvmlError):
    """NVML answered, but with nothing that can be a measurement."""


_OURS = "This is a defect of HeShare or of the NVML binding: report the call, the code and the driver's version."
_RESET = "Stop what uses the GPU, reset it or restart the machine, and record again what was measured since."
_DRIVER = "Install NVIDIA's driver, or start the container with the GPUs passed through."

# NVML's return codes are part of its binary interface: they never change their meaning.
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
    14: (GpuLostError, "the card's infoROM is corrupted", "Have the card checked."),
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
    25: (
        NotSupportedError,
        "the driver expects another structure version",
        "Use a newer driver or nvidia-ml-py.",
    ),
    26: (NotSupportedError, "the function is deprecated", "Use a newer release of HeShare."),
    27: (BusyError, "the system is not ready", "Try again in a moment."),
    28: (NoSuchGpuError, "no GPU was found", "`heshare doctor` lists the GPUs of this machine."),
    29: (NvmlError, "the GPU is in a state that does not allow it", "Reset the GPU or undo its special mode."),
    30: (NotSupportedError, "this type of reset is not supported", "Reset in another way."),
    999: (NvmlError, "an internal driver error", _RESET),
}

TRANSIENT = frozenset({10, 19, 27})
"""Codes that may not come again when the same is asked a moment later."""


def fault(device: str, call: str, code: int) -> NvmlError:
    """The package's error for a return code of NVML.

    Args:
        device: how the user knows the GPU.
        call: the NVML function.
        code: its return code; one that the table does not know is an `NvmlError` that says so.
    """
    kind, found, action = TABLE.get(code, (NvmlError, "a return code that this release does not know", _OURS))
    return kind(f"{device}: {call} failed: {found} (NVML code {code}). {action}", call=call, code=code)


def no_reading(device: str, call: str, value: object, expected: str) -> NoReadingError:
    """The error for an answer that is no measurement, such as a power of zero."""
    action = "Nothing is recorded from it; if it stays so, this card does not report it."
    return NoReadingError(f"{device}: {call} answered {value}; expected {expected}. {action}", call=call)
