"""Power budgets: a limit on the sum of the GPUs' power, constant or in steps over time."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from heshare.running.clock import MOMENT_S
from heshare.running.timeline import Segment, power_steps
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.csv_table import read_table

COLUMNS = ("time_s", "limit_w")
MOST_W = 1e9
"""Largest limit, W: more than any power plant has; no limit is written as no budget."""
EXCESS_W = 1e-6
"""Power above a limit that is rounding, W: powers are sums of hundreds of values."""


@dataclass(frozen=True, slots=True)
class PowerBudget:
    """Limit on the sum of the board power of all GPUs, idle ones included; a step function of time.

    Attributes:
        times_s: when each limit begins, s after the start of the run, ascending, the first 0, shape (m,).
        limits_w: the limits, W; the last one holds without end, shape (m,).

    Raises:
        InputError: no step, times that do not ascend from 0, or a limit that is no number above zero.

    Example:
        >>> budget = PowerBudget((0.0, 3600.0), (1200.0, 800.0))
        >>> budget.at(10.0), budget.at(3600.0), budget.next_step_s(10.0)
        (1200.0, 800.0, 3600.0)
    """

    times_s: tuple[float, ...]
    limits_w: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = f"{len(self.times_s)} times and {len(self.limits_w)} limits"
        require("power limit", sizes, len(self.times_s) == len(self.limits_w) > 0, "a limit for each time")
        for limit_w in self.limits_w:
            check_watts(limit_w)
        first = f"a first step at {self.times_s[0]:g} s"
        require("time_s", first, self.times_s[0] == 0, "a first step at 0 s", "Say what holds from the start.")
        for before_s, time_s in zip(self.times_s, self.times_s[1:], strict=False):
            found = f"{time_s:g} s after {before_s:g} s"
            require("time_s", found, before_s < time_s <= MOST_S, "times that ascend", "Sort the steps by time.")

    @classmethod
    def constant(cls, limit_w: float) -> "PowerBudget":
        return cls((0.0,), (limit_w,))

    @classmethod
    def parse(cls, source: Any) -> "PowerBudget":
        """Return the budget of watts, of a CSV file (`read_budget`), or as it is; text that is a number is watts.

        Raises:
            InputError: another type, no such file, a bad file or a bad limit.
        """
        if isinstance(source, PowerBudget):
            return source
        if isinstance(source, Real) and not isinstance(source, bool):
            return cls.constant(check_watts(float(source)))
        expected = "watts, or a CSV file with the columns time_s, limit_w"
        action = "Write a limit such as 1200, or the path of a file."
        require("power limit", repr(source)[:80], isinstance(source, str | Path), expected, action)
        number = _number(str(source))
        if number is not None:
            return cls.constant(check_watts(number))
        found = f"{str(source)!r}, which is no number and no file"
        require("power limit", found, Path(source).is_file(), expected, action)
        return read_budget(source)

    def __str__(self) -> str:
        low, high = min(self.limits_w), max(self.limits_w)
        return f"{low:g} W" if low == high else f"{low:g} to {high:g} W in {len(self.limits_w)} steps"

    def at(self, time_s: float) -> float:
        """Return the limit at a time, W; within `MOMENT_S` of a step the step has begun."""
        return self.limits_w[max(bisect_right(self.times_s, time_s + MOMENT_S) - 1, 0)]

    def next_step_s(self, now_s: float) -> float:
        """Return when the next step begins, s; `inf` after the last one."""
        place = bisect_right(self.times_s, now_s + MOMENT_S)
        return self.times_s[place] if place < len(self.times_s) else math.inf

    def shifted(self, elapsed_s: float) -> "PowerBudget":
        """Return the rest of the budget for a session that begins `elapsed_s` after the start of the run."""
        if elapsed_s <= 0:
            return self
        later = [(time_s, w) for time_s, w in zip(self.times_s, self.limits_w, strict=True) if time_s > elapsed_s]
        times_s = (0.0, *[time_s - elapsed_s for time_s, _ in later])
        return PowerBudget(times_s, (self.at(elapsed_s), *[limit_w for _, limit_w in later]))

    def to_json(self) -> list[list[float]]:
        """Return it as JSON values, from which `of_json` makes it again."""
        return [[time_s, limit_w] for time_s, limit_w in zip(self.times_s, self.limits_w, strict=True)]

    @classmethod
    def of_json(cls, values: Sequence[Sequence[float]]) -> "PowerBudget":
        """Return the budget whose `to_json` returned these values."""
        return cls(tuple([float(time_s) for time_s, _ in values]), tuple([float(limit_w) for _, limit_w in values]))


@dataclass(frozen=True, slots=True)
class LimitExcess:
    """A moment at which power is above a limit.

    `power_w` is the sum of the GPUs' power from then on, W.
    """

    time_s: float
    power_w: float
    limit_w: float


def largest_excess(segments: Sequence[Segment], budget: PowerBudget) -> LimitExcess | None:
    """Return the moment of a timeline at which power is furthest above a budget, or None if it never is.

    Power is the sum over the segments of all GPUs at each moment.
    """
    times_s, power_w = power_steps(segments)
    if not len(times_s):
        return None
    # The power and the limit are both step functions: a step of either may be where they cross.
    moments_s = np.union1d(times_s[:-1], [time_s for time_s in budget.times_s if times_s[0] <= time_s < times_s[-1]])
    present_w = power_w[np.searchsorted(times_s, moments_s, side="right") - 1]
    # A moment of rounding before a step, the power is already that after it.
    lengths_s = np.diff(np.append(moments_s, times_s[-1]))
    limits_w = np.array([budget.at(moment_s) for moment_s in moments_s])
    excess_w = np.where(lengths_s > MOMENT_S, present_w - limits_w, -math.inf)
    worst = int(np.argmax(excess_w))
    if excess_w[worst] <= EXCESS_W:
        return None
    return LimitExcess(float(moments_s[worst]), float(present_w[worst]), float(limits_w[worst]))


def read_budget(path: str | Path) -> PowerBudget:
    """Return the budget of a CSV file with the columns `time_s` (s, from 0, ascending) and `limit_w` (W).

    Raises:
        InputError: no such file, a missing or unknown column, a bad cell, or no row.
    """
    times_s: list[float] = []
    limits_w: list[float] = []
    for row in read_table(path, COLUMNS, ()):
        time_s = row.number_of("time_s", most=MOST_S)
        if times_s and time_s <= times_s[-1]:
            raise row.error("time_s", "not ascending", f"a time above {times_s[-1]:g}", "Sort the rows by time.")
        if not times_s and time_s > 0:
            raise row.error("time_s", "a late start", "0 in the first row", "Say what holds from the start.")
        times_s.append(time_s)
        limits_w.append(row.number_of("limit_w", above=True, most=MOST_W))
    if not times_s:
        raise InputError("no row", "at least one row below the header", "Add a limit from 0 s on.", file=path)
    return PowerBudget(tuple(times_s), tuple(limits_w))


def check_watts(limit_w: float) -> float:
    """Return a limit, W, or raise `InputError` unless it is a finite number above zero."""
    good = isinstance(limit_w, Real) and not isinstance(limit_w, bool) and 0 < limit_w <= MOST_W
    action = "Leave the limit out for none."
    require("power limit", f"{limit_w!r} W"[:60], good, f"a number above 0 and at most {MOST_W:g}", action)
    return float(limit_w)


def _number(text: str) -> float | None:
    try:
        return float(text.replace("_", "?"))
    except ValueError:
        return None
