"""Short texts and small HTML tables of objects: energies, numbers and spans for people, as Jupyter shows them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

ROWS = 10
"""Rows of a table in `_repr_html_`; those between the first and the last ones become "..."."""
_UNITS = {"s": "s", "w": "W", "mhz": "MHz", "pct": "%", "mib": "MiB"}
"""The unit of a column by the end of its name."""
_ENERGIES = (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))


def number(value: float) -> str:
    """Return a number with four significant digits, and thousands separated: 2,434,564, 12.5, 0.001235."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def energy_unit(energy_j: float) -> tuple[str, float]:
    """Return the largest unit that an energy has at least one of, and its joules."""
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


def in_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame for people: `energy_j` becomes `energy (MJ)`, `sm_mhz` becomes `sm (MHz)`."""
    shown = frame.copy()
    names = {}
    for column in frame.columns:
        stem, _, end = str(column).rpartition("_")
        unit = _UNITS.get(end)
        if end == "j":
            unit, joules = energy_unit(float(frame[column].abs().max()))
            shown[column] = frame[column] / joules
        names[column] = f"{stem.replace('_', ' ')} ({unit})" if unit else str(column).replace("_", " ")
    return shown.rename(columns=names)


def html_table(title: object, frame: pd.DataFrame) -> str:
    """Return a title and a small table in HTML; of a long frame the first and the last rows."""
    table = in_units(frame).to_html(max_rows=ROWS, show_dimensions=False, border=0, float_format=number, na_rep="")
    return f"<p>{escape(str(title))}</p>\n{table}"
