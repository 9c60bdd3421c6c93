"""Short texts and small HTML tables of objects: energies, numbers and spans for people, as Jupyter shows them."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

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
_ENERGIES = (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))


def number(value: float) -> str:
    """Return a number with four significant digits, and thousands separated: 2,434,564, 12.5, 0.001235."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def energy_unit(energy_j: float) -> tuple[str, float]:
    return next((unit for unit in _ENERGIES if abs(energy_j) >= unit[1]), _ENERGIES[-1])


def energy(energy_j: float) -> str:
    """Return an energy in a suitable unit, such as `5.21 MJ`."""
    unit, joules = energy_unit(energy_j)
    return f"{energy_j / joules:.3g} {unit}"


def energy_span(low_j: float, high_j: float) -> str:
    """Return a range of energies in one unit, such as `5.21 to 7.2 MJ`."""
    joules = energy_unit(high_j)[1]
    return f"{low_j / joules:.3g} to {energy(high_j)}"


def time_span(low_s: float, high_s: float) -> str:
    """Return a range of times, such as `1,658 to 2,374 s`."""
    return f"{number(low_s)} to {number(high_s)} s"


def short(text: str, width: int = 60) -> str:
    """Return a text cut to a width, with `...` at the cut."""
    return text if len(text) <= width else text[: width - 3] + "..."


def printable(text: str) -> str:
    """Return a text on one line without control characters, which a terminal would obey: others may have written it."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def head(name: str) -> str:
    """Return a column's name as words with its unit in parentheses: `avg_jct_s_low` is `Average JCT (s), low`.

    A name that is not in lower case with underscores is returned as it is.
    """
    if name == "n" or not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name):
        return name
    parts = name.split("_")
    end = f", {parts.pop()}" if parts[-1] in ("low", "high") and len(parts) > 1 else ""
    unit = f" ({_UNITS[parts.pop()]})" if parts[-1] in _UNITS and len(parts) > 1 else ""
    words = " ".join(_WORDS.get(part, part) for part in parts)
    return f"{words[:1].upper()}{words[1:]}{unit}{end}"


def in_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame for people: energies in a suitable unit, heads in words; `energy_j` becomes `Energy (MJ)`."""
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
    import pandas as pd

    with pd.option_context("display.max_colwidth", None):
        shown = in_units(frame)
        text = shown.to_html(max_rows=rows, show_dimensions=False, border=0, float_format=number, na_rep="")
    return text.replace("<table ", '<table style="table-layout: auto" ', 1)


def html_table(title: object, frame: pd.DataFrame) -> str:
    return f"<p>{escape(str(title))}</p>\n{html_frame(frame)}"
