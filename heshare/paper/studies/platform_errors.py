"""Errors of the device model on what was left out of its fit, from the tables of `data/calibration/`."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.devices.uncertainty import ALONE, CARD, CELL, NONE, SHARED
from heshare.ops.recording import recordings
from heshare.paper.figures import plots
from heshare.paper.figures.rows import interval_rows, value_line
from heshare.paper.figures.series_styles import EDGE, EFFECT, SeriesStyle

TIME, POWER = "time", "power"
GOALS: Mapping[str, float] = {TIME: 30.0, POWER: 10.0}
"""Of the median over laboratories of the mean |error|, %."""
STATED = 90.0
"""Part of the measurements that an interval should hold, %."""
ERRORS = ["mape_pct", "median_pct", "p90_pct"]
"""Mean, median and 90th percentile of |error|, which are stated together."""
HELD_OUT = "held-out half"
"""The test of `errors.csv` on the half of a recorded GPU's settings that is in no fit."""
SUPPORTS: Mapping[str, str] = {CELL: "this network on this GPU", CARD: "other networks on this GPU", NONE: "other GPUs"}
"""What an estimate is based on, in words."""
_LIMIT = "limit"


def origin(errors: pd.DataFrame) -> pd.Series:
    """Return whether the rows of a table are of GPUs recorded here (`measured`) or `published`."""
    recorded = {path.parent.name for path in recordings.folder().glob(f"*/{recordings.TABLE}")}
    return errors["laboratory"].isin(recorded).map({True: "measured", False: "published"})


def points(errors: pd.DataFrame) -> dict[str, int]:
    """Return how many values of a table are emulated, measured and published, for its caption."""
    found = {str(kind): int(n) for kind, n in errors["n"].groupby(origin(errors)).sum().items()}
    return {"emulated": int(errors["n"].sum())} | found


def middle(laboratories: pd.DataFrame) -> pd.DataFrame:
    """Return the medians over laboratories of mean, median and 90th percentile, a row for each quantity.

    Args:
        laboratories: `data/calibration/laboratories.csv`.
    """
    return laboratories.groupby("quantity")[ERRORS].median()


def words(row: pd.Series) -> str:
    """Return an error in words: mean, median and 90th percentile."""
    mean, median, p90 = (f"{row[name]:.0f}" for name in ERRORS)
    return f"{mean} % (mean; median {median}, 90th percentile {p90} %)"


def by_laboratory(laboratories: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `laboratories.csv`, the smallest error first, with a `name` for `draw`."""
    under_limit = laboratories["quantity"] == _LIMIT
    here = (origin(laboratories) == "measured").map({True: " (recorded here)", False: ""})
    what = under_limit.map({True: ", under a power limit", False: ""})
    name = laboratories["laboratory"] + here + what + laboratories["n"].map(" ({:,})".format)
    return laboratories.assign(name=name).sort_values("mape_pct", kind="stable")


def draw(axes: Sequence[Axes], rows: pd.DataFrame, goals: Mapping[str, float] | None = None) -> None:
    """Draw mean, median and 90th percentile of |error| of each row: a panel of times, and one of power below.

    Args:
        axes: of the two panels.
        rows: columns name, quantity and `ERRORS`; with a column `fitted_mape_pct` it is a second mark.
        goals: of the mean in the median row, %, by quantity; drawn as a line.
    """
    bar: dict[str, Any] = {"marker": "|", "linestyle": "", "markersize": 6}
    is_power = rows["quantity"] == POWER
    panels = {TIME: rows[~is_power], POWER: rows[is_power]}
    for ax, (quantity, part) in zip(axes, panels.items(), strict=True):
        ends = part.assign(low=part[["mape_pct", "median_pct"]].min(axis=1))
        interval_rows(ax, ends, row="name", value="mape_pct", low="low", high="p90_pct", style=_plain)
        at = range(len(part))
        ax.plot(part["p90_pct"], at, color=EFFECT, **bar)
        ax.plot(part["median_pct"], at, color=EDGE, markeredgewidth=1.4, **bar)
        if "fitted_mape_pct" in part:
            ax.plot(part["fitted_mape_pct"], at, **_plain("").line_arguments(linestyle="", markerfacecolor="white"))
        if goals:
            value_line(ax, goals[quantity], f"goal {goals[quantity]:.0f} %")
        plots.log_axis(ax, "x")
        ax.set_title(quantity.capitalize(), fontsize=7, loc="left", pad=3)
        ax.tick_params(axis="y", labelsize=6)
    axes[-1].set_xlabel("|Error| (%)")

    plain = _plain("").line_arguments(linestyle="")
    handles = [
        Line2D([], [], **plain, label="mean"),
        Line2D([], [], color=EDGE, markeredgewidth=1.4, **bar, label="median"),
        Line2D([], [], color=EFFECT, **bar, label="90th percentile"),
    ]
    if "fitted_mape_pct" in rows:
        fitted = {**plain, "markerfacecolor": "white"}
        handles.append(Line2D([], [], **fitted, label="mean, with the laboratory in the fit"))
    axes[0].figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def by_group(coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `data/calibration/coverage.csv` by quantity, sharing and support, with a `name`."""
    order = {word: place for place, word in enumerate((TIME, POWER, ALONE, SHARED, *SUPPORTS))}
    rows = coverage.sort_values(["quantity", "sharing", "support"], key=lambda column: column.map(order))
    of_laboratories = rows["n"].map("{:,}".format) + "; " + rows["laboratories"].map(str)
    name = rows["quantity"] + ", " + rows["sharing"] + ", from " + rows["support"].map(SUPPORTS)
    return rows.assign(name=name + " (" + of_laboratories + ")").reset_index(drop=True)


def draw_coverage(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    """Draw the part of measurements inside the 90 % interval, and its width, of rows from `by_group`."""
    inside, width = axes
    for ax, column, names in ((inside, "within_90_pct", True), (width, "width", False)):
        interval_rows(ax, rows, row="name", value=column, low=column, high=column, style=_plain, names=names)
        ax.tick_params(axis="y", labelsize=6)
    inside.set(xlabel="Inside the 90 % interval (%)", xlim=(0, 104))
    value_line(inside, STATED, f"stated {STATED:.0f} %")
    width.set(xlabel="Width (upper end over lower end)", xlim=(1, 1.08 * rows["width"].max()))


def _plain(_: str) -> SeriesStyle:
    return SeriesStyle(EFFECT)
