"""Tables as CSV (every digit) and Markdown (for reading)."""

from __future__ import annotations

import math
from numbers import Integral, Real

import pandas as pd


def to_csv(frame: pd.DataFrame) -> str:
    """The frame as CSV text without its index, Unix line ends, floats to the last digit."""
    return frame.to_csv(index=False, lineterminator="\n")


def cell(value: object) -> str:
    """One cell for reading: four significant digits, yes and no, nothing for a missing value."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return ""
        return f"{number:.0f}" if abs(number) >= 1000 and math.isfinite(number) else f"{number:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def to_markdown(frame: pd.DataFrame) -> str:
    """The frame as a Markdown table with aligned columns; numbers stand to the right."""
    head = [str(column) for column in frame.columns]
    body = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    right = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes]
    widths = [max([3, len(name), *(len(row[i]) for row in body)]) for i, name in enumerate(head)]

    def line(cells: list[str]) -> str:
        done = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(cells, widths, right, strict=True)]
        return f"| {' | '.join(done)} |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    return "\n".join([line(head), rule, *map(line, body)]) + "\n"


def to_text(frame: pd.DataFrame) -> str:
    """The frame for a terminal: aligned columns, no rules."""
    head = [str(column) for column in frame.columns]
    body = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    numeric = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes]
    widths = [max([len(name), *(len(row[i]) for row in body)]) for i, name in enumerate(head)]
    rows = [
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, numeric, strict=True)).rstrip()
        for row in [head, *body]
    ]
    return "\n".join(rows)
