"""The profile schema: the columns of a profile table, and the rules that each of its rows must satisfy.

A row is one task measured on one GPU at one setting, alone or with co-runners (Section III-A). A row of a task alone
at 100 % and at the top clock is a *reference row*: it gives the task features of Table II.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from heshare.shared.errors import InputError, require
from heshare.world.catalogue import gpus, models, resident
from heshare.world.workload import DEFAULT_PRECISION, ENGINES, PRECISIONS, Resident, Workload

PROVENANCES = ("emulated", "measured", "published")
"""Sources of a row: an emulated device, a real one, or a publication."""
UTILISATIONS = ("sm_util_pct", "dram_util_pct", "l2_util_pct")
"""The columns of Table II's task features that a real GPU may be unable to measure."""
ENERGY_SLACK = 1.5
"""Largest ratio between `energy_j` and `power_w` x `time_s`: above repeat noise, below any wrong unit."""
POWER_SLACK = 1.3
"""Largest ratio between a board's power and its power limit, which boards exceed for moments."""


class Column(NamedTuple):
    """One column: its name, the type of its cells, its unit and its meaning."""

    name: str
    kind: type
    unit: str
    meaning: str


COLUMNS = (
    Column("gpu", str, "", "a name of data/gpus.csv"),
    Column("provenance", str, "", "emulated, measured or published"),
    Column("workload", str, "", "the measured task's model, a name of data/workloads.csv"),
    Column("batch_size", int, "samples", "its inference batch size"),
    Column("precision", str, "", "fp32, tf32, mixed or fp16, of the task and of its co-runners"),
    Column("engine", str, "", "eager or tensorrt, of the task and of its co-runners"),
    Column("mps_pct", int, "%", "its MPS percentage"),
    Column("sm_mhz", int, "MHz", "the SM clock requested"),
    Column("sm_mhz_reached", float, "MHz", "the SM clock reached, mean over the repeats"),
    Column(
        "co_runners",
        str,
        "",
        "the tasks that share its GPU, such as vgg19:8@50+bert_large:4@20, sorted; empty when alone",
    ),
    Column("time_s", float, "s", "time of one iteration of the measured task, mean over the repeats"),
    Column("time_std_s", float, "s", "its sample standard deviation over the repeats (0 for one repeat)"),
    Column("power_w", float, "W", "power of the whole board meanwhile, co-runners included, mean over the repeats"),
    Column("power_std_w", float, "W", "its sample standard deviation over the repeats (0 for one repeat)"),
    Column("energy_j", float, "J", "energy of the whole board during one iteration of the measured task"),
    Column("sm_util_pct", float, "%", "SM utilisation of the whole GPU; in a row alone, the task's own"),
    Column("dram_util_pct", float, "%", "memory bandwidth utilisation of the whole GPU; alone, the task's own"),
    Column("l2_util_pct", float, "%", "L2 cache utilisation of the whole GPU; alone, the task's own"),
    Column("idle_w", float, "W", "power of the board with nothing running (Table II's basic power)"),
    Column("repeats", int, "", "visits, one window each"),
    Column("throttled", bool, "", "whether a limit held the clock below the request in any window"),
)
NAMES = tuple(column.name for column in COLUMNS)
SETTING = ["gpu", "provenance", "workload", "batch_size", "precision", "engine", "mps_pct", "sm_mhz", "co_runners"]
"""The columns that identify a row."""


def write_co_runners(residents: Iterable[Resident]) -> str:
    """Return co-runners as text, sorted: `bert_large:4@20+vgg19:8@50`."""
    return "+".join(sorted(map(str, residents)))


def parse_co_runners(text: str, *, precision: str = DEFAULT_PRECISION, engine: str = "eager") -> tuple[Resident, ...]:
    """Return the co-runners that `write_co_runners` wrote; the empty text is none.

    Raises:
        InputError: another form, an unknown workload, or co-runners out of order (one set has one spelling).
    """
    if not text:
        return ()
    residents = tuple(resident(part, precision=precision, engine=engine) for part in text.split("+"))
    expected = write_co_runners(residents)
    if expected != text:
        raise InputError(repr(text), repr(expected), "Write the co-runners in full and sorted.", column="co_runners")
    return residents


def residents_of(row: Any) -> tuple[Resident, ...]:
    """Return the measured task of a row (of `DataFrame.itertuples`), then its co-runners."""
    workload = Workload(row.workload, row.batch_size, row.precision, row.engine)
    co_runners = parse_co_runners(row.co_runners, precision=row.precision, engine=row.engine)
    return (Resident(workload, row.mps_pct), *co_runners)


def co_runner_counts(table: pd.DataFrame) -> pd.Series:
    """Return the number of co-runners of each row."""
    return table["co_runners"].map(lambda text: len(text.split("+")) if text else 0)


def in_main_precision(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in the precision, FP16 apart, that most rows have; of as many the first by alphabet."""
    counts = table.loc[table["precision"] != "fp16", "precision"].value_counts().sort_index()
    return table[table["precision"] == counts.idxmax()] if len(counts) else table.iloc[:0]


class Rule(NamedTuple):
    """One requirement of the schema on the cells of a column, and the error for a cell that does not satisfy it.

    Attributes:
        column: the column that the error names.
        holds: maps a table of n rows to n booleans: whether each row satisfies the rule.
        expected: what is accepted; `{...}` are filled from the row, its GPU and the catalogue.
        action: what to do about it.
        found: how to show what was found; by default the cell's value.
    """

    column: str
    holds: Callable[[pd.DataFrame], pd.Series]
    expected: str
    action: str
    found: str = ""


def _is_offered(table: pd.DataFrame) -> pd.Series:
    grids = {name: frozenset(gpu.clocks_mhz) for name, gpu in gpus().items()}
    # An unknown GPU is reported by its own rule, not by its clock.
    pairs = zip(table["gpu"], table["sm_mhz"], strict=True)
    return pd.Series([mhz in grids.get(gpu, (mhz,)) for gpu, mhz in pairs], index=table.index, dtype=bool)


def _are_co_runners(table: pd.DataFrame) -> pd.Series:
    return table["co_runners"].map({text: _parses(text) for text in table["co_runners"].unique()}).astype(bool)


def _parses(text: str) -> bool:
    try:
        parse_co_runners(text)
    except InputError:
        return False
    return True


def _energy_agrees(table: pd.DataFrame) -> pd.Series:
    ratio = table["energy_j"] / (table["power_w"] * table["time_s"])
    # Without a positive time and power there is no ratio; their own rules report those.
    return ratio.between(1 / ENERGY_SLACK, ENERGY_SLACK) | (table["time_s"] <= 0) | (table["power_w"] <= 0)


def _tdp_w(table: pd.DataFrame) -> pd.Series:
    return table["gpu"].map({name: gpu.tdp_w for name, gpu in gpus().items()}).fillna(float("inf")).astype(float)


def _utilisation(column: str) -> Rule:
    return Rule(
        column,
        lambda table: table[column].between(0, 100) | (table[column].isna() & (table["provenance"] == "measured")),
        "a percentage from 0 to 100 (nan only in measured rows, where the GPU has no such counter)",
        "Convert to per cent, or record this point again.",
    )


# In this order, the first broken rule of the first bad row is the one to report.
RULES = (
    Rule(
        "gpu",
        lambda table: table["gpu"].isin(list(gpus())),
        "one of {gpus}",
        "Correct the name, or describe the GPU in data/gpus.csv.",
    ),
    Rule(
        "workload",
        lambda table: table["workload"].isin(list(models())),
        "one of {models}",
        "Correct the name, or describe it in data/workloads.csv.",
    ),
    Rule(
        "provenance",
        lambda table: table["provenance"].isin(PROVENANCES),
        " or ".join(PROVENANCES),
        "State the source of the row.",
    ),
    Rule(
        "precision",
        lambda table: table["precision"].isin(PRECISIONS),
        " or ".join(PRECISIONS),
        "Correct the precision.",
    ),
    Rule("engine", lambda table: table["engine"].isin(ENGINES), " or ".join(ENGINES), "Correct the engine."),
    Rule(
        "batch_size",
        lambda table: table["batch_size"].between(1, 1024),
        "an inference batch size from 1 to 1024",
        "Correct the batch size.",
    ),
    Rule(
        "mps_pct",
        lambda table: table["mps_pct"].between(1, 100),
        "an MPS percentage from 1 to 100",
        "Write the share in %, not as a fraction.",
    ),
    Rule(
        "co_runners",
        _are_co_runners,
        "nothing, or known workloads such as vgg19:8@50+bert_large:4@20, in that order",
        "Write each co-runner as model:batch_size@mps_pct, sorted, joined by +.",
    ),
    Rule("repeats", lambda table: table["repeats"] >= 1, "at least 1", "Correct the number of repeats."),
    Rule(
        "time_s",
        lambda table: table["time_s"].between(0, 3600, inclusive="right"),
        "seconds per iteration, above 0 and at most 3600",
        "Convert to seconds, or record again.",
    ),
    *map(_utilisation, UTILISATIONS),
    Rule(
        "sm_mhz",
        _is_offered,
        "a clock of the grid of {gpu}, {low} to {high} MHz",
        "Write the clock that was requested, in MHz.",
        found="{sm_mhz} MHz",
    ),
    Rule(
        "sm_mhz_reached",
        lambda table: (table["sm_mhz_reached"] > 0) & (table["sm_mhz_reached"] <= 1.02 * table["sm_mhz"]),
        "above 0 and at most the requested {sm_mhz} MHz",
        "Write the clock reached, in MHz.",
        found="{sm_mhz_reached} MHz",
    ),
    Rule(
        "idle_w",
        lambda table: (table["idle_w"] > 0) & (table["idle_w"] <= 0.6 * _tdp_w(table)),
        "watts above 0 and well below the limit of {gpu} ({tdp_w:g} W)",
        "Convert to W.",
    ),
    Rule(
        "power_w",
        lambda table: (table["power_w"] >= 0.8 * table["idle_w"]) & (table["power_w"] <= POWER_SLACK * _tdp_w(table)),
        "watts between idle ({idle_w} W) and the limit of {gpu} ({tdp_w:g} W)",
        "Convert to W if the figure is in mW, or record again.",
    ),
    Rule(
        "energy_j",
        _energy_agrees,
        "about power_w x time_s = {power_w:g} W x {time_s:g} s",
        "Convert time_s to s, power_w to W and energy_j to J, whichever is in another unit.",
    ),
    Rule(
        "time_std_s",
        lambda table: (table["time_std_s"] >= 0) & ((table["time_std_s"] <= table["time_s"]) | (table["time_s"] <= 0)),
        "seconds from 0 to time_s = {time_s:g} s",
        "Convert to seconds.",
    ),
    Rule(
        "power_std_w",
        lambda table: (table["power_std_w"] >= 0) & (table["power_std_w"] <= table["power_w"]),
        "watts from 0 to power_w = {power_w:g} W",
        "Convert to W.",
    ),
    Rule(
        "workload",
        lambda table: ~table.duplicated(SETTING),
        "each setting once",
        "Delete one of the rows that share this setting.",
        found="{workload}:{batch_size}@{mps_pct} at {sm_mhz} MHz a second time",
    ),
)


def check(table: pd.DataFrame, *, file: str | Path | None = None, first_row: int = 2) -> pd.DataFrame:
    """Return `table` if it has the columns of the schema and every row satisfies `RULES`.

    `file` is named in the message; its row `first_row` holds the table's first row.

    Raises:
        InputError: other columns, or the first bad cell by row and column, and how many more there are.
    """
    _check_columns(table, file)
    failures = _failures(table)
    if failures:
        row, rank = failures[0]
        cells = {(row, RULES[rank].column) for row, rank in failures}
        raise _bad_cell(RULES[rank], table.iloc[row], len(cells) - 1, file, first_row + row)
    return table


def _failures(table: pd.DataFrame) -> list[tuple[int, int]]:
    return sorted(
        (int(row), rank) for rank, rule in enumerate(RULES) for row in np.flatnonzero(~rule.holds(table).to_numpy())
    )


def broken_cells(table: pd.DataFrame, *, file: str | Path | None = None) -> list[tuple[int, InputError]]:
    """Return (row from 0, error) of every cell that breaks a rule, by row; the first broken rule of each cell."""
    failures = _failures(table)
    first = {(row, RULES[rank].column): rank for row, rank in reversed(failures)}
    return [
        (row, _bad_cell(RULES[rank], table.iloc[row], 0, file, 2 + row))
        for (row, _), rank in sorted(first.items(), key=lambda item: (item[0][0], item[1]))
    ]


def _check_columns(table: pd.DataFrame, file: str | Path | None) -> None:
    types: dict[type, Callable[[pd.Series], bool]] = {
        str: lambda cells: pd.api.types.is_string_dtype(cells) and not cells.hasnans,
        int: lambda cells: cells.dtype == "int64",
        float: lambda cells: cells.dtype == "float64",
        bool: lambda cells: cells.dtype == "bool",
    }
    good = list(table.columns) == list(NAMES) and all(types[kind](table[name]) for name, kind, *_ in COLUMNS)
    found = "columns " + ", ".join(f"{name} ({dtype})" for name, dtype in table.dtypes.items())
    names = ", ".join(f"{name} ({kind.__name__})" for name, kind, *_ in COLUMNS)
    action = "Read the table with heshare.profiles.store.read, or make it with the recorder."
    require(None, found, good, f"the columns {names}, no text missing", action, file=file)


def _bad_cell(rule: Rule, row: pd.Series, more: int, file: str | Path | None, number: int) -> InputError:
    value, gpu = row[rule.column], gpus().get(row["gpu"])
    facts: dict[str, object] = {
        **{str(name): cell for name, cell in row.items()},
        "gpus": ", ".join(gpus()),
        "models": ", ".join(models()),
        "low": gpu.clocks_mhz[0] if gpu else "?",
        "high": gpu.max_mhz if gpu else "?",
        "tdp_w": gpu.tdp_w if gpu else float("nan"),
    }
    return InputError(
        rule.found.format_map(facts) or (repr(value) if isinstance(value, str) else f"{value}"),
        rule.expected.format_map(facts),
        rule.action + (f" ({more} more such cells.)" if more else ""),
        file=file,
        row=number,
        column=rule.column,
    )
