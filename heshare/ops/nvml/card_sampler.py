"""Samples of a card for the executor: all readings in one request, any of which may be missing.

A failing reading is reported once and the run continues without it; only `GpuLostError` ends the use of a card.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heshare.ops.nvml.binding import GpuLostError, NvmlError
from heshare.ops.nvml.card_reader import PATIENCE_S
from heshare.ops.nvml.energy_account import EnergyAccount
from heshare.ops.nvml.reader_process import value_of

_WITHOUT = {
    "clock": "its clock is unknown",
    "power": "its power is computed from the energy counter",
    "energy counter": "its energy is the integral of the power readings",
    "limits": "what limits the clock is unknown",
    "free memory": "other processes' memory on it is unknown",
    "health": "Xid and ECC errors are not detected",
}


class PolledCard(Protocol):
    """A card whose readings are requested together and may arrive later (`RemoteCard`)."""

    @property
    def silent_s(self) -> float:
        """Time without a reply, s."""

    def poll(self, calls: Sequence[Sequence[Any]], *, wait_s: float = PATIENCE_S) -> list[Any] | None:
        """Return the answers to calls, or None if they have not arrived."""


@dataclass(frozen=True, slots=True)
class CardSample:
    """The readings of a card at one time; NaN for missing ones.

    Attributes:
        power_w: board power, W; without a reading the mean since the last sample, by the counter.
        energy_j: energy since the first sample, J.
        limits: limits that reduce the clock.
        free_mib: free memory, MiB.
    """

    sm_mhz: float
    power_w: float
    energy_j: float
    limits: tuple[str, ...]
    free_mib: float


class CardSampler:
    """Takes the samples of a card, and detects errors after which it may get no new jobs.

    Args:
        power: the name of the call for its power, `instant_power_w` or `usage_power_w`.
        limit_w: its power limit, W.
        note: called with a message for the operator.
        now_s: the time, s.

    Attributes:
        counter_j: its energy counter at the last sample, J; NaN if it was not read or is stalled, so that the energy
            account does not agree with it.
        drained: the error after which no new job may start on it; empty if there was none.
    """

    def __init__(
        self,
        card: PolledCard,
        power: str,
        limit_w: float,
        note: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._card, self._note, self._now_s = card, note, now_s
        self._calls = (("sm_mhz",), (power,), ("energy_j",), ("limits",), ("memory_mib",), ("health",))
        self._missing: set[str] = set()
        self._before: tuple[float, float] | None = None
        self.energy = EnergyAccount(limit_w, note)
        self.counter_j = math.nan
        self.drained = ""

    @property
    def silent_s(self) -> float:
        """Time without a reply of the card, s."""
        return self._card.silent_s

    def sample(self, *, wait_s: float = PATIENCE_S) -> CardSample | None:
        """Return a sample, or None if the card has not replied yet.

        Raises:
            GpuLostError: the card is lost.
        """
        answers = self._card.poll(self._calls, wait_s=wait_s)
        if answers is None:
            return None
        clock, power, counter, limits, memory, health = answers

        for drains, event in self._value("health", health, ()):
            self._note(event)
            if drains and not self.drained:
                self.drained = event

        power_w = self._value("power", power, math.nan)
        counter_j = self._value("energy counter", counter, math.nan)
        now_s = self._now_s()
        self.energy.add(now_s, counter_j, power_w)
        self.counter_j = math.nan if self.energy.stalled else counter_j

        before, self._before = self._before, (now_s, self.energy.energy_j)
        if math.isnan(power_w) and before is not None and not math.isnan(counter_j):
            power_w = (self.energy.energy_j - before[1]) / max(now_s - before[0], 1e-3)

        return CardSample(
            sm_mhz=self._value("clock", clock, math.nan),
            power_w=power_w,
            energy_j=self.energy.energy_j,
            limits=self._value("limits", limits, ()),
            free_mib=self._value("free memory", memory, (math.nan, math.nan))[1],
        )

    def _value(self, name: str, answer: Sequence[Any], missing: Any) -> Any:
        try:
            return value_of(answer)
        except GpuLostError:
            raise
        except NvmlError as error:
            if name not in self._missing:
                self._missing.add(name)
                self._note(f"no reading of {name}, so {_WITHOUT[name]}: {error}")
            return missing
