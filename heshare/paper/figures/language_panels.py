"""Figures of language models: energy a token over latency, and the effect of sharing."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures import direct_labels, plots
from heshare.paper.figures.rows import interval_rows, value_line
from heshare.paper.figures.series_styles import category_style

_ENDS = ("median", "low", "high")


def plane(ax: Axes, medians: pd.DataFrame, over: str, *, xlabel: str, ylabel: str, log: bool) -> None:
    """Draw energy a token over the metric `over`: a named point a policy with its intervals.

    `medians` is as from `harness.medians`, with the metrics `over` and token_j.
    """
    parts = []
    for axis, metric in {"x": over, "y": "token_j"}.items():
        rows = medians[medians["metric"] == metric].set_index("title")[list(_ENDS)]
        parts.append(rows.set_axis([axis, f"{axis}_low", f"{axis}_high"], axis=1))
    frame = pd.concat(parts, axis=1).reset_index()

    if log:
        plots.log_axis(ax, "x")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(visible=True, axis="both")
    direct_labels.draw_points(ax, frame)
    direct_labels.label_frame(ax, frame)


def changes(ax: Axes, frame: pd.DataFrame, *, series: str, label: str, names: bool) -> None:
    """Draw changes in %: a row a policy, a mark for each value of `series`; `names`: whether rows have names.

    `frame` has the columns title, change_pct, low_pct and high_pct.
    """
    kinds = [str(kind) for kind in frame[series].unique()]
    how: dict[str, Any] = {"series": series, "style": lambda kind: category_style(kinds.index(kind)), "names": names}
    interval_rows(ax, frame, row="title", value="change_pct", low="low_pct", high="high_pct", **how)
    value_line(ax, 0.0)
    ax.set_xlabel(label, fontsize=7)
