"""Tables as text: CSV with every digit, Markdown for reading, and plain columns for a terminal."""

import math
from numbers import Integral, Real

import pandas as pd

from heshare.shared.html_tables import head

_ROMAN = {"table1": "I", "table2": "II", "table3": "III", "table4": "IV", "table5": "V"}
"""The numbers of the paper's tables."""
_NOISE = 1e-12
"""Numbers of tables below this are rounding errors of sums: zero."""


def to_csv(frame: pd.DataFrame) -> str:
    """Return the frame as CSV text without its index, Unix line ends, floats to the last digit."""
    return frame.to_csv(index=False, lineterminator="\n")


def to_markdown(frame: pd.DataFrame) -> str:
    """Return the frame as a Markdown table with readable headings and aligned columns, numbers to the right."""
    heads, *body = _aligned(frame.rename(columns=lambda name: cell(head(str(name)))), least=3)
    rule = "|".join(
        "-" * (len(text) + 1) + (":" if numeric else "-")
        for text, numeric in zip(heads, _are_numeric(frame), strict=True)
    )
    lines = [f"| {' | '.join(row)} |" for row in (heads, *body)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]]) + "\n"


def to_text(frame: pd.DataFrame) -> str:
    """Return the frame as aligned columns, for a terminal."""
    return "\n".join("  ".join(row).rstrip() for row in _aligned(frame, least=0))


def cell(value: object) -> str:
    """Return one cell as readable text: four significant digits, yes and no, nothing for a missing value."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return _number(float(value))
    return str(value).replace("|", "\\|").replace("\n", " ")


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    if abs(value) < _NOISE:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 and math.isfinite(value) else f"{value:.4g}"


def heading(name: str) -> str:
    """Return the heading of an output: `Table V` for `table5_predictors`, `Fig. 6` for `fig06_comparison`."""
    key = name.split("_")[0]
    if key.startswith("fig"):
        return f"Fig. {int(key[3:])}"
    return f"Table {_ROMAN.get(key, key)}"


def _aligned(frame: pd.DataFrame, least: int) -> list[list[str]]:
    """Return heading and rows as text, each column padded to its width, which is at least `least`."""
    rows = [[str(column) for column in frame.columns]]
    rows += [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    widths = [max(least, *map(len, texts)) for texts in zip(*rows, strict=True)]
    numeric = _are_numeric(frame)

    return [
        [
            text.rjust(width) if to_the_right else text.ljust(width)
            for text, width, to_the_right in zip(row, widths, numeric, strict=True)
        ]
        for row in rows
    ]


def _are_numeric(frame: pd.DataFrame) -> list[bool]:
    return [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes]
