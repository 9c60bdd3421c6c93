"""Figs. 8 to 11: values of each system, and below them their ratios to one system, with the paper's values."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from heshare.paper.figures import plots, style
from heshare.paper.figures.series_styles import GUIDE, series_style
from heshare.paper.harness import ENERGY, JCT

AXES: Mapping[str, tuple[str, float]] = {JCT: ("Average JCT (s)", 1.0), ENERGY: ("Energy (MJ)", 1e6)}
"""Label and unit of each metric."""
_OVER = "Over Trade-off's"
_TITLE_PT = 7.5


def over_mixes(
    runs: pd.DataFrame,
    over: pd.DataFrame,
    metric: str,
    *,
    systems: Sequence[str],
    paper: Mapping[tuple[str, str], float],
) -> Figure:
    """Draw bars of a metric by mix of GPUs, a panel for each load, and below them ratios by load.

    Args:
        runs: rows as from `harness.run`, in the order of mixes and loads.
        over: ratios to Trade-off, columns load, title, ratio; one load may be all of them.
        metric: a key of `AXES`.
        systems: the titles of the bars.
        paper: the paper's ratios, by load and title.
    """
    label, unit = AXES[metric]
    frame = runs.assign(value=runs[metric] / unit, mix=runs["cluster"].map(mix_text))
    mixes = [str(mix) for mix in frame["mix"].unique()]
    loads = [str(load) for load in frame["load"].unique()]

    size = (style.PAGE_IN, 3.9)
    fig: Figure
    rows: list[Any] = [loads, [_OVER] * len(loads)]
    fig, axes = plt.subplot_mosaic(rows, figsize=size, layout="constrained", height_ratios=[1.2, 1])
    for load in loads:
        part = frame[frame["load"] == load]
        plots.bars(axes[load], part, x="mix", y="value", hue="title", order=mixes, hue_order=systems)
        axes[load].set_ylabel(label if load == loads[0] else "")
        axes[load].set_title(f"{load} load", fontsize=_TITLE_PT)

    groups = list(over["load"].unique())
    below = axes[_OVER]
    plots.bars(below, over, x="load", y="ratio", hue="title", order=groups, hue_order=systems)
    below.axhline(1.0, color=GUIDE, linewidth=0.8)
    below.set_ylabel(_OVER)
    below.set_xticks(range(len(groups)), [f"{group} load{'s' * (group not in loads)}, all mixes" for group in groups])
    places = [plots.bar_place(groups.index(load), systems.index(title), len(systems)) for load, title in paper]
    plots.paper_ticks(below, places, list(paper.values()))

    handles = [*plots.system_handles(systems), *below.get_legend_handles_labels()[0]]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return fig


def mix_text(cluster: str) -> str:
    """Return the GPUs of a cluster such as `2xT4,2xV100` on a line for each type."""
    return cluster.replace("x", " ").replace(",", "\n")


def over_tasks(
    runs: pd.DataFrame,
    over: pd.DataFrame,
    metric: str,
    *,
    systems: Sequence[str],
    paper: Mapping[tuple[str, str], float],
) -> Figure:
    """Draw lines of a metric over the number of tasks, a panel for each cluster, and below them ratios.

    The arguments are as of `over_mixes`; `over` has the columns cluster, tasks, title and ratio, and `paper` its values
    by cluster and title, over all numbers of tasks.
    """
    label, unit = AXES[metric]
    frame = runs.assign(value=runs[metric] / unit)
    clusters = list(frame["cluster"].unique())
    size = (style.PAGE_IN, 4.0)
    fig, axes = plt.subplots(2, len(clusters), figsize=size, layout="constrained", sharex=True, squeeze=False)

    for (top, below), cluster in zip(axes.T, clusters, strict=True):
        part = frame[frame["cluster"] == cluster]
        plots.trends(top, part, x="tasks", y="value", hue="title", hue_order=systems)
        top.set_title(mix_text(cluster), fontsize=_TITLE_PT)
        top.set(xlabel="", ylabel=label if cluster == clusters[0] else "")

        ratios = over[over["cluster"] == cluster]
        plots.trends(below, ratios, x="tasks", y="ratio", hue="title", hue_order=systems)
        below.set(xlabel="Number of tasks", ylabel=_OVER if cluster == clusters[0] else "")
        _paper_marks(below, {title: value for (of, title), value in paper.items() if of == cluster})
        below.autoscale(axis="y")

    black = Line2D([], [], color="black", marker="s", linestyle="", markersize=3.2, label="black: the paper")
    handles = [*plots.line_handles(systems), *([black] if paper else [])]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return fig


def _paper_marks(ax: Axes, values: Mapping[str, float]) -> None:
    """Draw the paper's value of each system in black at the right end, with the system's marker."""
    right = max(ax.get_xticks())
    step = 0.06 * (right - min(ax.get_xticks()) or 1.0)
    for place, (title, value) in enumerate(values.items(), start=3):
        ax.plot(right + place * step, value, color="black", marker=series_style(title).marker, markersize=4.5)
