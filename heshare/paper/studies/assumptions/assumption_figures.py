"""Figures of the choices that the paper leaves open: numbers and mechanisms over the inference batch size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures.series_styles import BAND, EDGE, EFFECT, GUIDE, TEXT, category_style, series_style
from heshare.paper.studies.assumptions.choices import METRICS, MIXED, WORTH
from heshare.paper.studies.assumptions.mechanism_worth import REMOVED

BASES = {
    "promised": "planned on predictions, as predicted",
    "delivered": "planned on predictions, run",
    "delivered, never wrong": "planned on the truth, run",
}
"""Series of the worth of mechanisms, with the names of their styles."""


def draw_strips(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw each strip: ours with its band over the sizes, the paper's value as a line, our own sizes in grey."""
    sizes = list(table.sort_values("batch_sizes", key=_places, kind="stable")["batch_sizes"].unique())
    for ax, (title, strip) in zip(axes, table.groupby("strip", sort=False), strict=True):
        ax.set_title(f"{title} ({strip['unit'].iloc[0]})", fontsize=7.5, loc="left")
        is_worth = bool((strip["id"] == WORTH).all())
        value, claim = float(strip["paper"].iloc[0]), str(strip["id"].iloc[0])
        said = "close to alone" if np.isnan(value) else f"{value:g} %" if value < 0 else f"{value:g}x"
        text = "" if is_worth else f"paper: {'more than ' if claim == 'M3' else ''}{said}"
        line, at = (GUIDE if is_worth else EDGE), float(np.nan_to_num(value))
        ax.axhline(at, color=line, linewidth=0.9, linestyle="-" if is_worth else "--")
        where: Any = {"ha": "right", "va": "bottom", "transform": ax.get_yaxis_transform()}
        ax.text(0.99, at, text, color=line, fontsize=6, **where)
        for index, (part, rows) in enumerate(strip.groupby("part", sort=False)):
            name = str(part).rpartition(": ")[2].replace("jct", "JCT") if is_worth else ""
            _curve(ax, rows, sizes, category_style(index).colour if is_worth else EFFECT, name)
        for size in strip[strip["is_default"]]["batch_sizes"].unique():
            ax.axvspan(sizes.index(size) - 0.4, sizes.index(size) + 0.4, color=BAND, zorder=0)
        ax.set_xticks(range(len(sizes)), [size.replace(" ", "+").replace(MIXED, "mix") for size in sizes])
        ax.set_xlim(-0.5, len(sizes) - 0.5)
        ax.margins(y=0.18)


def _places(sizes: pd.Series) -> pd.Series:
    return sizes.map(lambda text: np.inf if text == MIXED else np.mean([int(each) for each in text.split()]))


def _curve(ax: Axes, rows: pd.DataFrame, sizes: Sequence[str], colour: str, name: str) -> None:
    rows = rows.sort_values("batch_sizes", key=_places, kind="stable")
    at, own = np.array([sizes.index(size) for size in rows["batch_sizes"]]), rows["is_default"].to_numpy(bool)
    value, low, high = rows[["value", "low", "high"]].to_numpy(float).T
    joined, full = (rows["batch_sizes"] != MIXED).to_numpy(), rows["holds"].to_numpy(bool) | (name != "")
    ax.fill_between(at[joined], low[joined], high[joined], color=colour, alpha=0.15, linewidth=0)
    ax.plot(at[joined], value[joined], color=colour)
    ax.vlines(at[~joined], low[~joined], high[~joined], color=colour, linewidth=3, alpha=0.25)
    for chosen, face in ((full, colour), (~full, "white")):
        ax.plot(at[chosen], value[chosen], "o", color=colour, markerfacecolor=face, markersize=3.5)
    small: Any = {"textcoords": "offset points", "fontsize": 6}
    for place, size in zip(at[own], value[own], strict=True):
        ax.annotate(f"{size:.2g}", (place, size), (0, -10 if name == "energy" else 5), ha="center", color=TEXT, **small)
    last = np.flatnonzero(joined)[-1]
    ax.annotate(name, (at[last], value[last]), (0, 5), ha="center", color=colour, **small)


def draw_worth(axes: Any, table: pd.DataFrame) -> None:
    """Draw the worth over inference batch sizes: a row of panels a metric, a column a mechanism."""
    sizes = list(table["batch_sizes"].unique())
    for row, metric in zip(axes, METRICS.values(), strict=True):
        for ax, part in zip(row, REMOVED, strict=True):
            chosen = table[(table["mechanism"] == part) & (table["metric"] == metric)]
            for index, (basis, name) in enumerate(BASES.items()):
                value, low, high = chosen[chosen["basis"] == basis][["value", "low", "high"]].to_numpy(float).T
                at, how = np.arange(len(value)) + 0.12 * (index - 1), series_style(name).line_arguments(markersize=3)
                ax.plot(at, value, label=basis, **how)
                ax.vlines(at, low, high, color=how["color"], linewidth=0.6)
            ax.axhline(0.0, color=GUIDE, linewidth=0.8)
            ax.set_xticks(range(len(sizes)), [size.replace(" ", "+") for size in sizes])
            ax.set_title(part, fontsize=7.5)
        row[0].set_ylabel("Energy (%)" if metric == "energy" else "Average JCT (%)")
    axes[0][0].figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(BASES))
