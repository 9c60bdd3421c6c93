"""Profile tables as CSV files: read and written whole or not at all, floats exact, rows in one order."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import cast

import pandas as pd

from heshare.profiles import manifest
from heshare.profiles.schema import COLUMNS, NAMES, UTILISATIONS, Column, check
from heshare.shared import files
from heshare.shared.errors import InputError, require
from heshare.shared.files import write_atomic
from heshare.shared.inputs.csv_table import Header, Row, RowError, read_rows
from heshare.world.catalogue import PAPER_GPUS

ORDER = ["gpu", "workload", "batch_size", "precision", "engine", "co_runners", "mps_pct", "sm_mhz", "provenance"]
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|-?\.[0-9]+")
_UNITS = re.compile(r"_(ns|us|ms|s|min|h|mw|w|kw|mj|j|kj|wh|khz|mhz|ghz|hz|pct|percent|frac)$", re.IGNORECASE)


def read(path: str | Path) -> pd.DataFrame:
    """Return the measurements of one CSV file, or of every `profile.csv` below a folder, sorted by `ORDER`.

    A table with a manifest in its folder is checked against it.

    Raises:
        InputError: the first bad cell, or a table that was changed after it was recorded; nothing is read then.
    """
    path = Path(path)
    tables = sorted(path.rglob("profile.csv")) if path.is_dir() else [path]
    found = "no profile.csv below this folder" if path.is_dir() else "no such file"
    good = bool(tables) and all(table.is_file() for table in tables)
    require(None, found, good, "a profile table", "Record one with `heshare profile`.", file=path)
    return _sorted(pd.concat(list(map(_read_one, tables)), ignore_index=True))


def read_shipped() -> pd.DataFrame:
    """Return the emulated profiles of the paper's GPUs that the checkout carries.

    Further GPUs may have theirs in the same folder: they are read when the folder is named, so that they do not move
    the schedulers' predictor.
    """
    return _sorted(pd.concat([read(path) for path in shipped_files()], ignore_index=True))


def shipped_files() -> list[Path]:
    """Return the tables that `read_shipped` reads."""
    return [files.data("profiles", "emulated", name, "profile.csv") for name in PAPER_GPUS]


def write(table: pd.DataFrame, path: str | Path) -> Path:
    """Write measurements, rows sorted by `ORDER`, floats exactly; for a bad row nothing, and an `InputError`."""
    table = _sorted(check(table.reset_index(drop=True)))
    return write_atomic(path, lambda temporary: temporary.write_text(as_csv(table), encoding="utf-8", newline="\n"))


def as_csv(table: pd.DataFrame) -> str:
    """Return a table as CSV text with a header."""
    rows = zip(*(map(_text, table[name].tolist()) for name in NAMES), strict=True)
    return "\n".join(map(",".join, [NAMES, *rows])) + "\n"


def make_table(rows: Iterable[Sequence[object]]) -> pd.DataFrame:
    """Return a table from rows of cells in the order of `COLUMNS`, each column of its type."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    dtypes = {str: "str", int: "int64", float: "float64", bool: "bool"}
    return pd.DataFrame(
        {
            column.name: pd.Series(cells, dtype=dtypes[column.kind])
            for column, cells in zip(COLUMNS, columns, strict=True)
        }
    )


def parse_row(row: Row | RowError) -> list[object]:
    """Return the values of one row of text, or an `InputError` for cells that are not of their column's type."""
    if isinstance(row, RowError):
        raise row
    return [_value(row.cells[column.name], column, row.file, row.line) for column in COLUMNS]


def _read_one(path: Path) -> pd.DataFrame:
    rows = [parse_row(row) for row in read_profile_rows(path)]
    if not rows:
        raise InputError("no rows", "at least one measurement", "Record the profile again.", file=path, row=2)
    table = check(make_table(rows), file=path)
    manifest.verify(path)
    return table


def read_profile_rows(path: Path) -> Iterator[Row | RowError]:
    """Yield the rows of a profile; `InputError` for a file that is none, or has other columns than the schema."""
    lines = read_rows(path)
    _check_header(cast(Header, next(lines)).columns, path)
    yield from cast(Iterator[Row | RowError], lines)


def _check_header(header: Sequence[str], path: Path) -> None:
    """Raise `InputError` unless a header has the columns of the schema, in their order."""
    found, expected = f"the line {header[0][:60]!r}" if header else "an empty file", "a CSV header: " + ",".join(NAMES)
    action = "Record the profile again, or export the table as CSV."
    require(None, found, len(header) > 1, expected, action, file=path, row=1)
    unknown = [name for name in header if name not in NAMES]
    missing = next((column for column in NAMES if column not in header), None)
    if missing is not None:
        raise _missing_column(missing, unknown, path)
    for name in unknown:
        raise InputError("an unknown column", ", ".join(NAMES), "Remove it.", file=path, row=1, column=name)
    if list(header) != list(NAMES):
        raise InputError(
            "columns in another order", ",".join(NAMES), "Put the columns in this order.", file=path, row=1
        )


def _missing_column(column: str, unknown: list[str], path: Path) -> InputError:
    stem = _UNITS.sub("", column)
    similar = [name for name in unknown if name.lower() == stem or _UNITS.sub("", name.lower()) == stem]
    similar = similar or [name for name in unknown if get_close_matches(name.lower(), [column], cutoff=0.8)]
    if similar:
        unit = {name: unit for name, _, unit, _ in COLUMNS}[column]
        return InputError(
            f"a column {similar[0]}",
            f"a column {column}" + (f", in {unit}" if unit else ""),
            f"Rename it and convert its values to {unit}." if unit else "Rename it.",
            file=path,
            row=1,
            column=similar[0],
        )
    return InputError(
        "no such column",
        "it once",
        "Add the column; the header is " + ",".join(NAMES) + ".",
        file=path,
        row=1,
        column=column,
    )


def _value(text: str, column: Column, file: Path, row: int) -> object:
    if column.kind is str and (text or column.name == "co_runners"):
        return text
    if column.kind is bool and text in ("True", "False"):
        return text == "True"
    if column.kind is int and _WHOLE.fullmatch(text) and len(text) <= 15:
        return int(text)
    if column.kind is float:
        number = float(text) if _DECIMAL.fullmatch(text) else math.nan
        # The schema decides in which rows a utilisation may be missing.
        if math.isfinite(number) or (text == "nan" and column.name in UTILISATIONS):
            return number
    kinds = {str: "text", int: "a whole number", float: "a finite number", bool: "True or False"}
    unit = f" in {column.unit}" if column.unit else ""
    missing = text.strip().lower() in ("", "nan", "na", "null", "none")
    raise InputError(
        f"an empty cell ({text!r})" if missing else repr(text),
        kinds[column.kind] + unit,
        "Record this point again, or delete the row." if missing else "Write the bare value, without its unit.",
        file=file,
        row=row,
        column=column.name,
    )


def _text(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(ORDER, kind="stable", ignore_index=True)
