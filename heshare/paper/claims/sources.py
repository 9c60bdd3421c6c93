"""Sources of measured values: the published CSV, the column and the row in which a value stands, as text.

Such as `x05c_forms.csv: change_pct where ours=Trade-off; rival=Morak`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.paper.claims.verdicts import paper_claims
from heshare.shared.errors import InputError


def claim_of_row(
    table: pd.DataFrame, id: str, part: str = "", *, low: str = "low", high: str = "high", **at: object
) -> dict[str, Any]:
    """Return the row of a table that the source of a claim names, as arguments of `claim_table.evaluate_claim`.

    `table` is, or will be, published under the source's name, and has the column `n`; `low` and `high` are its columns
    with the ends of the interval. `at` fills in what the source leaves open.

    Raises:
        InputError: not exactly one row has the source's cells.
    """
    name, column, cells = _parts(paper_claims()[id, part].source.format(**at))
    row = _row(table, cells, name)
    numbers = {"measured": float(row[column]), "low": float(row[low]), "high": float(row[high]), "n": int(row["n"])}
    return {**numbers, "provenance": "emulated", "at": at}


def look_up(folder: Path, text: str) -> float:
    """Return the value that a source names, from the outputs in `folder`."""
    name, column, cells = _parts(text)
    path = folder / name
    found = pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame()
    return float(_row(found, cells, name, column)[column])


def _parts(text: str) -> tuple[str, str, dict[str, str]]:
    name, _, rest = text.partition(": ")
    column, _, cells = rest.partition(" where ")
    return name, column, {key: value for key, _, value in (cell.partition("=") for cell in cells.split("; "))}


def _row(table: pd.DataFrame, cells: Mapping[str, str], name: str, *columns: str) -> Any:
    rows = table
    for key, cell in cells.items():
        rows = rows[rows[key].astype(str) == cell] if key in rows else rows.iloc[:0]
    if len(rows) != 1 or not {*columns} <= {*rows}:
        words = "; ".join(f"{key}={cell}" for key, cell in cells.items())
        raise InputError(f"{len(rows)} rows where {words}", "one row", "Correct the claim's source.", file=name)
    return rows.iloc[0]
