"""Planes of energy and average JCT at several loads, with a line through the systems that no other dominates."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures import comparison_plane, plots
from heshare.paper.figures.direct_labels import draw_points
from heshare.paper.figures.rows import TITLE
from heshare.paper.figures.series_styles import FAINT
from heshare.scheduling import pareto


def draw(axes: Sequence[Axes], medians: pd.DataFrame, *, named: Sequence[str]) -> None:
    """Draw a panel for each value of the column `load` of `medians`, which are as from `harness.medians`.

    Systems that no other dominates, and those `named`, have a mark with intervals and a name in the legend, the same in
    all panels; the others are small dots.
    """
    planes = {load: comparison_plane.points(part) for load, part in medians.groupby("load", sort=False)}
    best = {load: not_dominated(frame) for load, frame in planes.items()}
    marked = {*named, *(title for titles in best.values() for title in titles)}

    for ax, (load, frame) in zip(axes, planes.items(), strict=True):
        is_marked = frame["title"].isin(marked)
        for title, points_of_title in frame[is_marked].groupby("title", sort=False):
            draw_points(ax, points_of_title)
            ax.lines[-1].set_label(str(title))

        line = frame.set_index("title").loc[best[load]]
        others = frame[~is_marked]
        ax.plot(line["x"], line["y"], color=FAINT, linewidth=0.9, zorder=0, label="no system is better in both")
        ax.plot(others["x"], others["y"], ".", color=FAINT, markersize=4, label="all others")
        ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)" if ax is axes[0] else "")
        ax.set_title("Load " + str(load), **TITLE)
        ax.grid(visible=True, axis="both")
        plots.log_axis(ax)

    handles, names = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(handles, names, loc="outside upper center", ncols=5)


def not_dominated(points: pd.DataFrame) -> list[str]:
    """Return the titles of the systems that no other dominates, by energy; `points` as `comparison_plane.points`."""
    kept = points[pareto.non_dominated(points[["x", "y"]].to_numpy(float))]
    return [str(title) for title in kept.sort_values("x")["title"]]
