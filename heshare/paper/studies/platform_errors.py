"""Errors of the device model: the worst test of each kind of question, and each public record left out whole."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.calibration.validation.points import COVERAGE_TARGET
from heshare.paper.figures import plots
from heshare.paper.figures.rows import interval_rows
from heshare.paper.figures.series_styles import BAND, EDGE, GUIDE, TEXT, SeriesStyle, category_style

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
    return next(kind for kind, words in QUESTIONS.items() if any(word in test for word in words.split("|")))


def worst_by_question(errors: pd.DataFrame, points: pd.DataFrame, covered: pd.DataFrame) -> pd.DataFrame:
    """Return the test with the largest mean |error| of each kind of question, largest first, below a row of all points.

    `errors` and `points` are as from `calibration_report`, `covered` as from
    `heshare.lab.calibration.validation.points.coverage`.
    """
    ordered = errors.sort_values("mape_pct", ascending=False)
    worst = ordered[~ordered["test"].map(question).duplicated()]
    sizes = points["error_pct"].abs()
    every = {"test": ALL, "n": len(points), "mape_pct": sizes.mean(), "p90_pct": sizes.quantile(0.9)}
    within = covered.assign(group=covered["group"].replace("", ALL)).set_index("group")["within_90_pct"].to_dict()
    rows = pd.concat([pd.DataFrame([every]), worst], ignore_index=True)
    return rows.assign(within_90_pct=rows["test"].map(within))


def draw(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    """Draw mean and 90th percentile of |error| of each row, and the part of its points in the stated 90 % interval."""
    names = [f"{test} ({n:,})" for test, n in zip(rows["test"], rows["n"].astype(int), strict=True)]
    kinds = ["" if test == ALL else f"{question(test)}:\n" for test in rows["test"]]
    shown = rows.assign(name=[kind + name for kind, name in zip(kinds, names, strict=True)])
    interval_rows(axes[0], shown, row="name", value="mape_pct", low="mape_pct", high="p90_pct", style=_plain)
    axes[0].plot(rows["target_mape_pct"], range(len(rows)), "|", color=EDGE, markersize=8, label="target of the mean")
    axes[0].set_xlabel("Error, mean to 90th percentile (%)")
    axes[0].tick_params(axis="y", labelsize=6)
    plots.log_axis(axes[0], "x")
    axes[1].axvspan(*COVERAGE_TARGET, color=BAND, linewidth=0, zorder=0, label="target")
    within = {"value": "within_90_pct", "low": "within_90_pct", "high": "within_90_pct"}
    interval_rows(axes[1], shown, row="name", **within, style=_plain, names=False)
    for at in rows.index[rows["within_90_pct"].isna()]:
        axes[1].text(50, at, "no interval stated", ha="center", va="center", fontsize=6, color=TEXT)
    axes[1].axvline(90.0, color=GUIDE, linewidth=0.8, linestyle="--", label="stated")
    axes[1].set(xlabel="Within the 90 % interval (%)", xlim=(0, 103))
    for ax in axes:
        marks = [each for each in ax.get_legend_handles_labels()[0] if each.get_label() not in set(shown["name"])]
        ax.legend(handles=marks, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2)


def draw_records(ax: Axes, records: pd.DataFrame, goals: Mapping[str, float], most: float) -> None:
    """Draw mean |error| and bias of each public record left out whole: times and slowdowns above, power below.

    `records` is as from `heshare.lab.calibration.validation.laboratories.errors_by_laboratory`, `goals` are those of
    the medians over records, `most` is that of any record, %.
    """
    rows = records.assign(power=records["quantity"] == "power").sort_values(["power", "mape_pct"], kind="stable")
    words = rows["quantity"].map({"ratio": "slowdowns"}).fillna(rows["quantity"])
    rows["name"] = (
        rows["record"].str.replace("-using-DNN-based-models", "") + ": " + words + " (" + rows["n"].map(str) + ")"
    )
    kinds = {"mape_pct": "mean |error|", "bias_pct": "mean error (bias)"}
    long = rows.melt("name", list(kinds), "kind").replace({"kind": kinds})
    style = dict(zip(kinds.values(), map(category_style, range(2)), strict=True))
    interval_rows(
        ax, long, row="name", value="value", low="value", high="value", series="kind", style=style.__getitem__
    )
    split = int((~rows["power"]).sum())
    for quantity, low, high in (("time", -0.5, split - 0.5), ("power", split - 0.5, len(rows) - 0.5)):
        label = "goal of the median" if quantity == "time" else "_"
        ax.plot([goals[quantity]] * 2, [low, high], color=EDGE, linewidth=0.9, label=label)
    ax.axvline(most, color=EDGE, linewidth=0.8, linestyle=":", label="most of a record")
    ax.set_xscale("symlog", linthresh=50.0)
    ticks = (-50, -25, 0, 25, 50, 100, 200)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xlabel("Error (%)")
    ax.tick_params(axis="y", labelsize=6)
    ax.legend(loc="lower center", bbox_to_anchor=(0.2, 1.0), ncols=4, borderaxespad=0.2)


def _plain(_: str) -> SeriesStyle:
    return category_style(1)
