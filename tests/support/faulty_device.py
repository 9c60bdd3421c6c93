"""A device with programmable faults, for tests of the recorder, the event loop and the executor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from heshare.devices.device import Device, Reading
from heshare.ops.nvml.binding import GpuLostError
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Workload

METHODS = ("set_clock", "start", "stop", "read", "next_event_s", "advance")
FOREVER = -1


@dataclass(slots=True)
class _Fault:
    error: Exception
    after: int
    times: int


class FaultyDevice:
    """Another device, by default a toy in virtual time, with faults in chosen calls.

    Args:
        device: the device that is used while nothing fails.

    Attributes:
        calls: how often each method was called.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._device = ToyDevice(toy_gpu()) if device is None else device
        self._faults: dict[str, _Fault] = {}
        self._distort: list[Callable[[Reading], Reading]] = []
        self.calls = dict.fromkeys(METHODS, 0)

    @property
    def gpu(self) -> Gpu:
        """Its description."""
        return self._device.gpu

    @property
    def provenance(self) -> str:
        """That of the wrapped device."""
        return self._device.provenance

    def fail(self, method: str, error: Exception, *, after: int = 0, times: int = FOREVER) -> FaultyDevice:
        """Make a method raise, from its call number `after` (from 0) on, so many times or forever.

        Raises:
            KeyError: a device has no such method.
        """
        self._faults[method] = _Fault(error, after + self.calls[method], times)
        return self

    def lose(self, *, after: int = 0) -> FaultyDevice:
        """Make the GPU fall off the bus: every method fails from its call number `after` on."""
        lost = GpuLostError(f"{self.gpu.name}: the GPU is lost. Reset it.")
        for method in METHODS:
            self.fail(method, lost, after=after)
        return self

    def throttle(self, sm_mhz: float) -> FaultyDevice:
        """Report at most this clock from now on, and `throttled` whenever it is lower than the device's."""

        def hold(reading: Reading) -> Reading:
            if reading.sm_mhz <= sm_mhz:
                return reading
            return replace(reading, sm_mhz=sm_mhz, throttled=True)

        self._distort.append(hold)
        return self

    def wrap_energy(self, at_j: float) -> FaultyDevice:
        """Let the energy counter restart at 0 each time it reaches `at_j`."""
        self._distort.append(lambda reading: replace(reading, energy_j=math.fmod(reading.energy_j, at_j)))
        return self

    def blind(self, *names: str) -> FaultyDevice:
        """Report NaN for these fields of a reading, such as `l2_util_pct`."""
        self._distort.append(lambda reading: replace(reading, **dict.fromkeys(names, math.nan)))  # type: ignore[arg-type]
        return self

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock."""
        self._enter("set_clock")
        self._device.set_clock(sm_mhz)

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task."""
        self._enter("start")
        self._device.start(task_id, workload, mps_pct, iterations)

    def stop(self, task_id: int) -> float:
        """Stop a task; return its completed iterations."""
        self._enter("stop")
        return self._device.stop(task_id)

    def read(self) -> Reading:
        """Return the distorted reading."""
        self._enter("read")
        reading = self._device.read()
        for distort in self._distort:
            reading = distort(reading)
        return reading

    def next_event_s(self) -> float:
        """Return the time of the next event, s."""
        self._enter("next_event_s")
        return self._device.next_event_s()

    def advance(self, to_s: float) -> list[int]:
        """Advance to `to_s`; return the completed tasks in order."""
        self._enter("advance")
        return self._device.advance(to_s)

    def _enter(self, method: str) -> None:
        number = self.calls[method]
        self.calls[method] += 1
        fault = self._faults.get(method)
        if fault is not None and number >= fault.after and fault.times != 0:
            fault.times -= 1 if fault.times > 0 else 0
            raise fault.error
