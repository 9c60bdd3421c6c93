"""Average JCT and energy over GPU mixes, loads and numbers of tasks (Figs. 8 to 11)."""

from collections.abc import Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from heshare.lab.sweeps.statistics import median_interval
from heshare.lab.sweeps.study_runs import median_intervals
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import EDGE, GUIDE, PLACED, series_style
from heshare.paper.studies import variants
from heshare.paper.texts import render

OWN_PLANS = ("Trade-off", "En-opt", "JCT-opt")
"""Titles of HeShare's own plans."""
REFERENCE = "Trade-off"
"""The policy that the others are compared with in Figs. 8 to 11."""
SEVEN = ("Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt", "Morak", "μ-Serve")
"""Titles of the paper's policies in the order of Fig. 6: the rows of Figs. 8 to 11."""
_RATIO = ("ratio", "ratio_low", "ratio_high")
_words = partial(render, "10_mixes")


def ratios(runs: pd.DataFrame, by: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    """Return medians of average JCT and energy (both accounts) beside ratios to `REFERENCE`, paired by seed."""
    rows = []
    for metric in variants.METRICS:
        wide = runs.pivot_table(index=[*by, "repetition"], columns="title", values=metric, sort=False)
        over = wide.div(wide[REFERENCE], axis=0)
        for world, part in over.groupby(list(by), sort=False):
            key = {**dict(zip(by, world, strict=True)), "metric": metric}
            found = {title: median_interval(part[title], rng).columns(*_RATIO) for title in part}
            rows += [{**key, "title": title, **each} for title, each in found.items()]
    beside = pd.DataFrame(rows).drop(columns="n")
    columns = [*by, "title", "metric", "median", "low", "high", *_RATIO, "n", "provenance"]
    medians = median_intervals(runs, [*by, "title"], variants.METRICS, rng)
    return medians.merge(beside, on=[*by, "title", "metric"], validate="one_to_one")[columns]


def panels(axes: NDArray[np.object_], frame: pd.DataFrame, metric: str, *, row: str, column: str, heading: str) -> None:
    """Draw the paired ratios of one metric to `REFERENCE`: a row for each policy of `SEVEN`, a panel for each world.

    `axes` has the shape (values of `row`, values of `column`). A rival with HeShare's placement is an open mark in
    the rival's row.
    """
    part = frame[(frame["metric"] == metric) & frame["title"].isin([*SEVEN, *(title + PLACED for title in SEVEN)])]
    places = {title: place for place, title in enumerate(SEVEN)}
    for down, (label, rows) in enumerate(part.groupby(row, sort=False)):
        for across, (name, cell) in enumerate(rows.groupby(column, sort=False)):
            ax = axes[down, across]
            ax.axvline(1.0, color=GUIDE, linewidth=0.6, zorder=0)
            for title, *ends in cell[["title", *_RATIO]].itertuples(index=False):
                shift = 0.28 if title.endswith(PLACED) else 0.0
                _ratio_mark(ax, str(title), places[title.removesuffix(PLACED)] + shift, *ends)
            ax.set_yticks(range(len(SEVEN)), SEVEN, fontsize=6)
            ax.set_ylim(len(SEVEN) - 0.4, -0.6)
            ax.grid(axis="x")
            ax.grid(visible=False, axis="y")
            plots.log_axis(ax, "x")
            ax.tick_params(axis="x", labelsize=6)
            if down == 0:
                ax.set_title(heading.format(name), fontsize=6, pad=2)
            if across == axes.shape[1] - 1:
                ax.set_ylabel(str(label), fontsize=6.5, rotation=270, labelpad=8)
                ax.yaxis.set_label_position("right")
    words = {variants.JCT: "Average JCT", variants.ENERGY: "Energy"}[metric]
    before, even = divmod(axes.shape[1] - 1, 2)
    axes[-1, before].set_xlabel(f"{words} over Trade-off's", fontsize=6.5, x=1.05 if even else 0.5)
    axes[0, 0].figure.legend(handles=_placements(), loc="outside upper center", ncols=2)


def _ratio_mark(ax: Axes, title: str, at: float, ratio: float, low: float, high: float) -> None:
    how = series_style(title).line_arguments(linestyle="", markersize=2.6, markeredgewidth=0.6)
    spread = [[ratio - low], [high - ratio]]
    ax.errorbar([ratio], [at], xerr=spread, elinewidth=0.7, capsize=0, label=title, **how)


def _placements() -> list[Line2D]:
    named = ((EDGE, "as in the paper"), ("white", "rival with HeShare's placement"))
    style: dict[str, Any] = {"ls": "", "marker": "o", "markersize": 3, "color": EDGE}
    return [Line2D([], [], **style, markerfacecolor=face, label=label) for face, label in named]


def panel_counts(frame: pd.DataFrame, by: Sequence[str], metric: str) -> dict[str, Any]:
    """Return the number of panels, and that of those in which Trade-off is wholly below or above others of `SEVEN`.

    `frame` is as from `ratios`, `by` its columns that name a panel.
    """
    part = frame[frame["metric"] == metric]
    of_title = {title: part[part["title"] == title] for title in SEVEN if title != REFERENCE}
    above = {title: int((rows["ratio_low"] > 1).sum()) for title, rows in of_title.items()}
    below = {title: int((rows["ratio_high"] < 1).sum()) for title, rows in of_title.items()}
    found = {name: {title: n for title, n in each.items() if n} for name, each in (("above", above), ("below", below))}
    return {"count": len(part.groupby(list(by))), **found}


def own_plan_changes(runs: pd.DataFrame, by: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return the changes of each of HeShare's plans against the others, paired by world and seed, for each `by`."""
    rows = []
    for group, part in runs.groupby(by, sort=False):
        for (ours, theirs), metric in product(permutations(OWN_PLANS, 2), (variants.ENERGY, variants.JCT)):
            size = variants.median_change(part, ours, theirs, metric, rng).columns("change_pct", "low_pct", "high_pct")
            rows.append({by: group, "ours": ours, "theirs": theirs, "metric": metric, **size})
    return pd.DataFrame(rows).assign(provenance="emulated")


def own_plan_claim(table: pd.DataFrame, group: str, ours: str, theirs: str, metric: str) -> dict[str, Any]:
    sizes = variants.intervals(table[table[table.columns[0]] == group], "ours", "theirs", "metric")
    energy = metric == variants.ENERGY
    note = _words(
        "own_plans",
        word="average JCT" if energy else "energy",
        beside=sizes[ours, theirs, variants.JCT if energy else variants.ENERGY],
        energy=sizes["En-opt", "JCT-opt", variants.ENERGY].value,
        jct=sizes["JCT-opt", "En-opt", variants.JCT].value,
    )
    return sizes[ours, theirs, metric].claim_arguments(note)


def least_energy(table: pd.DataFrame, plans: pd.DataFrame) -> dict[str, Any]:
    """Return claim O5: En-opt has the least energy on every GPU and number of tasks."""
    energy = table[table["metric"] == variants.ENERGY]
    shown = energy[energy["title"].isin(SEVEN)]
    best = shown.loc[shown.groupby(["GPU", "tasks"], sort=False)["median"].idxmin()]
    holds = {f"{row.GPU}, {row.tasks} tasks": row.title == "En-opt" for row in best.itertuples()}
    others = best[best["title"] != "En-opt"].to_dict("records")
    found = own_plan_claim(plans, "all", "En-opt", "Trade-off", variants.ENERGY)
    return {**found, "note": _words("least_energy", others=others), "holds": holds}


def below_both(table: pd.DataFrame, ours: str) -> dict[str, Any]:
    """Return claim O6: a plan takes less energy than either rival on every GPU."""
    chosen = (table["ours"] == ours) & (table["metric"] == variants.ENERGY) & (table["form"] == variants.PAPER)
    rows = table[chosen & (table["gpu"] != "all")]
    holds = {f"below {row['rival']} on {row['gpu']}": row["high_pct"] < 0 for row in rows.to_dict("records")}
    worst: Any = rows.sort_values("change_pct").iloc[-1]
    sizes = variants.intervals(rows, "rival", "gpu")
    return sizes[worst["rival"], worst["gpu"]].claim_arguments(
        _words("below_both", worst=worst),
        holds=holds,
        at={"rival": worst["rival"], "gpu": worst["gpu"]},
    )


def both_rivals(table: pd.DataFrame, ours: str, metric: str, end: str = "") -> dict[str, Any]:
    """Return the arguments of a claim on Morak and mu-Serve at once: in each form the smaller gain counts."""
    rows = table[(table["ours"] == ours) & (table["metric"] == metric) & (table["form"] == variants.PAPER)]
    sizes = dict(zip(rows["rival"], rows["change_pct"], strict=True))
    worst, other = sorted(sizes, key=lambda rival: -sizes[rival])
    more = _words("other_rival", rival=other, size=sizes[other], end=end)
    found = variants.rival_claim(table, ours, worst, metric, more)
    each = [variants.rival_claim(table, ours, rival, metric)["forms"] for rival in sizes]
    forms = {form: max(forms[form] for forms in each) for form in found["forms"]}
    return {**found, "forms": forms, "at": {"rival": worst}}
