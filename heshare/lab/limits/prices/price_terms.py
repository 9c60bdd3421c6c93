"""Terms under which a run waits for cheap energy: the signal, the bound, and what waiting must save."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from heshare.lab.limits.prices.energy_signal import EnergySignal, read_signal
from heshare.lab.limits.prices.price_aware import HOLD_S, SAVING_PER_HOUR, SavingRule, check_hold, price_aware
from heshare.policies.policy import Policy
from heshare.shared.errors import require

PriceSource = EnergySignal | str | Path
"""A signal, or the path of a CSV file with the columns time_s and price_per_kwh or g_co2_per_kwh."""


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """Terms of a run under a price or carbon signal.

    Attributes:
        signal: the signal.
        hold_s: longest time for which a GPU is held between a task's arrival and its start, s; 0 only counts the cost.
        saving_per_hour: part of its cost that each hour of waiting must save, at least 0.

    Raises:
        InputError: a value out of its range.
    """

    signal: EnergySignal
    hold_s: float = HOLD_S
    saving_per_hour: float = SAVING_PER_HOUR

    def __post_init__(self) -> None:
        check_hold(self.hold_s)
        good = 0 <= self.saving_per_hour <= 1
        require("saving", self.saving_per_hour, good, "a part of the cost, 0 to 1 for each hour", "Correct it.")

    @classmethod
    def parse(cls, source: Any, hold_s: float | None = None) -> Self:
        """Return the terms of a `PriceSource`, or the terms themselves.

        Raises:
            InputError: another type, or a bad file.
        """
        if isinstance(source, cls):
            return source
        expected = "an EnergySignal, or the path of a CSV file with time_s and price_per_kwh or g_co2_per_kwh"
        require("price", repr(source)[:80], isinstance(source, EnergySignal | str | Path), expected, "Name a file.")
        return cls(
            source if isinstance(source, EnergySignal) else read_signal(source), HOLD_S if hold_s is None else hold_s
        )

    def wrap(self, policy: Policy) -> Policy:
        return price_aware(policy, self.signal, self.hold_s, SavingRule(self.signal, self.saving_per_hour))
