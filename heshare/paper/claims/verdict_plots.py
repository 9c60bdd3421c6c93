"""Heat maps and tables of the size of claimed reductions under several conditions."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.textpath import TextPath

from heshare.paper.figures.series_styles import SIZES
from heshare.paper.texts import render

AS_LARGE, LESS, BELOW, NOT_BELOW = "as large", "smaller", "below zero", "not below zero"
"""The size of a reduction under one condition; `BELOW` where the paper has no value."""
MEANINGS: Mapping[str, str] = {
    AS_LARGE: "as large as the paper says, or larger",
    LESS: "below zero, but smaller",
    BELOW: "below zero; the paper says nothing",
    NOT_BELOW: "not certainly below zero",
}
"""The meaning of each colour in a `heat_map`."""


_MANY = 16
"""Up to so many columns the names of axes are written across."""


def size_word(paper: float, change_pct: float, high_pct: float) -> str:
    """Return the word for a reduction under one condition: its median and upper end, %, against the paper's and zero.

    The median alone decides whether it is as large as the paper's (NaN: it has none): few seeds make wide intervals.
    """
    if high_pct >= 0:
        return NOT_BELOW
    if math.isnan(paper):
        return BELOW
    return AS_LARGE if change_pct <= paper else LESS


def heat_map(ax: Axes, frame: pd.DataFrame, *, size_pt: float = 6.0) -> None:
    """Draw a heat map: one row a claim, one column a condition, in each cell the change (%) in its size's colour.

    Reductions have no sign, so that the numbers fit into narrow cells; increases have a plus.
    `frame` has the columns claim, axis, level, change_pct and size, one row a cell in the order of drawing.
    """
    rows = list(dict.fromkeys(frame["claim"]))
    columns = list(dict.fromkeys(zip(frame["axis"], frame["level"], strict=True)))
    for cell in frame.to_dict("records"):
        x, y = columns.index((cell["axis"], cell["level"])), rows.index(cell["claim"])
        word, change = str(cell["size"]), float(cell["change_pct"])
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0.4, **_patch_style(word)))
        text = f"{change:+.0f}".removeprefix("-") if abs(change) >= 0.5 else "0"
        ax.text(x, y, text, fontsize=size_pt, ha="center", va="center", in_layout=False)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), rows, fontsize=size_pt)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for _, first, _ in _spans(columns):
        if first:
            ax.axvline(first - 0.5, color="white", linewidth=2.2)


def _patch_style(word: str) -> dict[str, Any]:
    colour, hatch = SIZES[word]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white"}


def column_names(ax: Axes, frame: pd.DataFrame, *, size_pt: float = 6.0) -> None:
    """Write the conditions' names above a `heat_map`: the levels, rotated, above them the axes, rotated if many."""
    columns = list(dict.fromkeys(zip(frame["axis"], frame["level"], strict=True)))
    levels = [TextPath((0, 0), level, size=size_pt).get_extents().width for _, level in columns]
    how: dict[str, Any] = {"textcoords": "offset points", "fontsize": size_pt, "ha": "center", "va": "bottom"}
    for x, (_, level) in enumerate(columns):
        ax.annotate(level, (x, -0.5), (0, 3), rotation=90, **how)
    for axis, first, last in _spans(columns):
        if axis:
            name = axis.replace(" ", "\n", 1) if first < last < first + 2 else axis
            turned = 90 if len(columns) > _MANY else 0
            where = ((first + last) / 2, -0.5), (0, 8 + max(levels))
            ax.annotate(name, *where, linespacing=0.95, rotation=turned, **how)


def _spans(columns: list[tuple[str, str]]) -> list[tuple[str, int, int]]:
    # Each axis of (axis, level) columns with the positions of its first and last column.
    spans = [(axis, [at for at, _ in part]) for axis, part in groupby(enumerate(columns), lambda each: each[1][0])]
    return [(axis, positions[0], positions[-1]) for axis, positions in spans]


def legend_patches(frame: pd.DataFrame) -> list[Patch]:
    shown = set(frame["size"])
    return [Patch(label=words, **_patch_style(word)) for word, words in MEANINGS.items() if word in shown]


def claims_over_conditions(frame: pd.DataFrame, ranges: Mapping[str, Sequence[str]] | None = None) -> pd.DataFrame:
    """Return the results of each claim over all conditions, one row a claim and form of the rivals.

    `frame` is as from `sensitivity.verdicts`, with the reference. `ranges` has groups of axes by name; each becomes two
    columns, such as power_low_pct and power_high_pct: the least and the largest change over the reference and the
    group's conditions. The column `change_pct` is that in the reference.
    """
    rows = []
    for (claim, form), part in frame.groupby(["claim", "form"], sort=False):
        named = part.assign(condition=(part["axis"] + " " + part["level"]).str.strip())
        worst = named.nlargest(1, "change_pct")
        counts = {word: int((part["size"] == word).sum()) for word in MEANINGS}
        rows.append(
            {
                "claim": claim,
                "form": form,
                "paper_pct": part["paper_pct"].iloc[0],
                "change_pct": part.loc[part["axis"] == "", "change_pct"].item(),
                **_ends_by_group(part, ranges or {}),
                "conditions": len(part),
                **counts,
                "worst_pct": worst["change_pct"].item(),
                "worst": worst["condition"].item(),
                "fails": "; ".join(named.loc[named["size"] == NOT_BELOW, "condition"]),
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def _ends_by_group(part: pd.DataFrame, ranges: Mapping[str, Sequence[str]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, axes in ranges.items():
        changes = part.loc[part["axis"].isin(["", *axes]), "change_pct"]
        found |= {f"{name}_low_pct": float(changes.min()), f"{name}_high_pct": float(changes.max())}
    return found


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
