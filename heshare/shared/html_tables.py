"""HTML tables of objects for Jupyter, with readable column heads and energies in a suitable unit."""

from __future__ import annotations

import re
from html import escape

import pandas as pd

from heshare.shared.display import energy_unit, number

ROWS = 10
"""Rows of a table in `_repr_html_`; those between the first and the last ones become "..."."""
_UNITS = {"pct": "%", "s": "s", "ms": "ms", "us": "µs", "w": "W", "mhz": "MHz", "mib": "MiB"}
_UNITS |= {"j": "J", "kj": "kJ", "mj": "MJ", "gj": "GJ"}
_WORDS = {
    "avg": "average",
    "jct": "JCT",
    "gpu": "GPU",
    "gpus": "GPUs",
    "mps": "MPS",
    "sm": "SM",
    "p90": "90th percentile of",
    "p99": "99th percentile of",
    "mape": "mean |error|",
}


def head(name: str) -> str:
    """Return a readable column head with the unit in parentheses: `avg_jct_s_low` becomes `Average JCT (s), low`.

    A name that is not in lower case with underscores is returned unchanged.
    """
    if name == "n" or not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name):
        return name
    parts = name.split("_")
    end = f", {parts.pop()}" if parts[-1] in ("low", "high") and len(parts) > 1 else ""
    unit = f" ({_UNITS[parts.pop()]})" if parts[-1] in _UNITS and len(parts) > 1 else ""
    words = " ".join(_WORDS.get(part, part) for part in parts).removesuffix(" of")
    return f"{words[:1].upper()}{words[1:]}{unit}{end}"


def in_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame for display: energies in a suitable unit, readable heads; `energy_j` becomes `Energy (MJ)`."""
    shown, names = frame.copy(), {}
    for column in frame.columns:
        name = str(column)
        if name.endswith("_j") and frame[column].dtype.kind == "f":
            unit, joules = energy_unit(float(frame[column].abs().max()))
            shown[column] = frame[column] / joules
            name = name.removesuffix("j") + unit.lower()
        names[column] = head(name)
    return shown.rename(columns=names)


def html_frame(frame: pd.DataFrame, rows: int = ROWS) -> str:
    """Return a table in HTML, of a long frame the first and the last rows; columns are as wide as their text needs."""
    with pd.option_context("display.max_colwidth", None):
        shown = in_units(frame)
        text = shown.to_html(max_rows=rows, show_dimensions=False, border=0, float_format=number, na_rep="")
    return text.replace("<table ", '<table style="table-layout: auto" ', 1)


def html_table(title: object, frame: pd.DataFrame) -> str:
    return f"<p>{escape(str(title))}</p>\n{html_frame(frame)}"
