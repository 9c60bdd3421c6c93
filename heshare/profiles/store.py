"""Profile tables on disk: CSV, read and written whole or not at all, floats exact, rows in one order."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from heshare.errors import InputError
from heshare.files import write_atomic
from heshare.profiles import manifest
from heshare.profiles.columns import COLUMNS, NAMES, Column
from heshare.profiles.schema import check

ORDER = ["gpu", "workload", "batch_size", "precision", "engine", "co_runners", "mps_pct", "sm_mhz", "provenance"]
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|-?\.[0-9]+")
_UNITS = re.compile(r"_(ns|us|ms|s|min|h|mw|w|kw|mj|j|kj|wh|khz|mhz|ghz|hz|pct|percent|frac)$", re.IGNORECASE)


def read(path: str | Path) -> pd.DataFrame:
    """The measurements of one CSV file, or of every `profile.csv` below a folder, in the one order.

    A table with a manifest beside it is checked against it.

    Raises:
        InputError: the first bad cell, with file, row, column, found, expected and what to do, or a table that was
            changed after it was recorded; nothing is read then.
    """
    path = Path(path)
    found = sorted(path.rglob("profile.csv")) if path.is_dir() else [path]
    if not found or not all(one.is_file() for one in found):
        raise InputError(
            file=path,
            found="no profile.csv below this folder" if path.is_dir() else "no such file",
            expected="a profile table",
            action="Record one with `heshare profile`.",
        )
    return _ordered(pd.concat([_read_one(one) for one in found], ignore_index=True))


def write(table: pd.DataFrame, path: str | Path) -> Path:
    """Write measurements to `path`, rows sorted, floats in the shortest form that reads back exactly.

    Raises:
        InputError: a row breaks the schema; nothing is written then.
    """
    table = _ordered(check(table.reset_index(drop=True)))
    return write_atomic(path, lambda temporary: temporary.write_text(as_csv(table), encoding="utf-8", newline="\n"))


def as_csv(table: pd.DataFrame) -> str:
    """A table as CSV text with a header."""
    rows = zip(*(map(_cell, table[name].tolist()) for name in NAMES), strict=True)
    return "\n".join(map(",".join, [NAMES, *rows])) + "\n"


def frame(rows: Iterable[Sequence[object]]) -> pd.DataFrame:
    """A table from rows of cells in the order of `COLUMNS`, each column of its kind."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    kinds = {str: "str", int: "int64", float: "float64", bool: "bool"}
    return pd.DataFrame(
        {
            column.name: pd.Series(cells, dtype=kinds[column.kind])
            for column, cells in zip(COLUMNS, columns, strict=True)
        }
    )


def parse_row(cells: Sequence[str], *, file: Path, row: int) -> list[object]:
    """The values of one row of text.

    Raises:
        InputError: too many or few cells, or a cell that is not of its column's kind.
    """
    if len(cells) != len(NAMES):
        raise InputError(
            file=file,
            row=row,
            found=f"{len(cells)} cells",
            expected=f"{len(NAMES)} cells, one for each column",
            action="Complete the row, or delete it.",
        )
    return [_value(text, column, file, row) for text, column in zip(cells, COLUMNS, strict=True)]


def _read_one(path: Path) -> pd.DataFrame:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = csv.reader(stream, strict=True)
            _check_header(next(lines, []), path)
            rows = [parse_row(cells, file=path, row=lines.line_num) for cells in lines]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            file=path, found=f"no CSV text ({error})", expected="CSV in UTF-8", action="Export the table as CSV."
        ) from None
    if not rows:
        raise InputError(
            file=path, row=2, found="no rows", expected="at least one measurement", action="Record the profile again."
        )
    table = check(frame(rows), file=path)
    manifest.verify(path)
    return table


def _check_header(found: Sequence[str], path: Path) -> None:
    if not found or len(found) == 1:
        raise InputError(
            file=path,
            row=1,
            found="an empty file" if not found else f"the line {found[0][:60]!r}",
            expected="a CSV header: " + ",".join(NAMES),
            action="Record the profile again, or export the table as CSV.",
        )
    for column in NAMES:
        if found.count(column) != 1:
            raise _bad_column(column, [name for name in found if name not in NAMES], found.count(column), path)
    for name in found:
        if name not in NAMES:
            raise InputError(
                file=path, row=1, column=name, found="an unknown column", expected=", ".join(NAMES), action="Remove it."
            )
    if list(found) != list(NAMES):
        raise InputError(
            file=path,
            row=1,
            found="columns in another order",
            expected=",".join(NAMES),
            action="Put the columns in this order.",
        )


def _bad_column(column: str, strange: list[str], times: int, path: Path) -> InputError:
    stem = _UNITS.sub("", column)
    other = [name for name in strange if name.lower() == stem or _UNITS.sub("", name.lower()) == stem]
    other = other or [name for name in strange if get_close_matches(name.lower(), [column], cutoff=0.8)]
    if other:
        unit = next(one.unit for one in COLUMNS if one.name == column)
        return InputError(
            file=path,
            row=1,
            column=other[0],
            found=f"a column {other[0]}",
            expected=f"a column {column}" + (f", in {unit}" if unit else ""),
            action=f"Rename it and convert its values to {unit}." if unit else "Rename it.",
        )
    return InputError(
        file=path,
        row=1,
        column=column,
        found="no such column" if times == 0 else f"the column {times} times",
        expected="it once",
        action="Add the column; the header is " + ",".join(NAMES) + ".",
    )


def _value(text: str, column: Column, file: Path, row: int) -> object:
    if column.kind is str and (text or column.name == "co_runners"):
        return text
    if column.kind is bool and text in ("True", "False"):
        return text == "True"
    if column.kind is int and _WHOLE.fullmatch(text) and len(text) <= 15:
        return int(text)
    if column.kind is float:
        number = _number(text)
        # The schema decides in which rows a card may be unable to tell a utilisation.
        if math.isfinite(number) or (text == "nan" and column.name.endswith("_util_pct")):
            return number
    kinds = {str: "text", int: "a whole number", float: "a finite number", bool: "True or False"}
    unit = f" in {column.unit}" if column.unit else ""
    hole = text.strip().lower() in ("", "nan", "na", "null", "none")
    raise InputError(
        file=file,
        row=row,
        column=column.name,
        found=f"a hole ({text!r})" if hole else repr(text),
        expected=kinds[column.kind] + unit,
        action="Record this point again, or delete the row." if hole else "Write the bare value, without its unit.",
    )


def _number(text: str) -> float:
    return float(text) if _DECIMAL.fullmatch(text) else math.nan


def _cell(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(ORDER, kind="stable", ignore_index=True)
