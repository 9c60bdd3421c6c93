"""Long tables, one value a row with its unit and source, such as `data/gpus.csv` and `data/workloads.csv`."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heshare.shared.errors import InputError, require
from heshare.shared.inputs.csv_table import Row, read_table

TEXT, WHOLE, CLOCKS = "text", "whole", "MHz"
"""Kinds of a field: a text, a whole number, a grid of clocks in MHz. Others are the unit of a number."""
_GRID = re.compile(r"^(\d+:\d+:[1-9]\d*|\d+( \d+)*)$")


class Field(NamedTuple):
    """What a field may hold.

    Attributes:
        kind: `TEXT`, `WHOLE`, `CLOCKS`, or the unit of a number.
        least: the smallest number. Bounds are wide: they refuse a value in another unit, such as mW for W.
        most: the largest number.
        names: the known texts; empty: any.
        action: what to do about another text.
    """

    kind: str
    least: float = 0.0
    most: float = math.inf
    names: Sequence[str] = ()
    action: str = "Choose one."


def read_facts(
    path: str | Path, key: str, fields: Mapping[str, Field], *, optional: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return {name: {field: value}} of a long table; rows of one name need not be together.

    The CSV file has the columns `key`, `field`, `value`, `unit` (and others, which are not read), `key` being that of
    names. `optional` has those of `fields` that a name may lack. Rows of other fields are skipped.

    Raises:
        InputError: a missing column, an empty or doubled value, a wrong unit, something that is not a number, a number
            out of its field's bounds, an unknown text, or a name without one of the fields.
    """
    table: dict[str, dict[str, Any]] = {}
    for row in read_table(path, (key, "field", "value", "unit")):
        name, field = row.text(key), row.text("field")
        facts = table.setdefault(name, {})
        if field in facts:
            raise row.error("field", "doubled", f"each field once for {name}", "Remove one of the rows.")
        if field in fields:
            facts[field] = _value(row, name, field, fields[field])
    required = [field for field in fields if field not in optional]
    for name, facts in table.items():
        missing = [field for field in required if field not in facts]
        found, expected = f"{name} without {', '.join(missing)}", "a row for each of " + ", ".join(required)
        require("field", found, not missing, expected, "Add the rows, with unit and source.", file=path)
    return table


def _value(row: Row, name: str, field: str, known: Field) -> Any:
    unit = "" if known.kind in (TEXT, WHOLE) else known.kind
    if unit and row.cells["unit"] != unit:
        raise row.error("unit", "wrong unit", f"{unit} for {field} of {name}", f"Convert the value to {unit}.")
    try:
        return _parsed(row, known)
    except InputError as error:
        # The cell alone does not say what it is the value of.
        what = f"{field} of {name}" + f" in {unit}" * bool(unit)
        expected = f"{error.expected} for {what}"
        raise InputError(error.found, expected, error.action, file=row.file, row=row.line, column="value") from None


def _parsed(row: Row, known: Field) -> Any:
    if known.kind == TEXT:
        text = row.text("value")
        if known.names and text not in known.names:
            raise row.error("value", "unknown", "one of " + ", ".join(known.names), known.action)
        return text
    if known.kind == WHOLE:
        return row.whole("value", least=int(known.least), most=None if known.most == math.inf else int(known.most))
    if known.kind == CLOCKS:
        return _clocks(row, known)
    return row.number_of("value", least=known.least, most=known.most)


def _clocks(row: Row, known: Field) -> tuple[int, ...]:
    text = row.text("value")
    if not _GRID.match(text):
        raise row.error("value", "no clocks", "clocks such as 300:1590:15 or 300 315 330", "Correct the grid.")
    numbers = [int(part) for part in re.split("[: ]", text)]
    clocks = range(numbers[0], numbers[1] + 1, numbers[2]) if ":" in text else numbers

    ends = numbers[:2] if ":" in text else numbers
    if min(ends) < known.least or max(ends) > known.most:
        expected = f"clocks of at least {known.least:g} and at most {known.most:g}"
        raise row.error("value", "out of bounds", expected, "Correct the grid.")
    if not clocks or list(clocks) != sorted(set(clocks)):
        raise row.error("value", "not ascending", "clocks in ascending order", "Correct the grid.")
    return tuple(clocks)
