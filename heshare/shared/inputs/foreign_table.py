"""Tables of other programs: what the cells of a column mean, which rows are left out, and one line about it.

`csv_table` finds the cells and their lines, pandas reads numbers and dates. Decided here is their meaning: the kind and
the unit of moments and durations, and which values are placeholders.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from heshare.shared.display import number
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.csv_table import WHOLE, Header, Row, RowError, read_rows

ACTION = "Correct it, or pass skip_bad=True to leave such rows out."
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
"""Seconds of the units that a moment or a duration may have."""
EPOCH_S = (946_684_800.0, 4_102_444_800.0)
"""The years 2000 to 2100 in seconds since 1970. A moment outside is none."""
ISOLATED, STANDS_OFF = 10.0, 3.0
"""0 is a placeholder if the next moment comes later than this many times the span of all others. It is noted if that
gap is this many times the longest other one. Assumed."""

_UNIT_NAMES = {"ms": "ms|msecs?|millis|milliseconds", "us": "us|usecs?|micros|microseconds", "ns": "ns|nanoseconds"}
_UNIT_NAMES |= {"min": "mins?|minutes", "h": "h|hrs?|hours"}
_DATE = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}"
_TIME = r"[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
_CLOCK = r"(?:\d+(?:-| days? ))?\d{1,3}:\d{2}:\d{2}(?:\.\d+)?"
_TEXTS = {
    "dates": f"{_DATE}{_TIME}",
    "dates without a time": _DATE,
    "dates with a time zone": rf"{_DATE}{_TIME} ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}})",
}
_COMPACT = {
    "compact dates": (20000101_000000, 20991231_235959, "%Y%m%d%H%M%S"),
    "compact days": (20000101, 20991231, "%Y%m%d"),
}
_SECONDS = "seconds"
_NO_MOMENTS = {
    "zero": ("0 for an unknown moment", "a known moment; 0 stands for an unknown one here"),
    "negative": ("negative moment", "a moment of at least 0; what began before the trace has none"),
    "outside 2000 to 2100": (
        "outside 2000 to 2100",
        "a moment from 2000 to 2100, as a date, or in seconds, ms, us or ns since 1970",
    ),
    "no moment": (
        "no moment",
        "seconds, a date such as 2023-11-16 18:17:03 or 20231116181703, or seconds, ms or us since 1970",
    ),
}
_CALENDAR = ("dates", "dates without a time", *_COMPACT)


class LeftOutWarning(UserWarning):
    """Rows of a table were left out, or a value in it has an assumed meaning."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was read of a table; its text is one line.

    Attributes:
        file: the table.
        rows: rows below the header.
        kept: jobs or requests made of them.
        left_out: number of rows left out, by reason.
        span_s: time from the first arrival to the last one, s.
        gpu_hours: time x whole GPUs, h; NaN where it is unknown.
        asked_gpu_hours: the same with the parts of GPUs that were asked for, h.
        notes: what was assumed.
    """

    file: Path
    rows: int
    kept: int
    left_out: Mapping[str, int]
    span_s: float
    gpu_hours: float = float("nan")
    asked_gpu_hours: float = float("nan")
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} x {reason}" for reason, count in sorted(self.left_out.items()))
        left_out = f"{sum(self.left_out.values()):,} left out{f' ({reasons})' if reasons else ''}"
        parts = [f"{self.rows:,} rows read, {self.kept:,} kept, {left_out}", f"arrivals over {number(self.span_s)} s"]
        if not np.isnan(self.gpu_hours):
            differ = not np.isnan(self.asked_gpu_hours) and not np.isclose(self.asked_gpu_hours, self.gpu_hours)
            asked = f" ({number(self.asked_gpu_hours)} with parts of GPUs)" if differ else ""
            parts.append(f"{number(self.gpu_hours)} GPU hours{asked}")
        return f"{self.file}: {'; '.join([*parts, *self.notes])}"

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values, those that are unknown left out."""
        values = {**asdict(self), "file": str(self.file), "notes": list(self.notes)}
        return {name: value for name, value in values.items() if not (isinstance(value, float) and np.isnan(value))}

    def warn(self) -> None:
        """Issue a `LeftOutWarning` if rows were left out or something was assumed."""
        if self.left_out or self.notes:
            warnings.warn(str(self), LeftOutWarning, stacklevel=3)


class ForeignTable:
    """The rows of a table, as text and as values; a bad row is refused, or left out and counted.

    Args:
        file: the table.
        cells: text of the cells by column; the index is the row in the file.
        faults: rows that have no such cells.
        skip_bad: leave bad rows out.
        others: names of columns that are not in `cells`.

    Attributes:
        others: the same.
        cells: of the rows that are left.
        parsed: the values that were read of them, by key, with the same index.
        left_out: number of rows left out, by reason.
        notes: what was assumed.
    """

    def __init__(
        self,
        file: Path,
        cells: pd.DataFrame,
        faults: Sequence[RowError] = (),
        *,
        skip_bad: bool,
        others: Sequence[str] = (),
    ) -> None:
        self.file, self.cells, self.others, self._skip_bad = file, cells, others, skip_bad
        self.parsed = pd.DataFrame(index=cells.index)
        self.left_out = Counter[str]()
        self.notes: list[str] = []
        self.rows = len(cells) + len(faults)
        # What the moments of each column count from, and the origin of dates.
        self._scales: dict[str, str] = {}
        self._origin: pd.Timestamp | None = None
        for fault in faults:
            self._count(fault)

    def read_numbers(
        self,
        key: str,
        column: str,
        *,
        least: float = 0.0,
        above: bool = False,
        most: float = np.inf,
        whole: bool = False,
    ) -> None:
        """Read finite numbers of at least `least` (above it, if `above`) and at most `most`."""
        text = self.cells[column]
        value = _to_numbers(text)
        good = _finite(value) & (value > least if above else value >= least) & (value <= most)
        if whole:
            good &= text.str.fullmatch(WHOLE)
        self._leave_out_faults(~good, lambda row: _check_number(row, column, least, above, most, whole=whole))
        self.parsed = self.parsed.assign(**{key: value[self.cells.index]})

    def read_durations_s(self, key: str, column: str, unit: str | None = None) -> None:
        """Read durations above zero in a unit (seconds by default), or as 1:02:03 and 1-02:03:04, in s."""
        self._require_unit(column, unit)
        text = self.cells[column]
        value = _to_numbers(text) * UNITS_S[unit or "s"]
        clock = text.str.fullmatch(_CLOCK)
        days = text[clock].str.replace(r"^(\d+)-", r"\1 days ", regex=True)
        value[clock] = pd.to_timedelta(days, errors="coerce").dt.total_seconds()

        expected = f"a duration above zero and at most {MOST_S:g} s"
        for bad, reason in (
            (text == "", "empty cell"),
            (~_finite(value), "no duration"),
            (value < 0, "negative duration"),
            (value == 0, "duration of zero"),
            (value > MOST_S, "too large"),
        ):
            self.refuse(bad[self.cells.index], column, reason, expected, ACTION)
        self.parsed = self.parsed.assign(**{key: value[self.cells.index]})

    def read_moments_s(self, key: str, column: str, unit: str | None = None, zero: str = "judge") -> None:
        """Read moments of one kind, in s after an origin that all columns of the table share.

        Numbers are seconds after some begin, dates (20231116 or 20231116181703), or seconds, ms, us or ns since 1970,
        if that is between 2000 and 2100. The kind of a column is that of most of its cells; others are bad, and so are
        negative numbers. `zero` is what 0 means among seconds after some begin: a `moment`, `unknown`, or `judge`,
        which is `unknown` if it stands far from all others.

        Raises:
            InputError: a bad row without `skip_bad`, or a kind that another column does not have.
        """
        self.refuse(self.cells[column] == "", column, "empty cell", "a moment", ACTION)
        kind, seconds, date = _moments(self.cells[column], UNITS_S[unit] if unit else None)
        counts = Counter({_SECONDS: 0, **kind[~kind.isin(_NO_MOMENTS)].value_counts()})
        most = max(counts, key=lambda each: (counts[each], each == _SECONDS))
        if most == _SECONDS:
            self._require_unit(column, unit)
            # Some numbers of seconds could be dates as well.
            kind = self._judge_zeros(column, kind.replace({"compact days": _SECONDS}), seconds, zero)
        for reason, (said, expected) in _NO_MOMENTS.items():
            self.refuse(kind[self.cells.index] == reason, column, said, expected, ACTION)
        expected = f"{most}, as in most rows"
        self.refuse(kind[self.cells.index] != most, column, f"not {most}, as in most rows", expected, ACTION)

        scale = _SECONDS if most == _SECONDS else "dates" if most in _CALENDAR else "moments of a time zone"
        self._require_scale(column, scale)
        if most != _SECONDS:
            self._origin = date[self.cells.index].min().floor("s") if self._origin is None else self._origin
            seconds = (date - self._origin).dt.total_seconds()
        self.parsed = self.parsed.assign(**{key: seconds[self.cells.index]})

    def refuse(self, bad: "pd.Series[bool]", column: str, reason: str, expected: str, action: str) -> None:
        """Raise the error of the first row of `bad`, or leave these rows out."""

        def check(row: Row) -> None:
            raise row.error(column, reason, expected, action)

        self._leave_out_faults(bad, check)

    def leave_out(self, left_out: "pd.Series[bool]", reason: str) -> None:
        """Leave rows out that are no faults, and count them."""
        if left_out.any():
            self.left_out[reason] += int(left_out.sum())
            self.cells, self.parsed = self.cells[~left_out], self.parsed[~left_out]

    def require_rows(self, what: str = "job") -> None:
        """Raise `InputError` if no row is left."""
        reasons = ", ".join(f"{count} x {reason}" for reason, count in self.left_out.items())
        found = f"no {what} that could be used ({reasons})" if reasons else f"no {what}"
        require(None, found, len(self.cells) > 0, "at least one", "Check the file and its columns.", file=self.file)

    def report(self, arrival_s: "pd.Series[float]", **more: float) -> ImportReport:
        span_s = float(arrival_s.max() - arrival_s.min())
        notes = tuple(self.notes)
        return ImportReport(self.file, self.rows, len(self.cells), dict(self.left_out), span_s, notes=notes, **more)

    def _judge_zeros(
        self, column: str, kind: "pd.Series[str]", seconds: "pd.Series[float]", zero: str
    ) -> "pd.Series[str]":
        # A trace may begin at 0, and 0 may stand for what began before it.
        zeros, others = int((kind == "zero").sum()), np.unique(seconds[kind == _SECONDS])
        if not zeros or zero == "unknown":
            return kind
        if zero == "judge" and len(others) > 1:
            if others[0] > ISOLATED * (others[-1] - others[0]):
                return kind
            if others[0] > STANDS_OFF * np.diff(others).max():
                what = f"{zeros:,} x 0 in {column} taken as a moment, {number(others[0])} s before the next one"
                self.notes.append(f'{what} (if it means unknown: zero="unknown")')
        return kind.replace({"zero": _SECONDS})

    def _require_unit(self, column: str, unit: str | None) -> None:
        named = next((each for each, names in _UNIT_NAMES.items() if _names(column, names)), "s")
        good, action = unit is not None or named == "s", f"State the unit of the column, such as {named!r}."
        expected = "seconds, unless a unit is stated"
        require(column, f"a name in {named}", good, expected, action, file=self.file, row=1)

    def _require_scale(self, column: str, scale: str) -> None:
        other = next((name for name, each in self._scales.items() if each != scale), "")
        found = f"{scale}, where {other} has {self._scales.get(other)}"
        action = "Choose columns whose moments can be compared."
        require(column, found, not other, "one kind of moments in a table", action, file=self.file)
        self._scales[column] = scale

    def _leave_out_faults(self, bad: "pd.Series[bool]", check: Callable[[Row], object]) -> None:
        # `check` raises the error of a bad row.
        for line, cells in zip(bad.index[bad], self.cells[bad].to_dict(orient="records"), strict=True):
            try:
                check(Row(self.file, int(line), {str(name): str(cell) for name, cell in cells.items()}))
            except RowError as error:
                self._count(error)
        self.cells, self.parsed = self.cells[~bad], self.parsed[~bad]

    def _count(self, error: RowError) -> None:
        if not self._skip_bad:
            raise error
        self.left_out[f"{error.column}: {error.reason}" if error.column else error.reason] += 1


def read_foreign(
    path: str | Path,
    columns: Sequence[str],
    *,
    headers: Sequence[Sequence[str]] = (),
    delimiter: str = ",",
    skip_bad: bool = False,
) -> ForeignTable:
    """Return the rows of a CSV file that must have `columns`; others may hold anything. `headers` as in `read_rows`.

    Raises:
        InputError: as `read_rows`, a missing column, or, unless `skip_bad`, a row with too few or too many cells.
    """
    rows = read_rows(path, headers=headers, delimiter=delimiter)
    header = cast(Header, next(rows))
    header.require(columns)
    faults: list[RowError] = []
    lines: list[int] = []
    cells: list[tuple[str, ...]] = []
    for row in rows:
        if isinstance(row, RowError):
            if not skip_bad:
                raise row
            faults.append(row)
        elif isinstance(row, Row):
            lines.append(row.line)
            cells.append(tuple([row.cells[name] for name in columns]))
    frame = pd.DataFrame(cells, columns=list(columns), index=lines, dtype=str)
    others = [name for name in header.columns if name not in columns]
    return ForeignTable(Path(path), frame, faults, skip_bad=skip_bad, others=others)


def columns_of(path: str | Path) -> tuple[str, ...]:
    """Return the columns of a CSV file; errors as `read_rows`."""
    return cast(Header, next(read_rows(path))).columns


def _to_numbers(text: "pd.Series[str]") -> "pd.Series[float]":
    return pd.to_numeric(text, errors="coerce").astype(np.float64)


def _finite(value: "pd.Series[float]") -> "pd.Series[bool]":
    return pd.Series(np.isfinite(value.to_numpy()), index=value.index, dtype=bool)


def _check_number(row: Row, column: str, least: float, above: bool, most: float, *, whole: bool) -> None:
    if whole:
        row.whole(column, least=int(least), most=None if most == np.inf else int(most))
    else:
        row.number_of(column, least=least, above=above, most=most)
    raise row.error(column, "not a number", "a number", "Correct the number.")


def _moments(
    text: "pd.Series[str]", scale_s: float | None
) -> tuple["pd.Series[str]", "pd.Series[float]", "pd.Series[pd.Timestamp]"]:
    # The kind of each cell; its seconds, if it is a number; its date, if it is one.
    value = _to_numbers(text) * (scale_s or 1.0)
    kind = pd.Series("no moment", index=text.index)
    date = pd.Series(pd.NaT, index=text.index, dtype="datetime64[ns]")

    numeric = _finite(value)
    kind[numeric] = "outside 2000 to 2100"
    kind[numeric & (value < EPOCH_S[0])] = _SECONDS
    kind[numeric & (value < 0)] = "negative"
    kind[value == 0] = "zero"
    units: tuple[Literal["s", "ms", "us", "ns"], ...] = ("s", "ms", "us", "ns")
    for unit in units[:1] if scale_s else units:
        low, high = (each / UNITS_S[unit] for each in EPOCH_S)
        inside = numeric & value.between(low, high)
        kind[inside] = f"{unit} since 1970"
        date[inside] = pd.to_datetime(value[inside].to_numpy(), unit=unit)
    for name, (low, high, form) in _COMPACT.items():
        whole = value[numeric & value.between(low, high) & (value % 1 == 0) & (scale_s is None)]
        found = pd.to_datetime(whole.astype(np.int64).astype(str), format=form, errors="coerce").dropna()
        kind[found.index] = name
        date[found.index] = found
    words = text[~numeric]
    for name, pattern in _TEXTS.items():
        written = words[words.str.fullmatch(pattern)].str.replace("/", "-").str.replace(r" ?UTC$", "Z", regex=True)
        found = pd.to_datetime(written, format="ISO8601", utc=True, errors="coerce").dropna().dt.tz_localize(None)
        kind[found.index] = "outside 2000 to 2100"
        found = found[found.dt.year.between(2000, 2099)]
        kind[found.index] = name
        date[found.index] = found
    return kind, value, date


def _names(column: str, unit: str) -> bool:
    return re.search(rf"(?:_|\[|\(| )(?:{unit})[\])]?$", column, re.IGNORECASE) is not None
