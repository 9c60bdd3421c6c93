"""Plots of frames on given axes, without input or output of files."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, MaxNLocator, NullLocator

from heshare.lab.sweeps.statistics import median_interval
from heshare.paper.figures.series_styles import EDGE, LineArguments, series_style

_BAR_WIDTH = 0.8
"""Width of a group of bars, where groups are 1 apart."""


def interval_of(values: Any) -> tuple[float, float]:
    """Return the ends of the interval of a median, as seaborn's `errorbar` takes it; see `median_interval`."""
    size = median_interval(np.asarray(values, dtype=np.float64))
    return size.low, size.high


def bars(
    ax: Axes,
    runs: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str,
    order: Sequence[str],
    hue_order: Sequence[str],
) -> None:
    """Draw a bar at the median of `y` with its interval for each system, in groups.

    `runs` has one row a run. `x` is the column of the groups, in `order`: that of the systems if each is a group. `y`
    is the column of the values, `hue` that of the systems, in `hue_order`, each in its registered style.
    """
    colours = {name: series_style(name).colour for name in hue_order}
    sns.barplot(
        runs,
        x=x,
        y=y,
        hue=hue,
        order=list(order),
        hue_order=list(hue_order),
        palette=colours,
        saturation=1.0,
        estimator="median",
        errorbar=interval_of,
        err_kws={"linewidth": 0.8, "color": EDGE},
        width=_BAR_WIDTH,
        dodge=x != hue,
        legend=False,
        ax=ax,
    )
    for name, container in zip(hue_order, ax.containers, strict=False):
        for bar in container:
            bar.set(facecolor=series_style(name).face, edgecolor=colours[name], linewidth=0.8)

    ax.set(xlabel="", ylim=(0, None))
    ax.tick_params(axis="x", length=0)


def bar_place(group: int, system: int, systems: int) -> tuple[float, float]:
    """Return the ends of a bar of `bars` on the x axis; groups and systems are counted from 0."""
    width = _BAR_WIDTH / systems
    left = group - _BAR_WIDTH / 2 + system * width
    return left, left + width


def paper_ticks(ax: Axes, places: Sequence[tuple[float, float]], values: Sequence[float]) -> None:
    """Draw a black line across each bar at the paper's value; nothing without places."""
    ends = np.array(places, dtype=np.float64).reshape(-1, 2)
    if len(ends):
        ax.hlines(np.asarray(values), ends[:, 0], ends[:, 1], color="black", linewidth=1.6, zorder=4, label="the paper")


def trends(ax: Axes, runs: pd.DataFrame, *, x: str, y: str, hue: str, hue_order: Sequence[str]) -> None:
    """Draw a line through the medians of `y` over `x` with their intervals for each system.

    `runs` has one row a run; the columns are as for `bars`. Systems are shifted a little, so that no interval covers
    another.
    """
    styles = [series_style(name) for name in hue_order]
    at = sorted(runs[x].unique())
    sns.pointplot(
        runs,
        x=x,
        y=y,
        hue=hue,
        hue_order=list(hue_order),
        palette=[style.colour for style in styles],
        markers=[style.marker for style in styles],
        linestyles=[style.line for style in styles],
        estimator="median",
        errorbar=interval_of,
        err_kws={"linewidth": 0.6},
        native_scale=True,
        dodge=0.35,
        linewidth=1.0,
        markersize=3.2,
        markeredgewidth=0.3,
        legend=False,
        ax=ax,
    )
    ax.set(xticks=at, ylim=(0, None))


def system_handles(names: Sequence[str]) -> list[Line2D]:
    """Return the entries of a legend of bars: squares of the systems' colours, open where they are not filled."""
    how: LineArguments = {"linestyle": "", "marker": "s", "markersize": 5, "markeredgewidth": 0.8}
    return [Line2D([], [], label=name, **series_style(name).line_arguments(**how)) for name in names]


def line_handles(names: Sequence[str]) -> list[Line2D]:
    """Return the entries of a legend of lines: colour, marker and dash of each system."""
    return [Line2D([], [], label=name, **series_style(name).line_arguments()) for name in names]


def dots(
    ax: Axes,
    frame: pd.DataFrame,
    *,
    group: str,
    series: str,
    value: str,
    low: str,
    high: str,
    hollow: str | None = None,
    spread: float = 0.5,
) -> None:
    """Draw a row for each value of column `group`, in it a mark with its interval for each of `series`, on a log axis.

    Rows and series are in order of appearance. `value`, `low` and `high` are the columns of the marks and of the ends
    of their intervals; where the column `hollow` is true, the mark is open. `spread` is the part of a row's height over
    which its series are spread.
    """
    groups, names = list(frame[group].unique()), list(frame[series].unique())
    for index, name in enumerate(names):
        part, how = frame[frame[series] == name], series_style(str(name))
        shift = spread * ((index + 0.5) / len(names) - 0.5)
        at = np.array([groups.index(each) for each in part[group]]) + shift
        ends = part[[low, high]].to_numpy(float).T
        ax.hlines(at, *ends, color=how.colour, linewidth=0.7)
        is_open = np.zeros(len(part), bool) if hollow is None else part[hollow].to_numpy(bool)
        for chosen, face, label in ((~is_open, how.face, str(name)), (is_open, "white", "_")):
            style = how.line_arguments(linestyle="", markerfacecolor=face, markersize=3, markeredgewidth=0.7)
            ax.plot(part[value].to_numpy(float)[chosen], at[chosen], label=label, **style)
    ax.set_yticks(range(len(groups)), [str(each) for each in groups])
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(axis="x")
    log_axis(ax, "x")


class LogTicks(Locator):
    """Ticks of a logarithmic axis: at 1, 10, 100 if there are three of those, otherwise at more round numbers."""

    LEAST = 3
    _STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))

    def __call__(self) -> Sequence[float]:
        return self.tick_values(*sorted(self.axis.get_view_interval()))  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks from `vmin` to `vmax`, at least three of them."""
        tens = 10.0 ** np.arange(np.floor(np.log10(vmin)), np.ceil(np.log10(vmax)) + 1)
        found: list[float] = []
        for steps in self._STEPS:
            found = [value for value in np.outer(tens, steps).ravel().tolist() if vmin <= value <= vmax]
            if len(found) >= self.LEAST:
                return found
        return [value for value in MaxNLocator(4).tick_values(vmin, vmax) if vmin <= value <= vmax]


def log_axis(ax: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make the axis logarithmic with at least three plain labels."""
    (ax.set_yscale if which == "y" else ax.set_xscale)("log")
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_major_locator(LogTicks())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def lines(ax: Axes, frame: pd.DataFrame, *, x: str, y: str, series: str, every: int = 1) -> list[Line2D]:
    """Draw a line for each of `series`, in order of appearance, with markers on every `every`-th point."""
    drawn = []
    for name, part in frame.groupby(series, sort=False):
        how = series_style(str(name)).line_arguments()
        drawn += ax.plot(part[x].to_numpy(float), part[y].to_numpy(float), markevery=every, label=str(name), **how)
    return drawn
