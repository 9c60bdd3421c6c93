"""Errors of predictors on rows, workloads and GPUs that training did not see, as a figure and a short table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import EDGE, LineArguments, category_style
from heshare.prediction.table5 import ERRORS
from heshare.shared.arrays import FloatArray

SPLITS = {"row": "rows", "workload": "new workloads", "gpu": "new GPU"}
"""What is held out, in words, by the split of `prediction_errors`."""
_MARK: LineArguments = {"linestyle": "", "markersize": 3.5, "markeredgewidth": 0.8}
_TICK: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 7, "markeredgewidth": 1.3, "color": "black"}


def of_both(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of time and power together; of times alone where no power was recorded.

    `errors` is as from `heshare.prediction.table5.prediction_errors`, of several data sets.
    """
    return errors[(errors["quantity"] == "both") | (errors["data"] == "published")]


def readable(errors: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each technique with its absolute and relative error, %, for each data set and split.

    `errors` is as from `of_both`.
    """
    columns: dict[str, dict[str, str]] = {}
    for (data, split, technique), part in errors.groupby(["data", "split", "technique"], sort=False):
        size = part.set_index("error")["mean_pct"]
        head = f"{str(data).capitalize()}, {SPLITS[str(split)]}"
        columns.setdefault(head, {})[str(technique)] = f"{size['absolute']:.1f} / {size['relative']:.1f}"
    return pd.DataFrame(columns).rename_axis("Technique").reset_index()


def draw(axes: Sequence[Axes], errors: pd.DataFrame, paper: pd.DataFrame) -> None:
    """Draw errors on log axes, a row for each technique, a panel for each split; open marks are on published times.

    Args:
        axes: one for each of `SPLITS`.
        errors: as from `of_both`.
        paper: as from `paper_tables.paper_errors`; drawn where rows are held out, as in the paper.
    """
    names = list(errors["technique"].unique())
    limits = (0.7 * errors["low_pct"].min(), 1.4 * errors["high_pct"].max())

    for ax, (split, title) in zip(axes, SPLITS.items(), strict=True):
        for place, error in enumerate(ERRORS):
            shift = 0.34 * (place - 0.5)
            rows = errors[(errors["split"] == split) & (errors["error"] == error)]
            _marks(ax, rows, np.array([names.index(name) for name in rows["technique"]]) + shift, place)
            if split == "row":
                said = paper[paper["error"] == error]
                at = np.array([names.index(name) for name in said["technique"]]) + shift
                ax.plot(said["paper_pct"], at, **_TICK)

        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.5, -0.5), xlim=limits, xlabel="Error (%)")
        plots.log_axis(ax, "x")
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
        ax.set_title(f"Held out: {title}", fontsize=7, pad=3)
    axes[0].figure.legend(handles=_handles(), loc="outside upper center", ncols=4)


def _marks(ax: Axes, rows: pd.DataFrame, at: FloatArray, place: int) -> None:
    style = category_style(place)
    ax.hlines(at, rows["low_pct"], rows["high_pct"], color=style.colour, linewidth=0.8)
    is_open = (rows["data"] == "published").to_numpy(bool)
    for chosen, face in ((~is_open, style.colour), (is_open, "white")):
        how = style.line_arguments(**_MARK | {"markerfacecolor": face})
        ax.plot(rows["mean_pct"].to_numpy(float)[chosen], at[chosen], **how)


def _handles() -> list[Line2D]:
    styles = [category_style(place) for place in range(len(ERRORS))]
    handles = [
        Line2D([], [], label=f"{error} error", **style.line_arguments(**_MARK))
        for error, style in zip(ERRORS, styles, strict=True)
    ]
    empty = styles[0].line_arguments(**_MARK | {"color": EDGE, "markerfacecolor": "white"})
    handles.append(Line2D([], [], label="published times", **empty))
    handles.append(Line2D([], [], label="the paper", **_TICK))
    return handles
