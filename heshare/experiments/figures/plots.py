"""Plots as pure functions: axes and a frame go in, artists come out; nothing is read, shown or saved here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from heshare.experiments.figures.style import series_style

_EDGE = "#333333"


def bars(
    ax: Axes,
    frame: pd.DataFrame,
    *,
    group: str,
    series: str,
    value: str,
    low: str | None = None,
    high: str | None = None,
) -> list[BarContainer]:
    """Grouped bars: one group for each value of `group`, one bar in it for each of `series`, in order of appearance.

    Args:
        ax: where to draw.
        frame: one row a bar.
        group: column of the groups (x axis).
        series: column of the series (colour and hatch).
        value: column of the heights.
        low: column of the interval's lower end, if there is one.
        high: column of the interval's upper end.
    """
    groups, names = list(frame[group].unique()), list(frame[series].unique())
    width = 0.8 / len(names)
    drawn = []
    for index, name in enumerate(names):
        part = frame[frame[series] == name].set_index(group).reindex(groups)
        at = np.arange(len(groups)) + (index - (len(names) - 1) / 2) * width
        how = series_style(str(name), index)
        error = None if low is None or high is None else _error(part, value, low, high)
        drawn.append(
            ax.bar(
                at,
                part[value].to_numpy(float),
                width,
                yerr=error,
                color=how.colour,
                hatch=how.hatch,
                edgecolor=_EDGE,
                label=str(name),
                error_kw={"elinewidth": 0.6, "capthick": 0.6, "ecolor": "black"},
            )
        )
    ax.set_xticks(np.arange(len(groups)), [str(name) for name in groups])
    ax.set_xlim(-0.6, len(groups) - 0.4)
    return drawn


def _error(part: pd.DataFrame, value: str, low: str, high: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    middle = part[value].to_numpy(float)
    spread = [middle - part[low].to_numpy(float), part[high].to_numpy(float) - middle]
    return np.array(np.maximum(spread, 0.0))


def slanted(ax: Axes, degrees: float = 50) -> None:
    """Turn the names under the x axis, their ends at the ticks."""
    ax.tick_params(axis="x", length=0)
    for label in ax.get_xticklabels():
        label.set(rotation=degrees, ha="right", va="top", rotation_mode="anchor")


def log_axis(ax: Axes) -> None:
    """A logarithmic y axis with plain labels at 1, 10, 100; also at 2 and 5 where there are few of those."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(10))
    ax.yaxis.set_major_formatter(_plain)
    ax.yaxis.set_minor_locator(LogLocator(10, subs=(2, 5)))
    few = high / low < 100
    ax.yaxis.set_minor_formatter(_plain if few else NullFormatter())


def _plain(value: float, _: object) -> str:
    return f"{value:g}"


def lines(ax: Axes, frame: pd.DataFrame, *, x: str, y: str, series: str, every: int = 1) -> list[Line2D]:
    """A line with markers for each of `series`, in order of appearance; markers on every `every`-th point."""
    drawn = []
    for index, (name, part) in enumerate(frame.groupby(series, sort=False)):
        how = series_style(str(name), index)
        (line,) = ax.plot(
            part[x].to_numpy(float),
            part[y].to_numpy(float),
            color=how.colour,
            marker=how.marker,
            linestyle=how.line,
            markevery=every,
            label=str(name),
        )
        drawn.append(line)
    return drawn


def front(ax: Axes, frame: pd.DataFrame) -> list[Artist]:
    """A Pareto front: average JCT against energy, the three named plans marked.

    Args:
        ax: where to draw.
        frame: columns `energy_j`, `jct_s`, `choice`, as from `Front.to_frame`.
    """
    ordered = frame.sort_values(["energy_j", "jct_s"])
    ordered = ordered.assign(x=ordered["energy_j"] / 1e6, y=ordered["jct_s"] / 1e3)
    x, y = ordered["x"].to_numpy(float), ordered["y"].to_numpy(float)
    drawn: list[Artist] = []
    drawn += ax.plot(x, y, color="#999999", lw=0.8, drawstyle="steps-post", label="_")
    drawn += ax.plot(x, y, color="#999999", ls="", marker=".", label="Pareto front")
    for name, part in ordered[ordered["choice"] != ""].groupby("choice", sort=False):
        how = series_style(str(name).split("/")[0])
        points = ax.scatter(part["x"], part["y"], color=how.colour, marker=how.marker, label=str(name))
        points.set(sizes=[28], zorder=3, edgecolor=_EDGE, linewidth=0.5)
        drawn.append(points)
    ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")
    return drawn


def timeline(ax: Axes, frame: pd.DataFrame, *, gpus: Sequence[str], classes: Sequence[str]) -> list[Artist]:
    """Who ran where, when: one row a GPU, one lane in it for each task that runs at once.

    Args:
        ax: where to draw.
        frame: one row a stretch of a task on a GPU: columns `gpu` (label), `start_s`, `end_s`, `kind` (of `classes`).
        gpus: the GPUs' labels from top to bottom.
        classes: the kinds in the order of their colours.
    """
    drawn: list[Artist] = []
    for row, gpu in enumerate(gpus):
        part = frame[frame["gpu"] == gpu].sort_values(["start_s", "end_s"], kind="stable")
        lanes = _lanes(part["start_s"].to_numpy(float), part["end_s"].to_numpy(float))
        high = 0.84 / (max(lanes, default=0) + 1)
        for kind in classes:
            chosen = [i for i, found in enumerate(part["kind"]) if found == kind]
            for i in chosen:
                start, end = float(part["start_s"].iloc[i]), float(part["end_s"].iloc[i])
                how = series_style("", classes.index(kind))
                drawn.append(
                    ax.broken_barh(
                        [(start / 1e3, (end - start) / 1e3)],
                        (row - 0.42 + lanes[i] * high, high),
                        facecolor=how.colour,
                        hatch=how.hatch,
                        edgecolor="white",
                        linewidth=0.3,
                    )
                )
    ax.set_yticks(range(len(gpus)), list(gpus))
    ax.set_ylim(len(gpus) - 0.5, -0.5)
    ax.grid(visible=False)
    ax.set_xlim(0, None)
    ax.set_xlabel("Time (1000 s)")
    return drawn


def _lanes(start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> list[int]:
    """The first free lane of each stretch, in order of start."""
    free: list[float] = []
    lanes = []
    for begin, stop in zip(start, end, strict=True):
        lane = next((i for i, until in enumerate(free) if until <= begin + 1e-9), len(free))
        free[lane : lane + 1] = [stop]
        lanes.append(lane)
    return lanes


def against(ax: Axes, frame: pd.DataFrame, *, actual: str, predicted: str, series: str) -> list[Artist]:
    """Predicted over actual on logarithmic axes, with the diagonal."""
    values = frame[[actual, predicted]].to_numpy(float)
    ends = (values.min() * 0.8, values.max() * 1.25)
    (line,) = ax.plot(ends, ends, color="#999999", linewidth=0.7, zorder=1)
    drawn: list[Artist] = [line]
    for index, (name, part) in enumerate(frame.groupby(series, sort=False)):
        how = series_style(str(name), index)
        points = ax.scatter(part[actual], part[predicted], s=6, marker=how.marker, facecolor="none", label=str(name))
        points.set(edgecolor=how.colour, linewidth=0.6)
        drawn.append(points)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    return drawn


def legend_above(ax: Axes) -> None:
    """A legend in one row above the axes."""
    names = ax.get_legend_handles_labels()[1]
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(names), borderaxespad=0.2)


def class_legend(ax: Axes, classes: Sequence[str], *, title: str) -> None:
    """A legend above the axes for the classes of `timeline`."""
    patches = [
        Patch(
            facecolor=series_style("", i).colour,
            hatch=series_style("", i).hatch,
            edgecolor="white",
            linewidth=0.3,
            label=name,
        )
        for i, name in enumerate(classes)
    ]
    ax.legend(handles=patches, title=title, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(classes))
