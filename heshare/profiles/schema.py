"""The one schema of a measurement row, and what is said of a row that breaks it.

A row is one task observed on one GPU at one setting, alone or beside co-runners. Alone at 100 % and at the top clock it
is a *reference row*: it tells the task features of Table II.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from heshare.errors import InputError
from heshare.profiles.columns import PROVENANCES, parse_co_runners
from heshare.world.catalogue import gpus, models
from heshare.world.workload import ENGINES, PRECISIONS

ENERGY_SLACK = 1.5
"""How far `energy_j` may be from `power_w` x `time_s`, as a ratio: beyond repeat noise, below any slip of unit."""
POWER_SLACK = 1.3
"""How far a board may overshoot its power limit for a moment, as a ratio."""

_KEY = ["gpu", "provenance", "workload", "batch_size", "precision", "engine", "mps_pct", "sm_mhz", "co_runners"]


class Profile(pa.DataFrameModel):
    """A table of measurements; units end the names, `heshare.profiles.columns` says what each column means."""

    gpu: Series[str]
    provenance: Series[str]
    workload: Series[str]
    batch_size: Series[int]
    precision: Series[str]
    engine: Series[str]
    mps_pct: Series[int]
    sm_mhz: Series[int]
    sm_mhz_reached: Series[float]
    co_runners: Series[str]
    time_s: Series[float]
    time_std_s: Series[float]
    power_w: Series[float]
    power_std_w: Series[float]
    energy_j: Series[float]
    sm_util_pct: Series[float] = pa.Field(nullable=True)
    dram_util_pct: Series[float] = pa.Field(nullable=True)
    l2_util_pct: Series[float] = pa.Field(nullable=True)
    idle_w: Series[float]
    repeats: Series[int]
    throttled: Series[bool]

    class Config:
        """Exactly these columns, in this order."""

        strict = True
        ordered = True

    @pa.check("gpu", name="gpu")
    def _gpu(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.isin(list(gpus()))

    @pa.check("workload", name="workload")
    def _workload(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.isin(list(models()))

    @pa.check("provenance", name="provenance")
    def _provenance(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.isin(PROVENANCES)

    @pa.check("precision", name="precision")
    def _precision(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.isin(PRECISIONS)

    @pa.check("engine", name="engine")
    def _engine(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.isin(ENGINES)

    @pa.check("batch_size", name="batch_size")
    def _batch_size(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.between(1, 1024)

    @pa.check("mps_pct", name="mps_pct")
    def _mps_pct(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.between(1, 100)

    @pa.check("co_runners", name="co_runners")
    def _co_runners(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.map(_readable)

    @pa.check("repeats", name="repeats")
    def _repeats(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column >= 1

    @pa.check("time_s", name="time_s")
    def _time(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.between(0, 3600, inclusive="right")

    @pa.check("^(sm|dram|l2)_util_pct$", regex=True, name="util_pct")
    def _util(cls, column: pd.Series) -> pd.Series:  # noqa: N805
        return column.between(0, 100) | column.isna()

    @pa.dataframe_check(name="sm_mhz")
    def _clock(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        grid = {name: frozenset(card.clocks_mhz) for name, card in gpus().items()}
        offered = [mhz in grid.get(name, (mhz,)) for name, mhz in zip(table["gpu"], table["sm_mhz"], strict=True)]
        return pd.Series(offered, index=table.index)

    @pa.dataframe_check(name="sm_mhz_reached")
    def _reached(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return (table["sm_mhz_reached"] > 0) & (table["sm_mhz_reached"] <= 1.02 * table["sm_mhz"])

    @pa.dataframe_check(name="power_w")
    def _power(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return (table["power_w"] >= 0.8 * table["idle_w"]) & (table["power_w"] <= POWER_SLACK * _tdp_w(table))

    @pa.dataframe_check(name="idle_w")
    def _idle(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return (table["idle_w"] > 0) & (table["idle_w"] <= 0.6 * _tdp_w(table))

    @pa.dataframe_check(name="energy_j")
    def _energy(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        ratio = table["energy_j"] / (table["power_w"] * table["time_s"])
        return ratio.between(1 / ENERGY_SLACK, ENERGY_SLACK) | (table["time_s"] <= 0) | (table["power_w"] <= 0)

    @pa.dataframe_check(name="time_std_s")
    def _time_std(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return (table["time_std_s"] >= 0) & ((table["time_std_s"] <= table["time_s"]) | (table["time_s"] <= 0))

    @pa.dataframe_check(name="power_std_w")
    def _power_std(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return (table["power_std_w"] >= 0) & (table["power_std_w"] <= table["power_w"])

    @pa.dataframe_check(name="sm_util_pct")
    def _sm_hole(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return _told(table, "sm_util_pct")

    @pa.dataframe_check(name="dram_util_pct")
    def _dram_hole(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return _told(table, "dram_util_pct")

    @pa.dataframe_check(name="l2_util_pct")
    def _l2_hole(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return _told(table, "l2_util_pct")

    @pa.dataframe_check(name="duplicate")
    def _duplicate(cls, table: pd.DataFrame) -> pd.Series:  # noqa: N805
        return ~table.duplicated(_KEY)


class _Rule(NamedTuple):
    """What to say when a check fails; `{...}` are filled from the row and its GPU."""

    column: str
    expected: str
    action: str


_RULES: dict[str, _Rule] = {
    "gpu": _Rule("gpu", "one of {gpus}", "Correct the name, or describe the GPU in data/gpus.csv."),
    "workload": _Rule("workload", "one of {models}", "Correct the name, or describe it in data/workloads.csv."),
    "provenance": _Rule("provenance", " or ".join(PROVENANCES), "Say where the row comes from."),
    "precision": _Rule("precision", " or ".join(PRECISIONS), "Correct the precision."),
    "engine": _Rule("engine", " or ".join(ENGINES), "Correct the engine."),
    "batch_size": _Rule("batch_size", "an inference batch size from 1 to 1024", "Correct the batch size."),
    "mps_pct": _Rule("mps_pct", "an MPS percentage from 1 to 100", "Write the share in %, not as a fraction."),
    "co_runners": _Rule(
        "co_runners",
        "nothing, or known workloads such as vgg19:8@50+bert_large:4@20, in that order",
        "Write each co-runner as model:batch_size@mps_pct, sorted, joined by +.",
    ),
    "repeats": _Rule("repeats", "at least 1", "Correct the number of repeats."),
    "time_s": _Rule(
        "time_s", "seconds per iteration, above 0 and at most 3600", "Convert to seconds, or record again."
    ),
    "util_pct": _Rule("", "a percentage from 0 to 100", "Convert to per cent."),
    **{
        name: _Rule(
            name, "a percentage (nan only in measured rows, where the card cannot tell)", "Record this point again."
        )
        for name in ("sm_util_pct", "dram_util_pct", "l2_util_pct")
    },
    "sm_mhz": _Rule(
        "sm_mhz", "a clock of the grid of {gpu}, {low} to {high} MHz", "Write the clock that was requested, in MHz."
    ),
    "sm_mhz_reached": _Rule(
        "sm_mhz_reached", "above 0 and at most the requested {sm_mhz} MHz", "Write the clock reached, in MHz."
    ),
    "idle_w": _Rule("idle_w", "watts above 0 and well below the limit of {gpu} ({tdp_w:g} W)", "Convert to W."),
    "power_w": _Rule(
        "power_w",
        "watts between idle ({idle_w} W) and the limit of {gpu} ({tdp_w:g} W)",
        "Convert to W if the figure is in mW, or record again.",
    ),
    "energy_j": _Rule(
        "energy_j",
        "about power_w x time_s = {power_w:g} W x {time_s:g} s",
        "Convert time_s to s, power_w to W and energy_j to J, whichever is in another unit.",
    ),
    "time_std_s": _Rule("time_std_s", "seconds from 0 to time_s = {time_s:g} s", "Convert to seconds."),
    "power_std_w": _Rule("power_std_w", "watts from 0 to power_w = {power_w:g} W", "Convert to W."),
    "duplicate": _Rule("workload", "each setting once", "Delete one of the rows that share this setting."),
}


def check(table: pd.DataFrame, *, file: str | Path | None = None, first_row: int = 2) -> pd.DataFrame:
    """Return `table` if every row keeps the schema.

    Args:
        table: measurements, columns as in `Profile`, index 0 .. n-1.
        file: named in the message.
        first_row: the row of the file that holds the table's first row.

    Raises:
        InputError: the first bad cell by row and column, and how many more there are.
    """
    try:
        Profile.validate(table, lazy=True)
    except pa.errors.SchemaErrors as errors:
        raise _first(errors.failure_cases, table, file, first_row) from None
    return table


def _first(cases: pd.DataFrame, table: pd.DataFrame, file: str | Path | None, first_row: int) -> InputError:
    """The error for the first bad cell, by row and then by the order of `_RULES`."""
    cells = cases[cases["index"].notna() & cases["check"].isin(list(_RULES))]
    if cells.empty:
        return _shape(table, file)
    ranks = {name: rank for rank, name in enumerate(_RULES)}
    triples = zip(cells["index"], cells["check"], cells["column"], strict=True)
    spots = sorted({(int(at), ranks[name], name, _RULES[name].column or str(where)) for at, name, where in triples})
    index, _, name, column = spots[0]
    more = len({(spot[0], spot[3]) for spot in spots}) - 1
    return InputError(
        file=file,
        row=first_row + index,
        column=column,
        found=_found(name, column, table.iloc[index]),
        expected=_RULES[name].expected.format_map(_values(table.iloc[index])),
        action=_RULES[name].action + (f" ({more} more such cells.)" if more else ""),
    )


def _found(name: str, column: str, row: pd.Series) -> str:
    if name == "duplicate":
        return f"{row['workload']}:{row['batch_size']}@{row['mps_pct']} at {row['sm_mhz']} MHz a second time"
    value = row[column]
    text = repr(value) if isinstance(value, str) else f"{value}"
    return f"{text} MHz" if column.startswith("sm_mhz") else text


def _values(row: pd.Series) -> dict[str, object]:
    card = gpus().get(row["gpu"])
    cells = {str(name): value for name, value in row.items()}
    return {
        **cells,
        "gpus": ", ".join(gpus()),
        "models": ", ".join(models()),
        "low": card.clocks_mhz[0] if card else "?",
        "high": card.max_mhz if card else "?",
        "tdp_w": card.tdp_w if card else float("nan"),
    }


def _shape(table: pd.DataFrame, file: str | Path | None) -> InputError:
    expected = list(Profile.to_schema().columns)
    return InputError(
        file=file,
        found="columns " + ", ".join(f"{name} ({kind})" for name, kind in table.dtypes.items()),
        expected="the columns " + ", ".join(expected) + " without holes",
        action="Read the table with heshare.profiles.store.read, or make it with the recorder.",
    )


def _told(table: pd.DataFrame, column: str) -> pd.Series:
    """A utilisation may be missing where it was measured by a card that has no such counter."""
    return table[column].notna() | (table["provenance"] == "measured")


def _tdp_w(table: pd.DataFrame) -> pd.Series:
    limits = {name: card.tdp_w for name, card in gpus().items()}
    return table["gpu"].map(limits).fillna(float("inf")).astype(float)


def _readable(text: str) -> bool:
    try:
        parse_co_runners(text)
    except InputError:
        return False
    return True
