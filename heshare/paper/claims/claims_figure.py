"""Figure of all claims: the published value beside the measured one, one row a claim, coloured by verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from heshare.paper import tables
from heshare.paper.claims import claim_table, verdicts
from heshare.paper.claims.claims_page import FORMS as WORDS
from heshare.paper.claims.claims_page import held
from heshare.paper.figures import plots, series_styles, style
from heshare.paper.figures.style import with_origin, write_figure
from heshare.paper.provenance import sidecar as provenance
from heshare.paper.texts import render
from heshare.shared import files

NAME = "claims_figure"
FORMS: Mapping[str, tuple[str, float]] = {"placed": ("o", 3.4), "best": ("2", 5.0)}
"""Marker and size of the values against the rivals' other forms."""
OWN, OTHERS = "this paper", "other papers"
"""Sections of the figure: claims of the HeShare paper, and of the papers of other systems."""
PANELS: Mapping[tuple[str, str], str] = {
    (OWN, "change"): "Changes (%)",
    (OTHERS, "change"): "Other papers: changes (%)",
    (OWN, "ratio"): "Ratios",
    (OWN, "error"): "Errors (%)",
    (OWN, "ordering"): "Orderings (filled: holds)",
    (OTHERS, "ratio"): "Other papers: ratios",
    (OTHERS, "ordering"): "Other papers: orderings",
}
"""Title of each panel by section and kind; those of the kind `change` are in the left column."""
_KINDS = {"floor": "ratio", "value": "ratio", "reduction": "change", "limit": "change"}
_ROW_IN = 0.145


def plotted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all claims as they are plotted; `table` is as from `claim_table.write`.

    `paper_far` is the other end of a range. The value of an ordering is the share of its parts that hold, %, without an
    interval; what was not measured is NaN.
    """
    rows = []
    for claim, row in zip(verdicts.paper_claims().values(), table.to_dict("records"), strict=True):
        numbers = {name: float(row[name]) for name in ("measured", "low", "high")}
        ordering = claim.kind == "ordering"
        good, bad = held(str(row["details"]))
        if ordering:
            share = 100.0 * good / (good + bad) if good + bad else np.nan
            numbers = {"measured": share, "low": np.nan, "high": np.nan}
        rows.append(
            {
                "id": claim.id,
                "section": OWN if claim.is_own else OTHERS,
                "kind": _KINDS.get(claim.kind, claim.kind),
                "label": f"{claim.id} {claim.label}",
                "paper": 100.0 if ordering else claim.printed,
                "paper_far": claim.far,
                "value": numbers.pop("measured"),
                **numbers,
                "holds": good if ordering else 0,
                "fails": bad if ordering else 0,
                **{name: row[name] for name in ("placed", "best", "n", "verdict", "why", "provenance")},
            }
        )
    return pd.DataFrame(rows)


def by_gap(frame: pd.DataFrame) -> pd.DataFrame:
    """Return claims by the letter of their id, in each group by the gap from the paper's value to ours."""
    letters = frame["id"].str[0]
    place = letters.map({letter: at for at, letter in enumerate(dict.fromkeys(letters))})
    ordered = frame.assign(place=place, gap=frame["value"] - frame["paper"]).sort_values(
        ["place", "gap"], kind="stable"
    )
    return ordered.drop(columns=["place", "gap"]).reset_index(drop=True)


def panel(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw a row for each claim: bars at the paper's values, and ours with its interval in the verdict's colour.

    A hollow circle is the value against a rival placed like HeShare, spokes that against a rival at its own best. An
    ordering has a square for each of its parts. Lines separate the groups of claims.
    """
    key = str(frame["section"].iloc[0]), str(frame["kind"].iloc[0])
    frame = by_gap(frame)
    for at, row in enumerate(frame.to_dict("records")):
        colour, marker = series_styles.VERDICTS[str(row["verdict"])]
        if at and frame["id"].iloc[at - 1][0] != str(row["id"])[0]:
            ax.axhline(at - 0.5, color=series_styles.GUIDE, linewidth=0.5)
        if key[1] == "ordering":
            for place in range(row["holds"] + row["fails"]):
                face = colour if place < row["holds"] else "white"
                ax.plot([place], [at], "s", color=colour, markerfacecolor=face, markersize=4.2, markeredgewidth=0.8)
            continue
        ends = [each for each in (row["paper"], row["paper_far"]) if np.isfinite(each)]
        ax.plot(ends, [at] * len(ends), "-|", color="black", linewidth=0.6, markersize=7, markeredgewidth=1.4)
        if np.isfinite(row["value"]):
            ax.plot([row["low"], row["high"]], [at, at], color=colour, linewidth=1.6)
            ax.plot([row["value"]], [at], marker, color=colour, markersize=4.2)
        elif row["verdict"] in (verdicts.UNTESTABLE, verdicts.NOT_YET):
            style: dict[str, Any] = {"xytext": (-5, 0), "textcoords": "offset points", "va": "center", "ha": "right"}
            ax.annotate(str(row["verdict"]), (min(ends), at), color=colour, fontsize=6, **style)
        for form, (shape, size) in FORMS.items():
            if np.isfinite(row[form]):
                ax.plot([row[form]], [at], shape, color=series_styles.TEXT, markerfacecolor="none", markersize=size)
    ax.set_yticks(range(len(frame)), list(frame["label"]), fontsize=6)
    ax.set_ylim(len(frame) - 0.4, -0.6)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)
    ax.set_title(PANELS[key], fontsize=7, loc="left", pad=3)
    if key[1] == "change":
        ax.axvline(0, color=series_styles.EDGE, linewidth=0.6)
    elif key[1] == "ratio":
        plots.log_axis(ax, "x")
    elif key[1] == "ordering":
        ax.set(xlim=(-0.6, 9.6), xticks=[])
        ax.grid(visible=False)
    else:
        ax.set_xlim(left=-0.03 * ax.get_xlim()[1])


def draw(frame: pd.DataFrame) -> Figure:
    parts: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(["section", "kind"], sort=False)))
    columns = [[key for key in PANELS if key in parts and (key[1] == "change") == left] for left in (True, False)]
    # A title and an axis take the height of about three rows.
    sizes = [[len(parts[key]) + 3 for key in column] for column in columns]
    height_in = 0.5 + _ROW_IN * max(map(sum, sizes))
    figure = plt.figure(figsize=(style.PAGE_IN, height_in), layout="constrained")
    halves = figure.add_gridspec(1, 2, width_ratios=[1.2, 1])
    for side, (column, own) in enumerate(zip(columns, sizes, strict=True)):
        cells = halves[0, side].subgridspec(len(column), 1, height_ratios=own)
        for place, key in enumerate(column):
            panel(figure.add_subplot(cells[place, 0]), parts[key])
    figure.legend(handles=_handles(list(frame["verdict"])), loc="outside upper center", ncols=5, fontsize=6.5)
    return figure


def _handles(verdicts: Sequence[str]) -> list[Line2D]:
    entries: list[dict[str, Any]] = [
        {"color": "black", "marker": "|", "markersize": 7, "markeredgewidth": 1.4, "label": "the paper"}
    ]
    entries += [
        {"color": colour, "marker": marker, "markersize": 4.2, "label": f"here: {verdict}"}
        for verdict, (colour, marker) in series_styles.VERDICTS.items()
        if verdict in verdicts
    ]
    hollow = {"color": series_styles.TEXT, "mfc": "none"}
    entries += [
        {**hollow, "marker": shape, "markersize": size, "label": WORDS[form]} for form, (shape, size) in FORMS.items()
    ]
    return [Line2D([], [], linestyle="", **entry) for entry in entries]


def write(folder: Path, table: pd.DataFrame) -> Path:
    """Write the figure of all claims into `folder` as PDF, PNG, CSV and JSON; return the PNG's path."""
    frame = plotted(table)
    kinds = frame["provenance"].dropna()
    counts = {kind: int((kinds == kind).sum()) for kind in provenance.check_provenances([*kinds] or ["published"])}
    about = {"count": len(frame), "counts": claim_table.count_text(table)}
    caption = render("claims", "figure", **about, about_profile=claim_table.profile_text(folder))
    caption = with_origin(caption, counts)
    with style.using():
        figure = draw(frame)
        drawn = {"smallest_text_pt": style.smallest_text_pt(figure)}
        preview = write_figure(figure, folder, NAME, caption)
    files.write_text(folder / f"{NAME}.csv", tables.to_csv(frame))
    text = provenance.sidecar_json(
        name=NAME,
        caption=caption,
        rows=counts,
        suffixes=provenance.FIGURE_SUFFIXES,
        notebook=None,
        parameters={"profile": claim_table.reported_profile(folder)},
        drawn=drawn,
    )
    files.write_text(folder / f"{NAME}.json", text)
    return preview
