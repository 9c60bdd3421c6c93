"""Sources of measured values: the published CSV, the column and the row in which a value stands, as text.

Such as `x05c_forms.csv: change_pct where ours=Trade-off; rival=Morak`.
"""

from pathlib import Path

import pandas as pd

from heshare.errors import InputError

_AT, _WHERE, _AND = ".csv: ", " where ", "; "


def source(name: str, column: str, **row: object) -> str:
    """Return the text of a source: an output by its name, a column, and the cells that single out the row."""
    cells = _AND.join(f"{key}={value}" for key, value in row.items())
    return f"{name}{_AT}{column}{_WHERE}{cells}"


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
