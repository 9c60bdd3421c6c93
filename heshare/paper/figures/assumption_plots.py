"""Plots of choices that the paper leaves open: the factorial, effects of its axes, single choices, mechanisms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from heshare.paper.claims.factorial import DURATIONS, QUEUEING, RATIO, SIZES, THROTTLE, axes_of, cells_of
from heshare.paper.claims.paper_claims import Claim, paper_claims
from heshare.paper.claims.verdicts import WITHIN, is_near
from heshare.paper.figures.rows import TITLE
from heshare.paper.figures.series_styles import BAND, EDGE, EFFECT, GUIDE, category_style
from heshare.paper.studies.single_choices import SHIPPED

_ROWS = [DURATIONS, RATIO, SIZES]
"""The axes that enter every number, which are the rows of the factorial's map; the others are its columns."""
AXIS_NAMES = {
    DURATIONS: "task sizes",
    QUEUEING: "queues of Random",
    THROTTLE: "rivals' throttle",
    RATIO: "T4 over A100",
    SIZES: "inference batch size",
}
"""The axes of the factorial in words."""
_FRAME: dict[str, Any] = {"fill": False, "edgecolor": EDGE, "linewidth": 1.2, "zorder": 5}
_FURTHEST = 1.0
"""The colours end where a value is twice or half of the paper's, as a logarithm to the base 2."""


def factorial_map(ax: Axes, table: pd.DataFrame) -> None:
    """Draw every cell of every number: its value, coloured by its ratio to the paper's, framed where it is near.

    `table` is as from `factorial_cells.cells`. A number has a column for each level of its axis (queues, throttle).
    """
    values = _columns(table)
    columns: list[Any] = values.columns.to_list()
    claims = [paper_claims()[id, part] for id, part, _ in columns]
    paper = np.array([claim.value for claim in claims])
    ratio = np.log2(np.maximum(values / paper, 2.0**-_FURTHEST))

    sns.heatmap(
        ratio.to_numpy(),
        ax=ax,
        annot=values.to_numpy(),
        fmt=".0f",
        annot_kws={"fontsize": 6.5},
        cmap="PuOr_r",
        center=0.0,
        vmin=-_FURTHEST,
        vmax=_FURTHEST,
        linewidths=0.4,
        cbar_kws={"label": "value over the paper's", "ticks": [-1, 0, 1], "fraction": 0.025, "pad": 0.01},
    )
    ax.collections[0].colorbar.set_ticklabels(["½", "1", "2"])  # type: ignore[union-attr]
    for (row, column), value in np.ndenumerate(values.to_numpy()):
        if is_near(claims[column], value):
            ax.add_patch(Rectangle((column + 0.07, row + 0.07), 0.86, 0.86, **_FRAME))

    _name_rows(ax, values.index.to_list())
    _name_columns(ax, claims, [level for _, _, level in columns])
    ax.grid(visible=False)


def _columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return the values of the cells: a row for each combination of `_ROWS`, a column for each number and level."""
    found = {}
    for id, part in table[["id", "part"]].drop_duplicates().itertuples(index=False, name=None):
        claim = paper_claims()[id, part]
        cells = cells_of(table, claim)
        axis = next((axis for axis in axes_of(claim) if axis not in _ROWS), None)
        levels = cells[axis].unique() if axis else [""]
        for level in levels:
            rows = cells[cells[axis] == level] if axis else cells
            found[id, part, level] = rows.set_index(_ROWS)["value"]
    return pd.DataFrame(found)


def _name_rows(ax: Axes, rows: Sequence[tuple[str, str, str]]) -> None:
    names = [f"{durations}, {ratio}, {sizes}" for durations, ratio, sizes in rows]
    ax.set_yticks(np.arange(len(rows)) + 0.5, names, rotation=0)
    ax.set_ylabel("task sizes, T4 over A100, inference batch size")

    changed = [place for place in range(1, len(rows)) if rows[place][:2] != rows[place - 1][:2]]
    ax.hlines(changed, 0, 1, transform=ax.get_yaxis_transform(), color="white", linewidth=2.5)


def _name_columns(ax: Axes, claims: Sequence[Claim], levels: Sequence[str]) -> None:
    ax.set_xticks(np.arange(len(levels)) + 0.5, [level.replace(", ", ",\n") for level in levels], rotation=90)
    for claim in dict.fromkeys(claims):
        first = claims.index(claim)
        count = claims.count(claim)
        text = f"{claim.id}\n{claim.part.replace('jct', 'JCT')}\n{claim.value:.0f}"
        ax.text(first + count / 2, -0.15, text, ha="center", va="bottom", fontsize=7)
        ax.axvline(first, color="white", linewidth=2.5)


def effects_map(ax: Axes, table: pd.DataFrame) -> None:
    """Draw how far each axis changes each number, in percentage points; the axis with the largest changes is first.

    `table` is as from `factorial_cells.effects`; an axis that does not affect a number has no value there.
    """
    numbers = (table["id"] + " " + table["part"]).str.replace("jct", "JCT")
    wide = table.assign(number=numbers).pivot_table(index="axis", columns="number", values="change", sort=False)
    ordered = wide.loc[wide.mean(axis=1).sort_values(ascending=False).index]

    sns.heatmap(ordered, ax=ax, annot=True, fmt=".1f", annot_kws={"fontsize": 7}, cmap="Blues", vmin=0.0, cbar=False)
    ax.set(xlabel="", ylabel="", facecolor=BAND)
    ax.grid(visible=False)
    ax.set_yticks(np.arange(len(ordered)) + 0.5, [AXIS_NAMES[axis] for axis in ordered.index], rotation=0)
    ax.tick_params(axis="x", labelrotation=30)


def choices_of_number(ax: Axes, table: pd.DataFrame, key: tuple[str, str], axes: Sequence[str]) -> None:
    """Draw the values of one number under single choices: a row for each axis, a mark for each level.

    `table` is as from `single_choices.numbers_of`. The line is the shipped setting; a number holds in the band, where
    marks are full.
    """
    claim = paper_claims()[key]
    choices = table[(table["id"] == claim.id) & (table["part"] == claim.part)]
    shipped = float(choices.loc[choices["axis"] == SHIPPED, "value"].iloc[0])
    varied = choices[choices["axis"].isin(axes)]
    places = [axes.index(axis) for axis in varied["axis"]]

    ends = sorted([claim.value * (1 - WITHIN), claim.value * (1 + WITHIN)])
    ax.axvspan(*ends, color=BAND, zorder=0)
    ax.axvline(shipped, color=GUIDE, linewidth=0.8)
    near = np.array([is_near(claim, value) for value in varied["value"]])
    for chosen, face in ((near, EFFECT), (~near, "white")):
        at = np.array(places)[chosen]
        ax.plot(varied["value"][chosen], at, "o", color=EFFECT, markerfacecolor=face, markersize=3, markeredgewidth=0.7)

    ax.set_title(f"{claim.name.replace('jct', 'JCT')}: {claim.value:.0f} %", **TITLE)
    ax.set_yticks(range(len(axes)), list(axes))
    ax.set_ylim(len(axes) - 0.5, -0.5)
    ax.grid(axis="x")


def worth_over_sizes(ax: Axes, table: pd.DataFrame, titles: Mapping[str, str]) -> None:
    """Draw the increase of Trade-off's objectives without a mechanism, over inference batch sizes.

    Args:
        ax: the axes.
        table: one mechanism's rows: batch_sizes, metric, basis (`delivered` or `promised`), value, low, high.
        titles: names of the metrics in the legend.
    """
    sizes = list(table["batch_sizes"].unique())
    for index, (metric, title) in enumerate(titles.items()):
        style = category_style(index)
        forms = (("delivered", "-", style.colour), ("promised", ":", "white"))
        for basis, line, face in forms:
            rows = table[(table["metric"] == metric) & (table["basis"] == basis)]
            at = np.array([sizes.index(size) for size in rows["batch_sizes"]]) + 0.12 * (index - 0.5)
            how = style.line_arguments(linestyle=line, markerfacecolor=face, markersize=3.5)
            ax.plot(at, rows["value"], label=f"{title}, {basis}", **how)
            if basis == "delivered":
                ax.vlines(at, rows["low"], rows["high"], color=style.colour, linewidth=0.8)

    ax.axhline(0.0, color=GUIDE, linewidth=0.8, zorder=0)
    ax.set_xticks(range(len(sizes)), sizes)
