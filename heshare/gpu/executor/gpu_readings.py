"""Readings of one real GPU for the executor: its clock, power, energy and memory, through errors of NVML until it is lost."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from heshare.errors import DeviceError
from heshare.gpu.nvml.binding import GpuLostError, NvmlError
from heshare.gpu.nvml.nvml_device import NvmlDevice

_FRESH_S = 0.05


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waiting times of the executor, s.

    Attributes:
        poll_s: between two polls of a GPU while jobs run.
        memory_s: for memory that another process holds.
        nvml_s: for NVML calls that fail again and again, or a host that does not answer; then the GPU counts as lost.
        shared_s: failures on one GPU within so long of each other are one failure of what they share.
        grace_s: for a command to end after SIGTERM.
    """

    poll_s: float = 1.0
    memory_s: float = 60.0
    nvml_s: float = 30.0
    shared_s: float = 2.0
    grace_s: float = 5.0


class GpuReadings:
    """The latest readings of a GPU.

    Args:
        device: the GPU, with no tasks of its own.
        now_s: the time that all devices of the run share, s.
        timeout_s: how long NVML may fail before the GPU counts as lost, s.

    Attributes:
        latest: the latest reading; while NVML fails it stays as it was.
        limits: what held the clock down at that moment.
        lost: why the GPU can no longer be used; empty as long as it can.
        notes: notes for the operator, in order.
    """

    def __init__(self, device: NvmlDevice, now_s: Callable[[], float], timeout_s: float) -> None:
        self.latest = device.read()
        self.limits: tuple[str, ...] = ()
        self.lost = ""
        self.notes: list[str] = []
        # Apart from `latest`: an update in between must not hide energy from `take_spent_j`.
        self._taken_j = self.latest.energy_j
        self._device, self._now_s, self._timeout_s = device, now_s, timeout_s
        self._failing_since_s = math.nan
        self._next_read_s = -math.inf

    def update(self, *, force: bool = False) -> None:
        """Read the GPU, unless that was done a moment ago (or `force`)."""
        now_s = self._now_s()
        if self.lost or (now_s < self._next_read_s and not force):
            return
        self._next_read_s = now_s + _FRESH_S
        try:
            self.latest = self._device.read()
            self.limits = self._device.limits() if self.latest.throttled else ()
            self._failing_since_s = math.nan
        except NvmlError as error:
            self._handle(error)

    def take_spent_j(self) -> float:
        """Return the energy since the last call, J."""
        self.update(force=True)
        before_j, self._taken_j = self._taken_j, self.latest.energy_j
        return max(0.0, self._taken_j - before_j)

    def free_mib(self) -> float:
        """Return the memory that no process holds, MiB; `inf` where that is unknown."""
        try:
            return math.inf if self.lost else self._device.free_mib()
        except NvmlError as error:
            self._handle(error)
            return math.inf

    def set_clock(self, sm_mhz: int | None) -> bool:
        """Request a clock; return whether it could be set."""
        if self.lost:
            return False
        try:
            self._device.set_clock(sm_mhz)
        except DeviceError as error:
            self.note(f"clock {sm_mhz} MHz not set: {error}")
            return False
        self._next_read_s = -math.inf
        return True

    def note(self, text: str) -> None:
        """Keep a note for the operator."""
        self.notes.append(f"{self._now_s():.1f} s: {text}")

    def _handle(self, error: NvmlError) -> None:
        """Wait for NVML for a while, unless it reports that the GPU is lost."""
        if math.isnan(self._failing_since_s):
            self._failing_since_s = self._now_s()
            self.note(f"no answer: {error}")
        if isinstance(error, GpuLostError) or self._now_s() - self._failing_since_s > self._timeout_s:
            self.lost = str(error)
            self.note(f"lost: {error}")
