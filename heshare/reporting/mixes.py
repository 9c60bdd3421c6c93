"""Figures 8 to 11: average JCT and energy over GPU mixes and loads, and over numbers of tasks on one kind of GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from heshare.reporting import forms, plots
from heshare.reporting.statistics import median_interval

_UNITS = {forms.JCT: (1e3, "Average JCT (1000 s)"), forms.ENERGY: (1e6, "Energy (MJ)")}
DRAWN_NOT = ("HeShare+ JCT-opt", "HeShare+ En-opt")
"""Titles that are in the tables only, to keep the bars apart."""


def medians(runs: pd.DataFrame, by: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    """Median and 95 % bootstrap interval of average JCT and energy (both accounts) of each policy in each world.

    Args:
        runs: one row a world, repetition and policy.
        by: the columns that tell worlds apart.
        rng: of the bootstrap.

    Returns:
        The columns of `by`, then title, metric, median, low, high, n, provenance.
    """
    rows = []
    for key, part in runs.groupby([*by, "title"], sort=False):
        for metric in forms.METRICS:
            found = median_interval(part[metric], rng)
            rows.append((*key, metric, found.value, found.low, found.high, found.n, "emulated"))
    return pd.DataFrame(rows, columns=[*by, "title", "metric", "median", "low", "high", "n", "provenance"])


def panels(axes: Iterable[Axes], frame: pd.DataFrame, metric: str, *, panel: str, group: str) -> list[Artist]:
    """Bars of one metric: a panel for each value of `panel`, a group for each of `group`, a bar for each policy.

    Args:
        axes: one for each panel.
        frame: as from `medians`; `DRAWN_NOT` are left out.
        metric: `avg_jct_s` or `energy_active_j`.
        panel: column of the panels.
        group: column of the groups.
    """
    unit, label = _UNITS[metric]
    part = frame[(frame["metric"] == metric) & ~frame["title"].isin(DRAWN_NOT)]
    part = part.assign(**{name: part[name] / unit for name in ("median", "low", "high")})
    drawn: list[Artist] = []
    shown = list(axes)
    for ax, (title, rows) in zip(shown, part.groupby(panel, sort=False), strict=True):
        for bar in plots.bars(ax, rows, group=group, series="title", value="median", low="low", high="high"):
            drawn += bar
        ax.set_title(str(title), fontsize=7, loc="left", pad=2)
        ax.set_ylabel(label)
    figure = shown[0].get_figure()
    if figure is not None:
        figure.legend(*shown[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return drawn


def planning(runs: pd.DataFrame) -> pd.DataFrame:
    """What planning adds to average JCT: nothing starts before the plan is there, so every task waits for it.

    For a controller, which decides between other events all along, it is an upper bound.

    Args:
        runs: one row a world, repetition and policy, with `planning_s`; tasks arrive at once.

    Returns:
        One row a policy, medians over worlds and seeds: title, planning_s, predictor_calls, avg_jct_s,
        with_planning_s (average JCT and planning), added_pct, worst_pct (the most that any run adds), provenance.
    """
    added = runs.assign(
        with_planning_s=runs[forms.JCT] + runs["planning_s"], added_pct=100 * runs["planning_s"] / runs[forms.JCT]
    )
    columns = ["planning_s", "predictor_calls", forms.JCT, "with_planning_s", "added_pct"]
    by_title = added.groupby("title", sort=False)
    table = by_title[columns].median().assign(worst_pct=by_title["added_pct"].max(), provenance="emulated")
    return table.reset_index()


def between(
    runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator, why: str
) -> dict[str, Any]:
    """Arguments of a claim on two of HeShare's own plans: paired by world and seed.

    Args:
        runs: one row a world, repetition and policy, with a column `world`.
        ours: the title of the one.
        theirs: the title of the other.
        metric: `avg_jct_s` or `energy_active_j`.
        rng: of the bootstrap.
        why: what the note says besides.
    """
    other = forms.ENERGY if metric == forms.JCT else forms.JCT
    found, beside = (forms.between(runs, ours, theirs, name, rng) for name in (metric, other))
    word = "average JCT" if metric == forms.ENERGY else "energy"
    return found.priced(
        f"Paired by world and seed, active account; {word} beside it {beside.value:+.0f} % "
        f"[{beside.low:+.0f}, {beside.high:+.0f}]. {why}"
    )


def front_width(runs: pd.DataFrame, rng: np.random.Generator) -> str:
    """How far HeShare's two ends are apart: the most that any plan between them could gain, as a sentence."""
    energy = forms.between(runs, "En-opt", "JCT-opt", forms.ENERGY, rng).value
    jct = forms.between(runs, "JCT-opt", "En-opt", forms.JCT, rng).value
    return f"The whole front, end to end, is {energy:+.0f} % in energy and {jct:+.0f} % in average JCT when run."


def both_rivals(table: pd.DataFrame, ours: str, metric: str) -> dict[str, Any]:
    """Arguments of a claim on Morak and mu-Serve at once: the rival against which we gain least counts."""
    rows = table[(table["ours"] == ours) & (table["metric"] == metric) & (table["form"] == forms.PAPER)]
    sizes = dict(zip(rows["rival"], rows["change_pct"], strict=True))
    worst, other = sorted(sizes, key=lambda rival: -sizes[rival])
    size = float(sizes[other])
    return forms.priced(table, ours, worst, metric, f"Against {other} in the paper's set-up: {size:+.0f} %.")
