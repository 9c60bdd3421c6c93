"""Sources of measured values: the published CSV, the column and the row in which a value stands, as text.

Such as `x05c_forms.csv: change_pct where ours=Trade-off; rival=Morak`.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from heshare.shared.errors import InputError

_AT, _WHERE, _AND = ".csv: ", " where ", "; "


def source(name: str, column: str, **row: object) -> str:
    """Return the text of a source: an output by its name, a column, and the cells that single out the row."""
    cells = _AND.join(f"{key}={value}" for key, value in row.items())
    return f"{name}{_AT}{column}{_WHERE}{cells}"


def claim_of_row(
    table: pd.DataFrame, name: str, value: str = "value", low: str = "low", high: str = "high", **where: object
) -> dict[str, Any]:
    """Return one row of a table that is published as `name` as arguments of a claim, with its source.

    Args:
        table: has the columns `value`, `low`, `high` and n.
        name: the output.
        value: the column of the measured value.
        low: that of the lower end of its interval.
        high: that of the upper end.
        **where: the cells that single out the row.

    Raises:
        InputError: not exactly one row has these cells.
    """
    rows = table
    for key, cell in where.items():
        rows = rows[rows[key].astype(str) == str(cell)]
    text = source(name, value, **where)
    if len(rows) != 1:
        raise InputError(f"{len(rows)} rows of {text!r}", "one row", "Correct the cells that single it out.")
    row: Any = rows.iloc[0]
    numbers = {"measured": float(row[value]), "low": float(row[low]), "high": float(row[high]), "n": int(row["n"])}
    return {**numbers, "provenance": "emulated", "source": text}


def look_up(folder: Path, text: str) -> float:
    """Return the value that a source names, from the outputs in `folder`.

    Raises:
        InputError: the file, the column or exactly one such row is not there.
    """
    name, _, rest = text.partition(_AT)
    column, _, cells = rest.partition(_WHERE)
    path = folder / f"{name}.csv"
    found = pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame()
    for cell in cells.split(_AND):
        key, _, value = cell.partition("=")
        found = found[found[key].astype(str) == value] if key in found else found.iloc[:0]
    if len(found) != 1 or column not in found:
        raise InputError(
            f"{len(found)} rows of {text!r}", "one row", "Correct the claim's source in its notebook.", file=path
        )
    return float(found[column].item())
