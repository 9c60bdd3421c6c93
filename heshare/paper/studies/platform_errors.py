"""Errors of the device model: the worst test of each kind, and leave-one-record-out errors, of `data/calibration/`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.calibration.validation.points import COVERAGE_TARGET
from heshare.paper.figures import plots
from heshare.paper.figures.rows import interval_rows
from heshare.paper.figures.series_styles import BAND, EDGE, EFFECT, GUIDE, TEXT, SeriesStyle, category_style

QUESTIONS: Mapping[str, str] = {
    "language models": "language model",
    "GPU or network never measured": "features only|GPU left out",
    "MIG instances, trainings, frameworks": "MIG|training|framework",
    "power": "power",
    "tasks together": "pairs|processes",
    "inference batch size": "batch",
    "MPS percentage": "MPS",
    "SM clock": "clock",
}
"""Words in the names of the tests of each kind of question; the first kind with a word counts."""
ALL = "all points"


def question(test: str) -> str:
    """Return the kind of a test."""
    return next(kind for kind, words in QUESTIONS.items() if any(word in test for word in words.split("|")))


def with_coverage(errors: pd.DataFrame, coverage: pd.DataFrame) -> pd.DataFrame:
    """Return all errors, the smallest first, with the coverage of each test, then the coverage of other groups.

    Args:
        errors: `data/calibration/errors.csv`, one row a test.
        coverage: `data/calibration/coverage.csv`, one row a group of points; some groups are tests.

    Returns:
        The columns of both; `n_with_interval` counts the points with a stated interval.
    """
    tests = errors.sort_values("mape_pct").rename(columns={"test": "group"})
    tests.insert(0, "grouping", "test")
    stated = coverage.rename(columns={"n": "n_with_interval"})

    of_tests = tests.merge(stated, on=["grouping", "group"], how="left")
    others = stated[stated["grouping"] != "test"]
    return pd.concat([of_tests, others], ignore_index=True)


def worst_by_question(errors: pd.DataFrame, coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the test with the largest mean |error| of each kind, largest first, below a row of all points.

    Args:
        errors: as for `with_coverage`.
        coverage: likewise.

    Returns:
        One row each: test, n, mape_pct, p90_pct (NaN for all points), target_mape_pct, within_90_pct.
    """
    ordered = errors.sort_values("mape_pct", ascending=False)
    worst = ordered[~ordered["test"].map(question).duplicated()]

    every_point = {
        "test": ALL,
        "n": errors["n"].sum(),
        "mape_pct": np.average(errors["mape_pct"], weights=errors["n"]),
    }
    rows = pd.concat([pd.DataFrame([every_point]), worst], ignore_index=True)

    named = coverage.assign(group=coverage["group"].fillna(ALL)).set_index("group")
    return rows.assign(within_90_pct=rows["test"].map(named["within_90_pct"].to_dict()))


def draw(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    """Draw mean and 90th percentile of |error| of each row, and the part of its points in the stated 90 % interval."""
    names = [f"{test} ({n:,})" for test, n in zip(rows["test"], rows["n"].astype(int), strict=True)]
    kinds = ["" if test == ALL else f"{question(test)}:\n" for test in rows["test"]]
    shown = rows.assign(name=[kind + name for kind, name in zip(kinds, names, strict=True)])

    error, inside = axes
    interval_rows(error, shown, row="name", value="mape_pct", low="mape_pct", high="p90_pct", style=_plain)
    error.plot(rows["target_mape_pct"], range(len(rows)), "|", color=EDGE, markersize=8, label="target of the mean")
    error.set_xlabel("Error, mean to 90th percentile (%)")
    error.tick_params(axis="y", labelsize=6)
    plots.log_axis(error, "x")

    inside.axvspan(*COVERAGE_TARGET, color=BAND, linewidth=0, zorder=0, label="target")
    within = {"value": "within_90_pct", "low": "within_90_pct", "high": "within_90_pct"}
    interval_rows(inside, shown, row="name", **within, style=_plain, names=False)
    for at in rows.index[rows["within_90_pct"].isna()]:
        inside.text(50, at, "no interval stated", ha="center", va="center", fontsize=6, color=TEXT)
    inside.axvline(90.0, color=GUIDE, linewidth=0.8, linestyle="--", label="stated")
    inside.set(xlabel="Within the 90 % interval (%)", xlim=(0, 103))

    for ax in axes:
        marks = [each for each in ax.get_legend_handles_labels()[0] if each.get_label() not in set(shown["name"])]
        ax.legend(handles=marks, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2)


def draw_records(ax: Axes, records: pd.DataFrame, goals: Mapping[str, float], most: float) -> None:
    """Draw mean |error| and bias of each public record left out of the fit: times and slowdowns above, power below.

    `records` is as from `heshare.lab.calibration.validation.laboratories.errors_by_laboratory`, `goals` are those of
    the medians over records, `most` is that of any record, %.
    """
    rows = records.assign(power=records["quantity"] == "power").sort_values(["power", "mape_pct"], kind="stable")
    words = rows["quantity"].replace({"ratio": "slowdowns"})
    record = rows["record"].str.replace("-using-DNN-based-models", "")
    rows["name"] = record + ": " + words + " (" + rows["n"].map(str) + ")"

    kinds = {"mape_pct": "mean |error|", "bias_pct": "mean error (bias)"}
    long = rows.melt("name", list(kinds), "kind").replace({"kind": kinds})
    style = dict(zip(kinds.values(), map(category_style, range(2)), strict=True))
    interval_rows(
        ax, long, row="name", value="value", low="value", high="value", series="kind", style=style.__getitem__
    )

    split = int((~rows["power"]).sum())
    ax.plot([goals["time"]] * 2, [-0.5, split - 0.5], color=EDGE, linewidth=0.9, label="goal of the median")
    ax.plot([goals["power"]] * 2, [split - 0.5, len(rows) - 0.5], color=EDGE, linewidth=0.9, label="_")
    ax.axhline(split - 0.5, color=GUIDE, linewidth=0.6)
    ax.axvline(most, color=EDGE, linewidth=0.8, linestyle=":", label="most of a record")

    ax.set_xscale("symlog", linthresh=50.0)
    ticks = (-50, -25, 0, 25, 50, 100, 200)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xlabel("Error (%)")
    ax.tick_params(axis="y", labelsize=6)
    ax.legend(loc="lower center", bbox_to_anchor=(0.2, 1.0), ncols=4, borderaxespad=0.2)


def _plain(_: str) -> SeriesStyle:
    return SeriesStyle(EFFECT)
