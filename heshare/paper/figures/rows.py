"""Plots with a named row for each value: marks with their intervals, and labelled vertical lines."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures.series_styles import EFFECT, GUIDE, SeriesStyle, series_style

TITLE: dict[str, Any] = {"fontsize": 7, "loc": "left", "pad": 3}
_EFFECT = SeriesStyle(EFFECT)


def interval_rows(
    ax: Axes,
    frame: pd.DataFrame,
    *,
    row: str,
    value: str,
    low: str,
    high: str,
    series: str = "",
    style: Callable[[str], SeriesStyle] = series_style,
    names: bool = True,
) -> None:
    """Draw a row for each value of column `row`: a mark and its interval, or one for each of `series` under another.

    Rows and series are in order of appearance. The style is that of the series, or of the row if there are none;
    `names`: whether the rows are named at the left.
    """
    rows = list(dict.fromkeys(frame[row].astype(str)))
    kinds = list(dict.fromkeys(frame[series or row].astype(str)))
    for index, kind in enumerate(kinds):
        part, how = frame[frame[series or row].astype(str) == kind], style(kind)
        shift = 0.6 * ((index + 0.5) / len(kinds) - 0.5) if series else 0.0
        at = np.array([rows.index(each) for each in part[row].astype(str)]) + shift
        ax.hlines(at, part[low], part[high], color=how.colour, linewidth=0.9)
        ax.plot(part[value], at, label=kind, **how.line_arguments(linestyle=""))
    ax.set_yticks(range(len(rows)), rows if names else [])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x")


def paper_values(ax: Axes, frame: pd.DataFrame, *, least: str, most: str) -> None:
    """Draw the paper's value in each row of `interval_rows`: a black mark, or a line from `least` to `most`."""
    at = np.arange(len(frame))
    ax.hlines(at, frame[least], frame[most], color="black", linewidth=1.6, zorder=1.5)
    for end in (least, most):
        ax.plot(frame[end], at, "|", color="black", markersize=8, markeredgewidth=1.6, zorder=1.5)
    ax.plot([], [], "|", color="black", markersize=8, markeredgewidth=1.6, label="the paper")


def effect_rows(
    ax: Axes,
    changes: pd.DataFrame,
    *,
    row: str,
    names: bool = True,
) -> None:
    """Draw a row for each change with its interval and its number at the right, and a line at no change.

    `changes` is as from `harness.changes`, `row` the column of the rows' names; `names` as for `interval_rows`.
    """
    ends = {"value": "change_pct", "low": "low_pct", "high": "high_pct"}
    value_line(ax, 0.0, line="-")
    interval_rows(ax, changes, row=row, style=lambda _: _EFFECT, names=names, **ends)

    for place, size in enumerate(changes["change_pct"]):
        digits = 0 if abs(size) >= 10 else 1
        text = f"{round(size, digits) + 0.0:+.{digits}f}"  # not -0.0
        ax.text(1.03, place, text, transform=ax.get_yaxis_transform(), fontsize=6.5, va="center")


def value_line(ax: Axes, value: float, words: str = "", line: str = "--") -> None:
    """Draw a vertical reference line with the label `words` above it."""
    ax.axvline(value, color=GUIDE, linewidth=0.8, linestyle=line, zorder=0)
    above: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points", "ha": "center"}
    ax.annotate(words, (value, 1), (0, 2), fontsize=6, **above)
