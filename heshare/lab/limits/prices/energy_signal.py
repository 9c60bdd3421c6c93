"""A price or carbon signal over time: a step function, read from a CSV, and its exact integral.

The signal holds each value from its time to the next. With `daily` it repeats every day; otherwise the last value holds
for ever. `start_s` is the signal's time at which a run begins: a run that begins at 18:00 with a signal whose zero is
midnight has `start_s = 64800`. All times that the methods take are those of the run.
"""

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np

from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.csv_table import Header, RowError, read_rows

DAY_S = 86_400.0
J_PER_KWH = 3.6e6
UNITS = MappingProxyType({"price_per_kwh": "cost", "g_co2_per_kwh": "co2_g"})
"""What a signal counts, by the name of its column: money, in the currency of the prices, or grams of carbon dioxide."""
MOST_VALUE = 1e6
"""The largest value of a signal, either sign: a mistake beyond it."""
MOST_STEPS = 1_000_000

_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True)
class EnergySignal:
    """Price or carbon intensity of energy over time.

    Attributes:
        time_s: when each value begins, s, ascending, the first 0; shape (n,).
        value: the values, in money or g per kWh; prices may be negative; shape (n,).
        unit: `price_per_kwh` or `g_co2_per_kwh`.
        daily: whether it repeats every day; all times are then below 86,400 s.
        start_s: the signal's time at which the run begins, s.

    Raises:
        InputError: not such a signal.

    Example: a price of 0.1 until noon and 0.3 after it, for a run that begins at 11:00.

    >>> signal = EnergySignal((0.0, 43_200.0), (0.1, 0.3), daily=True, start_s=39_600.0)
    >>> signal.at(0.0), signal.at(3_600.0), signal.at(14 * 3_600.0)
    (0.1, 0.3, 0.1)
    >>> round(signal.amount(1_000.0, 0.0, 7_200.0), 9)  # 1 kW for 2 h
    0.4
    """

    time_s: tuple[float, ...]
    value: tuple[float, ...]
    unit: str = "price_per_kwh"
    daily: bool = False
    start_s: float = 0.0

    def __post_init__(self) -> None:
        times, values, action = self.time_s, self.value, "Correct the signal."
        require("unit", repr(self.unit), self.unit in UNITS, " or ".join(UNITS), action)
        good = bool(times) and len(times) == len(values) and len(times) <= MOST_STEPS
        require("signal", f"{len(times)} times and {len(values)} values", good, "as many, at least one", action)
        good = times[0] == 0 and all(before < after for before, after in itertools.pairwise(times))
        require("time_s", f"times from {times[0]:g} s", good, "ascending times, the first 0", action)
        most = DAY_S if self.daily else MOST_S
        expected = f"times below {most:g} s" + (", since it repeats every day" if self.daily else "")
        require("time_s", f"{times[-1]:g} s", times[-1] < most, expected, action)
        wrong = next((value for value in values if not abs(value) <= MOST_VALUE), 0.0)
        require("value", wrong, wrong == 0.0, f"numbers from {-MOST_VALUE:g} to {MOST_VALUE:g}", action)
        good = 0 <= self.start_s < (DAY_S if self.daily else MOST_S)
        require("start", f"{self.start_s:g} s", good, f"a time of at least zero and {expected}", action)

    @cached_property
    def _sums(self) -> FloatArray:
        """The integral from the signal's zero to each of its times, and for a daily one to the end of the day."""
        ends = np.array([*self.time_s, DAY_S]) if self.daily else np.array(self.time_s)
        return np.concatenate([[0.0], np.cumsum(np.diff(ends) * np.array(self.value)[: len(ends) - 1])])

    @property
    def counts(self) -> str:
        """What the signal counts: `cost` or `co2_g`."""
        return UNITS[self.unit]

    def starting(self, start_s: float) -> Self:
        """Return the same signal for a run that begins at another time of it, s; of a daily one, of any day."""
        return replace(self, start_s=start_s % DAY_S if self.daily else start_s)

    def at(self, time_s: float) -> float:
        """Return the value at a time of the run, s."""
        own_s = self.start_s + time_s
        return self.value[bisect_right(self.time_s, own_s % DAY_S if self.daily else own_s) - 1]

    def integral(self, begin_s: float, end_s: float) -> float:
        """Return the integral of the signal over a period of the run, value times s."""
        return self._until(self.start_s + end_s) - self._until(self.start_s + begin_s)

    def amount(self, power_w: float, begin_s: float, end_s: float) -> float:
        """Return what a constant power, W, costs (or emits, g) over a period of the run."""
        return power_w * self.integral(begin_s, end_s) / J_PER_KWH

    def steps(self, begin_s: float, end_s: float) -> list[float]:
        """Return the times of the run in `(begin_s, end_s]` at which a value begins, ascending, s."""
        days = range(1)
        if self.daily:
            first, last = (math.floor((self.start_s + at_s) / DAY_S) for at_s in (begin_s, end_s))
            days = range(first, last + 1)
        found: list[float] = []
        for zero_s in (day * DAY_S - self.start_s for day in days):
            low, high = (bisect_right(self.time_s, at_s - zero_s) for at_s in (begin_s, end_s))
            found += [zero_s + time_s for time_s in self.time_s[low:high]]
        return found

    def _until(self, own_s: float) -> float:
        """Return the integral from the signal's zero to a time of the signal, s."""
        days, rest_s = divmod(own_s, DAY_S) if self.daily else (0.0, own_s)
        step = bisect_right(self.time_s, rest_s) - 1
        return float(days * self._sums[-1] + self._sums[step] + (rest_s - self.time_s[step]) * self.value[step])


def read_signal(path: str | Path, *, daily: bool | None = None, start: str | float = 0.0) -> EnergySignal:
    """Return the signal of a CSV file with the columns time_s (s, the first 0) and price_per_kwh or g_co2_per_kwh.

    Args:
        path: the file.
        daily: whether it repeats every day; unless given, a file whose times are all within one day does.
        start: the signal's time at which a run begins, s, or a time of day such as `18:00`.

    Raises:
        InputError: a bad file; the message names the row and the column.

    Example:
        >>> from heshare.shared import files
        >>> signal = read_signal(files.data("signals", "synthetic_day_price.csv"), start="18:00")
        >>> signal.at(0.0), signal.at(7 * 3600.0)
        (0.21, 0.09)
    """
    times: list[float] = []
    values: list[float] = []
    unit = ""
    for row in read_rows(path):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            unit = _unit(row)
            continue
        at_s = row.number_of("time_s", most=MOST_S)
        if at_s != 0 if not times else at_s <= times[-1]:
            expected = f"a time above {times[-1]:g} s" if times else "0 in the first row"
            raise row.error("time_s", "wrong time", expected, "Begin at 0, and sort the rows by time.")
        times.append(at_s)
        values.append(row.number_of(unit, least=-MOST_VALUE, most=MOST_VALUE))
        if len(times) > MOST_STEPS:
            raise InputError(f"more than {MOST_STEPS} rows", "fewer", "Take a shorter period.", file=path)
    if not times:
        raise InputError("a header without rows", "at least one row", "Add the signal's values.", file=path)
    repeats = times[-1] < DAY_S if daily is None else daily
    return EnergySignal(tuple(times), tuple(values), unit, repeats, start_time_s(start))


def start_time_s(start: str | float) -> float:
    """Return a time of day such as `18:00`, or a number of seconds, in s.

    Raises:
        InputError: another form.
    """
    if not isinstance(start, str):
        good = 0 <= start <= MOST_S
        require("start", start, good, "a time of at least zero, s", "Correct the time.")
        return float(start)
    match = _TIME_OF_DAY.fullmatch(start.strip())
    require("start", repr(start[:60]), match is not None, "a time of day such as 18:00", "Write it in that form.")
    assert match is not None
    return int(match[1]) * 3_600.0 + int(match[2]) * 60.0


def _unit(header: Header) -> str:
    units: Sequence[str] = [name for name in UNITS if name in header.columns]
    if len(units) != 1:
        found = "both units" if units else "a header without a unit: " + ", ".join(header.columns)
        expected = f"the columns time_s and one of {' and '.join(UNITS)}"
        raise InputError(found, expected, "Correct the first line.", file=header.file, row=1)
    header.require(("time_s", units[0]), ())
    return units[0]
