"""Verdicts as pictures: claims by condition, and the paper's values beside ours; pure like all plots."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.textpath import TextPath

from heshare.experiments.claims.claim_table import DIRECTION, FAILED, REPRODUCED

BELOW = "below zero"
"""The verdict on a reduction of which the paper says nothing."""
COLOURS: Mapping[str, str] = {REPRODUCED: "#8FD3BC", DIRECTION: "#F7E7A0", BELOW: "#D9DEE8", FAILED: "#EDA483"}
"""Light forms of the palette of Okabe and Ito, on which black text can be read."""
HATCHES: Mapping[str, str] = {FAILED: "////"}
WORDS: Mapping[str, str] = {
    REPRODUCED: "as large as the paper says, or larger",
    DIRECTION: "below zero, but smaller",
    BELOW: "below zero; the paper says nothing",
    FAILED: "not certainly below zero",
}
"""What a colour of `heat` means."""


def heat(ax: Axes, frame: pd.DataFrame, *, size_pt: float = 5.0) -> list[Artist]:
    """A table of cells: claims downwards, conditions across, each with its change (%) in the colour of its verdict.

    Args:
        ax: where to draw.
        frame: columns claim, axis, level, change_pct, verdict, in the order to draw them; one row a cell.
        size_pt: of the numbers.
    """
    rows = list(dict.fromkeys(frame["claim"]))
    columns = list(dict.fromkeys(zip(frame["axis"], frame["level"], strict=True)))
    drawn: list[Artist] = []
    for cell in frame.to_dict("records"):
        x, y = columns.index((cell["axis"], cell["level"])), rows.index(cell["claim"])
        verdict, change = str(cell["verdict"]), float(cell["change_pct"])
        look: dict[str, Any] = {"facecolor": COLOURS[verdict], "hatch": HATCHES.get(verdict, ""), "edgecolor": "white"}
        drawn.append(ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0.4, **look)))
        text = f"{change:+.0f}".replace("-", "\u2212") if abs(change) >= 0.5 else "0"
        drawn.append(ax.text(x, y, text, fontsize=size_pt, ha="center", va="center"))
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), rows, fontsize=size_pt + 0.5)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    _groups(ax, [axis for axis, _ in columns])
    return drawn


def column_names(ax: Axes, frame: pd.DataFrame, *, size_pt: float = 5.5) -> None:
    """The conditions' names above a table of `heat`: levels upright, what differs above them."""
    columns = list(dict.fromkeys(zip(frame["axis"], frame["level"], strict=True)))
    levels = [TextPath((0, 0), level, size=size_pt).get_extents().width for _, level in columns]
    how: dict[str, Any] = {"textcoords": "offset points", "fontsize": size_pt, "ha": "center", "va": "bottom"}
    for x, (_, level) in enumerate(columns):
        ax.annotate(level, (x, -0.5), (0, 3), rotation=90, **how)
    for axis, first, last in _spans([axis for axis, _ in columns]):
        if axis:
            name = axis.replace(" ", "\n", 1) if first < last < first + 2 else axis
            ax.annotate(name, ((first + last) / 2, -0.5), (0, 8 + max(levels)), linespacing=0.95, **how)


def _groups(ax: Axes, axes: Sequence[str]) -> None:
    """Gaps between what differs in different things."""
    for _, first, _ in _spans(axes):
        if first:
            ax.axvline(first - 0.5, color="white", linewidth=2.2)


def _spans(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Each run of equal names with the places of its first and last."""
    ends = np.flatnonzero([one != other for one, other in zip(names, [*names[1:], None], strict=True)])
    starts = [0, *(int(end) + 1 for end in ends[:-1])]
    return [(names[first], first, int(last)) for first, last in zip(starts, ends, strict=True)]


def patches(frame: pd.DataFrame) -> list[Patch]:
    """What the colours of a table of `heat` mean, for a legend."""
    shown = [verdict for verdict in WORDS if verdict in set(frame["verdict"])]
    return [
        Patch(facecolor=COLOURS[verdict], hatch=HATCHES.get(verdict, ""), edgecolor="white", label=WORDS[verdict])
        for verdict in shown
    ]


def survival(frame: pd.DataFrame) -> pd.DataFrame:
    """How each claim fares over all conditions.

    Args:
        frame: as from `heshare.experiments.studies.sensitivity.verdicts`, the reference among the conditions.

    Returns:
        One row a claim and form of the rivals: claim, form, paper_pct, change_pct (in the reference), conditions, how
        many of them have each verdict, the change in the worst one and which that is, those that fail, provenance.
    """
    rows = []
    for (claim, form), part in frame.groupby(["claim", "form"], sort=False):
        named = part.assign(condition=(part["axis"] + " " + part["level"]).str.strip())
        worst = named.nlargest(1, "change_pct")
        counts = {verdict: int((part["verdict"] == verdict).sum()) for verdict in WORDS}
        rows.append(
            {
                "claim": claim,
                "form": form,
                "paper_pct": part["paper_pct"].iloc[0],
                "change_pct": part.loc[part["axis"] == "", "change_pct"].item(),
                "conditions": len(part),
                **counts,
                "worst_pct": worst["change_pct"].item(),
                "worst": worst["condition"].item(),
                "fails": "; ".join(named.loc[named["verdict"] == FAILED, "condition"]),
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def across(frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """The range of each claim over all conditions, as a sentence for its note, by (id, part).

    Args:
        frame: as from `heshare.experiments.studies.sensitivity.verdicts`; the first form of the rivals counts.
    """
    said = {}
    for (id, part), rows in frame[frame["form"] == frame["form"].iloc[0]].groupby(["id", "part"], sort=False):
        ordered = rows.sort_values("change_pct", kind="stable")
        named = (ordered["axis"] + " " + ordered["level"]).str.strip().tolist()
        sizes = ordered["change_pct"].tolist()
        ends = [f"{sizes[at]:+.0f} % ({named[at]})" for at in (0, -1)]
        said[str(id), str(part)] = f"Over the {len(rows)} conditions of Fig. A31 it goes from {ends[0]} to {ends[1]}."
    return said
