"""Ranges of claimed reductions over several conditions, as figures and as a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures.series_styles import EDGE, EFFECT, FAILS, GUIDE, HOLDS
from heshare.paper.texts import render

AS_LARGE, LESS, BELOW, NOT_BELOW = "as large", "smaller", "below zero", "not below zero"
"""The size of a reduction under one condition.

`BELOW`: where the paper has no value; `NOT_BELOW`: not below zero over the whole interval, which is the range of the
seeds where they are few.
"""
WORDS = (AS_LARGE, LESS, BELOW, NOT_BELOW)


def size_word(paper: float, change_pct: float, high_pct: float) -> str:
    """Return the word for a reduction under one condition: its median and upper end, %, against the paper's and zero.

    The median alone decides whether it is as large as the paper's (NaN: it has none): few seeds make wide intervals.
    """
    if high_pct >= 0:
        return NOT_BELOW
    if math.isnan(paper):
        return BELOW
    return AS_LARGE if change_pct <= paper else LESS


def range_rows(ax: Axes, summary: pd.DataFrame) -> None:
    """Draw the range of each claim's change over all conditions, sorted; `summary` as from `claims_over_conditions`.

    A thick bar has the rivals as in the paper, a thin one with HeShare's placement. At the right is the condition with
    the smallest reduction.
    """
    first = summary[summary["form"] == summary["form"].iloc[0]].sort_values("change_pct", kind="stable")
    for place, row in enumerate(first.to_dict("records")):
        forms = summary[summary["claim"] == row["claim"]].to_dict("records")
        for lower, each in enumerate(forms):
            colour = FAILS if each["fails"] else HOLDS
            at, (width, shape, size, face) = place + 0.3 * lower - 0.1 * (len(forms) - 1), _BARS[lower]
            ax.plot([each["least_pct"], each["worst_pct"]], [at, at], color=colour, linewidth=width, alpha=0.55)
            ax.plot([each["change_pct"]], [at], shape, color=colour, markersize=size, mew=1.2, mfc=face)
        ax.plot([row["paper_pct"]], [place], "D", color=EDGE, markersize=3)
        ax.text(1.01, place, row["worst"], transform=ax.get_yaxis_transform(), fontsize=6, va="center")
    ax.axvline(0, color=EDGE, linewidth=0.6)
    ax.text(1.01, -1.0, "smallest with", transform=ax.get_yaxis_transform(), fontsize=6, va="center", style="italic")
    ax.set_yticks(range(len(first)), list(first["claim"]), fontsize=6)
    ax.set(ylim=(len(first) - 0.4, -0.7), xlabel="Change (%)")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    ax.figure.legend(handles=_range_handles(), loc="outside upper center", ncols=3)


_BARS = ((4.0, "|", 6, "none"), (1.2, "o", 3, "white"))
"""Width, and marker with its size and inside, of the rivals' two forms."""


def _range_handles() -> list[Line2D]:
    entries: Sequence[dict[str, Any]] = (
        {"color": HOLDS, "linewidth": 4, "alpha": 0.55, "label": "range, below zero in every seed"},
        {"color": HOLDS, "marker": "|", "markersize": 6, "mew": 1.2, "ls": "", "label": "as calibrated"},
        {"color": EDGE, "marker": "D", "markersize": 3, "ls": "", "label": "the paper"},
        {"color": FAILS, "linewidth": 4, "alpha": 0.55, "label": "range, not in every seed"},
        {"color": HOLDS, "marker": "o", "mfc": "white", "markersize": 3, "label": "rival with HeShare's placement"},
    )
    return [Line2D([], [], **entry) for entry in entries]


_DIGIT: dict[str, Any] = {"fontsize": 6.5, "ha": "center", "va": "center", "fontweight": "bold"}
_DIGIT["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}


def setting_rows(ax: Axes, cells: pd.DataFrame) -> None:
    """Draw En-opt's change against Morak at each setting: a row a GPU and cap, a digit for each number of tasks.

    Behind the rows of a GPU are the paper's value and the least possible energy; `cells` as from
    `failure_reasons.by_setting`.
    """
    caps = [axis for axis in dict.fromkeys(cells["axis"]) if axis.startswith("cap")]
    names = []
    for part_place, (claim, part) in enumerate(cells.groupby("claim", sort=False)):
        kind, top = str(claim).removeprefix("O3 on "), part_place * (len(caps) + 0.7)
        ends, change = [top - 0.45, top + len(caps) - 0.55], part.set_index(["axis", "level"])["change_pct"]
        marks = (
            (paper_claims()["O3", kind].value, "-", "the paper"),
            (change["possible", "proven bound"], ":", "proven bound at Morak's defaults"),
        )
        for value, dash, label in marks:
            ax.plot([value, value], ends, color=EDGE, linewidth=1.2, linestyle=dash, label=label if top == 0 else "_")
        for place, cap in enumerate(caps):
            own = change[cap]
            names.append((top + place, f"{kind}, {cap}"))
            ax.plot(own, [top + place] * len(own), color=EFFECT, linewidth=0.6, alpha=0.5)
            for level, value in own.items():
                ax.text(value, top + place, str(level).removeprefix("k "), color=EFFECT, **_DIGIT)
    ax.axvline(0, color=GUIDE, linewidth=0.6)
    ax.set_yticks([at for at, _ in names], [name for _, name in names], fontsize=6.5)
    ax.set(ylim=(names[-1][0] + 0.6, -0.6), xlabel="En-opt's energy against Morak's (%); digits: tasks at once, k")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)


def claims_over_conditions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the results of each claim over all conditions, one row a claim and form of the rivals.

    `frame` is as from `sensitivity.verdicts`. The column `change_pct` is that in the reference.
    """
    rows = []
    for (claim, form), part in frame.groupby(["claim", "form"], sort=False):
        named = part.assign(condition=(part["axis"] + " " + part["level"]).str.strip())
        worst = named.nlargest(1, "change_pct")
        counts = {word: int((part["size"] == word).sum()) for word in WORDS}
        rows.append(
            {
                "claim": claim,
                "form": form,
                "paper_pct": part["paper_pct"].iloc[0],
                "change_pct": part.loc[part["axis"] == "", "change_pct"].item(),
                "conditions": len(part),
                **counts,
                "least_pct": part["change_pct"].min(),
                "worst_pct": worst["change_pct"].item(),
                "worst": worst["condition"].item(),
                "fails": "; ".join(named.loc[named["size"] == NOT_BELOW, "condition"]),
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def condition_ranges(frame: pd.DataFrame, sizes: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Return a sentence for the note of each claim, by (id, part): its range over all conditions, and their size.

    `frame` is as from `sensitivity.verdicts`, `sizes` as from `sensitivity.sizes_in_words`. Only the first form of the
    rivals is used.
    """
    sentences = {}
    for (id, part), rows in frame[frame["form"] == frame["form"].iloc[0]].groupby(["id", "part"], sort=False):
        ordered = rows.sort_values("change_pct", kind="stable")
        named = (ordered["axis"] + " " + ordered["level"]).str.strip().tolist()
        key, changes = (str(id), str(part)), ordered["change_pct"].tolist()
        ends = [(named[at], changes[at]) for at in (0, -1)]
        sentences[key] = render("12_sensitivity", "range", conditions=len(rows), sizes=sizes[key], ends=ends)
    return sentences
