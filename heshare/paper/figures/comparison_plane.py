"""The plane of energy and average JCT: every system as a mark with its intervals and its name."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures import direct_labels, plots
from heshare.paper.figures.series_styles import EDGE, series_style
from heshare.paper.harness import ENERGY, JCT

_AXES: Mapping[str, tuple[str, float, str]] = {
    "x": (ENERGY, 1e6, "Energy (MJ)"),
    "y": (JCT, 1e3, "Average JCT (1000 s)"),
}
"""Metric, unit and label of each axis."""


def points(medians: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each system: title, x, y and the ends of their intervals, in MJ and 1000 s.

    `medians` is as from `harness.medians`, of energy and average JCT.
    """
    parts = []
    for axis, (metric, unit, _) in _AXES.items():
        rows = medians[medians["metric"] == metric].set_index("title")[["median", "low", "high"]] / unit
        parts.append(rows.set_axis([axis, f"{axis}_low", f"{axis}_high"], axis=1))
    return pd.concat(parts, axis=1).reset_index()


def join_plans(ax: Axes, medians: pd.DataFrame, plans: Sequence[str]) -> None:
    """Join the plans of one front by a line, by energy; `medians` is as for `draw`."""
    front = points(medians).set_index("title").loc[list(plans)].sort_values("x")
    ax.plot(front["x"], front["y"], color=series_style(plans[0]).colour, linewidth=1.6, alpha=0.35, zorder=1)


def draw(
    ax: Axes,
    medians: pd.DataFrame,
    *,
    forms: Sequence[Sequence[str]] = (),
    plans: Sequence[str] = (),
    log: bool = True,
) -> None:
    """Draw the systems of `medians`.

    An arrow connects each of the `forms` of a baseline with the next; a line joins the `plans` of one front. Towards
    the lower left corner, which is labelled, a system is better in both.
    """
    frame = points(medians)
    at: Any = frame.set_index("title")[["x", "y"]]
    if log:
        plots.log_axis(ax, "x")
        plots.log_axis(ax, "y")
    ends = frame[["x_low", "x_high", "y_low", "y_high"]].to_numpy(float)
    # A linear axis begins at 0, so that distances are in proportion.
    x_range = (0.9 * ends[:, 0].min() if log else 0, 1.06 * ends[:, 1].max())
    y_range = (0.8 * ends[:, 2].min() if log else 0, 1.06 * ends[:, 3].max())
    ax.set(xlim=x_range, ylim=y_range, xlabel=_AXES["x"][2], ylabel=_AXES["y"][2])
    ax.grid(visible=True, axis="both")

    crossed = [np.empty((0, 2))]
    if len(plans):
        join_plans(ax, medians, plans)
    for start, end in (pair for titles in forms for pair in pairwise(titles)):
        how = {"arrowstyle": "-|>", "linewidth": 0.9, "shrinkA": 3, "shrinkB": 3, "alpha": 0.8}
        how["color"] = series_style(start).colour
        ax.annotate("", tuple(at.loc[end]), tuple(at.loc[start]), arrowprops=how, zorder=1)
        crossed.append(np.linspace(at.loc[start], at.loc[end], 15))

    direct_labels.draw_points(ax, frame)
    _name_better_corner(ax)
    direct_labels.label_frame(ax, frame, avoid=np.vstack(crossed))


def _name_better_corner(ax: Axes) -> None:
    how: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "axes fraction", "fontsize": 6.5, "color": EDGE}
    arrow = {"arrowstyle": "->"}
    ax.annotate("better", (0.01, 0.01), (0.11, 0.09), ha="center", va="center", arrowprops=arrow, **how)
