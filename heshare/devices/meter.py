"""What a card tells the executor: asked as often as needed, borne with when it does not answer, given up when lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from heshare.devices.device import Reading
from heshare.devices.faults import GpuLostError, NvmlError
from heshare.errors import DeviceError
from heshare.world.gpu import Gpu

_FRESH_S = 0.05


class Gauge(Protocol):
    """What the card tells and lets be set: `heshare.devices.live.NvmlDevice` with nothing running on it."""

    uuid: str

    @property
    def gpu(self) -> Gpu:
        """What it is."""
        ...

    def read(self) -> Reading:
        """Clock, power, energy."""
        ...

    def set_clock(self, sm_mhz: int | None) -> None:
        """Lock the clock, or leave it to the card."""
        ...

    def limits(self) -> tuple[str, ...]:
        """What holds the clock down."""
        ...

    def free_mib(self) -> float:
        """Memory that no process holds, MiB."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the executor bears with what is not as it should be, s.

    Attributes:
        look_s: from look to look while jobs run.
        memory_s: for memory that somebody else holds.
        nvml_s: for NVML calls that fail again and again, or a host that does not answer; then the GPU counts as lost.
        shared_s: failures on one GPU within so long of each other are one failure of what they share.
        grace_s: for a command to end after SIGTERM.
    """

    look_s: float = 1.0
    memory_s: float = 60.0
    nvml_s: float = 30.0
    shared_s: float = 2.0
    grace_s: float = 5.0


class Meter:
    """The latest that a card told.

    Args:
        gauge: the card.
        now_s: the time that all devices of the run share, s.
        patience_s: how long NVML may fail again and again.

    Attributes:
        latest: its latest reading; what it does not tell stays as it was.
        limits: what held its clock down at that moment.
        lost: why the GPU can no longer be used; empty as long as it can.
        notes: what the operator should know, in order.
    """

    def __init__(self, gauge: Gauge, now_s: Callable[[], float], patience_s: float) -> None:
        self.latest = gauge.read()
        self.limits: tuple[str, ...] = ()
        self.lost = ""
        self.notes: list[str] = []
        # Whoever looks in between must not take away from what is told here.
        self._told_j = self.latest.energy_j
        self._gauge, self._now_s, self._patience_s = gauge, now_s, patience_s
        self._blind_since_s = math.nan
        self._next_read_s = -math.inf

    def look(self, *, again: bool = False) -> None:
        """Ask the card, unless it was asked a moment ago (or `again`)."""
        now_s = self._now_s()
        if self.lost or (now_s < self._next_read_s and not again):
            return
        self._next_read_s = now_s + _FRESH_S
        try:
            self.latest = self._gauge.read()
            self.limits = self._gauge.limits() if self.latest.throttled else ()
            self._blind_since_s = math.nan
        except NvmlError as error:
            self._blind(error)

    def spent_j(self) -> float:
        """Energy since this was last asked, J."""
        self.look(again=True)
        before_j, self._told_j = self._told_j, self.latest.energy_j
        return max(0.0, self._told_j - before_j)

    def free_mib(self) -> float:
        """Memory that no process holds, MiB; `inf` where the card does not tell."""
        try:
            return math.inf if self.lost else self._gauge.free_mib()
        except NvmlError as error:
            self._blind(error)
            return math.inf

    def set_clock(self, sm_mhz: int | None) -> bool:
        """Ask for a clock; whether it could be set."""
        if self.lost:
            return False
        try:
            self._gauge.set_clock(sm_mhz)
        except DeviceError as error:
            self.note(f"clock {sm_mhz} MHz not set: {error}")
            return False
        self._next_read_s = -math.inf
        return True

    def note(self, text: str) -> None:
        """Keep something that the operator should know."""
        self.notes.append(f"{self._now_s():.1f} s: {text}")

    def _blind(self, error: NvmlError) -> None:
        """NVML did not answer: bear with it for a while, unless it says that the GPU has gone."""
        if math.isnan(self._blind_since_s):
            self._blind_since_s = self._now_s()
            self.note(f"no answer: {error}")
        if isinstance(error, GpuLostError) or self._now_s() - self._blind_since_s > self._patience_s:
            self.lost = str(error)
            self.note(f"lost: {error}")
