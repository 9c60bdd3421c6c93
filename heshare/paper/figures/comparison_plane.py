"""Fig. 6: every policy in the plane of energy and average JCT, with the rivals' other forms and the paper's numbers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.paper.figures import direct_labels, plots
from heshare.paper.figures.series_styles import EDGE, PLACED, series_style

_AXES: Mapping[str, tuple[str, float, str]] = {
    "x": ("energy_active_j", 1e6, "Energy (MJ)"),
    "y": ("avg_jct_s", 1e3, "Average JCT (1000 s)"),
}
"""Metric, unit and label of each axis."""


def points(medians: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each policy: title, x, y and the ends of their intervals, paper_x and paper_y.

    `medians` has the columns title, metric, median, low, high and paper, as from `findings.beside_paper`.
    """
    parts = []
    for axis, (metric, unit, _) in _AXES.items():
        rows = medians[medians["metric"] == metric].set_index("title")[["median", "low", "high", "paper"]] / unit
        parts.append(rows.set_axis([axis, f"{axis}_low", f"{axis}_high", f"paper_{axis}"], axis=1))
    return pd.concat(parts, axis=1).reset_index()


def draw(ax: Axes, medians: pd.DataFrame, *, forms: Sequence[Sequence[str]], plans: Sequence[str]) -> None:
    """Draw Fig. 6.

    `medians` is as for `points`. An arrow leads from each of the `forms` of a rival to the next; a line joins the
    `plans` of one front.
    """
    frame = points(medians)
    at: Any = frame.set_index("title")[["x", "y"]]
    plots.log_axis(ax, "x")
    plots.log_axis(ax, "y")
    ax.set(**{f"{axis}label": label for axis, (_, _, label) in _AXES.items()})
    ends = frame[["x_low", "x_high", "y_low", "y_high"]].to_numpy(float)
    ax.set(xlim=(0.97 * ends[:, 0].min(), 1.04 * ends[:, 1].max()), ylim=(0.9 * ends[:, 2].min(), ends[:, 3].max()))
    ax.grid(visible=True, axis="both")
    front = at.loc[list(plans)].sort_values("x")
    ax.plot(front["x"], front["y"], color=series_style(plans[0]).colour, linewidth=1.6, alpha=0.35, zorder=1)
    crossed = []
    for titles in forms:
        for start, end in pairwise(titles):
            how = {"arrowstyle": "-|>", "linewidth": 0.9, "shrinkA": 3, "shrinkB": 3, "alpha": 0.8}
            how["color"] = series_style(start).colour
            ax.annotate("", tuple(at.loc[end]), tuple(at.loc[start]), arrowprops=how, zorder=1)
            crossed.append(np.linspace(at.loc[start], at.loc[end], 15))
    direct_labels.draw_points(ax, frame)
    paper = frame.dropna(subset="paper_x")
    for title, x, y in paper[["title", "paper_x", "paper_y"]].itertuples(index=False):
        ax.plot([x], [y], "x", markersize=6, color=series_style(title).colour, markeredgewidth=1.6)
    places = {f"{axis}{end}": paper[f"paper_{axis}"] for axis in _AXES for end in ("", "_low", "_high")}
    marked = paper.assign(label=paper["title"] + ", the paper", **places)
    shown = frame.assign(label=[_label(title) for title in frame["title"]])
    direct_labels.label_frame(ax, pd.concat([shown, marked], ignore_index=True), avoid=np.vstack(crossed))
    handles: dict[str, Any] = {"color": EDGE, "linestyle": "", "markersize": 5}
    entries = [
        Line2D([], [], marker="x", markeredgewidth=1.6, label="rival by the paper's reductions", **handles),
        Line2D([], [], marker=r"$\rightarrow$", label="HeShare's placement, then own best setting", **handles),
    ]
    ax.legend(handles=entries, loc="lower right")


def _label(title: str) -> str:
    # A setting behind the name, in short.
    name, _, setting = title.replace(PLACED, ", placed").partition(" (")
    return f"{name}, own best" if setting else name
