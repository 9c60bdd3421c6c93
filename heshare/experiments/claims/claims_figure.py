"""Figure of the paper's claims: the paper's value beside the measured one, one row a claim, coloured by verdict."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from heshare import files
from heshare.experiments import provenance, tables
from heshare.experiments.claims import claim_table, verdicts
from heshare.experiments.figures import series_styles, style
from heshare.experiments.figures.style import with_origin, write_figure

NAME = "claims_figure"
FORMS: Mapping[str, tuple[str, float]] = {"placed": ("o", 3.4), "best": ("2", 5.0)}
"""Marker and size of the values against the rivals' other forms."""
_TITLES = {
    "reduction": "Reductions (change, %)",
    "ratio": "Ratios",
    "error": "Errors (%)",
    "ordering": "Orderings (parts that hold, %)",
}
_KINDS = {"floor": "ratio", "value": "ratio"}
_SHORTER = (
    (" over GPU mixes and loads", ""),
    (" (the paper says energy)", ""),
    ("average ", ""),
    (" against ", " / "),
    ("mu-Serve", "μ-Serve"),
    ("time on T4 over time on A100", "T4 / A100"),
)
_ORDERINGS = {
    "M1": "energy spread of light and heavy models",
    "M4": "MobileNet's time differs little",
    "M5": "the clock's effect differs between GPUs",
    "M6": "pairs are slower, T4 most, A100 least",
    "H5": "Random poorest, Sched-only never best",
    "M7": "on the A100 pairs are close to alone",
    "P4": "the forest is best",
    "H6": "JCT-opt pays with energy",
    "O5": "En-opt lowest on all platforms",
    "O6": "Trade-off below both rivals",
    "S1": "front covers more than rivals'",
}


def plotted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the paper's own claims as they are plotted.

    Args:
        table: as from `claim_table.write`.

    Returns:
        Columns id, kind, label, paper, value, low, high, placed, best, n, verdict, provenance. The value of an ordering
        is the share of its parts that hold, %, without an interval; what was not measured is NaN. `placed` and `best`
        are the values against a rival with HeShare's placement and at its own best settings.
    """
    rows = []
    for claim, row in zip(verdicts.paper_claims().values(), table.to_dict("records"), strict=True):
        if claim.id[0] not in "MPHSGO":
            continue
        value, low, high = (float(row[name]) for name in ("measured", "low", "high"))
        if claim.kind == "ordering":
            value, low, high = _share_that_holds(str(row["details"])), np.nan, np.nan
        rows.append(
            {
                "id": claim.id,
                "kind": _KINDS.get(claim.kind, claim.kind),
                "label": _label(claim),
                "paper": 100.0 if claim.kind == "ordering" else _printed_value(claim),
                "value": value,
                "low": low,
                "high": high,
                "placed": float(row["placed"]),
                "best": float(row["best"]),
                "n": row["n"],
                "verdict": row["verdict"],
                "provenance": row["provenance"],
            }
        )
    return pd.DataFrame(rows)


def _printed_value(claim: verdicts.Claim) -> float:
    """Return the number printed in the paper; for the poor predictors the verdict's threshold is another number."""
    found = re.search(r"-?\d+(\.\d+)?", claim.paper)
    return float(found.group()) if found else claim.value


def _share_that_holds(note: str) -> float:
    """Return the share of an ordering's parts that hold, %, read from its note; NaN where it was not measured."""
    good, bad = len(re.findall(r"\bholds: ", note)), note.count("FAILS: ")
    return 100.0 * good / (good + bad) if good + bad else np.nan


def _label(claim: verdicts.Claim) -> str:
    text = _ORDERINGS.get(claim.id, claim.statement)
    for long, short in _SHORTER:
        text = text.replace(long, short)
    return f"{claim.id} {text}"


def panel(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw a row for each claim: a bar at the paper's value, and ours with its interval in the verdict's colour.

    A hollow circle is the value against a rival placed like HeShare, a tick that against a rival at its own best.
    """
    for at, row in enumerate(frame.to_dict("records")):
        colour, marker = series_styles.VERDICTS[str(row["verdict"])]
        ax.plot([row["paper"]], [at], "|", color="black", markersize=7, markeredgewidth=1.4)
        if np.isfinite(row["value"]):
            ax.plot([row["low"], row["high"]], [at, at], color=colour, linewidth=1.6)
            ax.plot([row["value"]], [at], marker, color=colour, markersize=4.2)
        for form, (shape, size) in FORMS.items():
            if np.isfinite(row[form]):
                ax.plot([row[form]], [at], shape, color=series_styles.TEXT, markerfacecolor="none", markersize=size)
    ax.set_yticks(range(len(frame)), list(frame["label"]), fontsize=5.5)
    ax.set_ylim(len(frame) - 0.4, -0.6)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)
    ax.set_title(_TITLES[str(frame["kind"].iloc[0])], fontsize=7, loc="left", pad=3)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the whole figure: reductions on the left, the other kinds on the right."""
    kinds = [kind for kind in _TITLES if kind in set(frame["kind"])]
    sizes = [int((frame["kind"] == kind).sum()) for kind in kinds[1:]]
    figure = plt.figure(figsize=(style.PAGE_IN, 5.2), layout="constrained")
    grid = figure.add_gridspec(len(sizes), 2, height_ratios=[size + 2 for size in sizes], width_ratios=[1.15, 1])
    cells = [grid[:, 0], *(grid[row, 1] for row in range(len(sizes)))]
    for kind, cell in zip(kinds, cells, strict=True):
        ax = figure.add_subplot(cell)
        panel(ax, frame[frame["kind"] == kind])
        if kind == "reduction":
            ax.axvline(0, color=series_styles.EDGE, linewidth=0.6)
        else:
            ax.set_xlim(left=0)
    figure.legend(handles=_handles(list(frame["verdict"])), loc="outside upper center", ncols=6, fontsize=6)
    return figure


def _handles(verdicts: Sequence[str]) -> list[Line2D]:
    ours = [
        Line2D([], [], color=colour, marker=marker, markersize=4.2, linestyle="", label=f"here: {verdict}")
        for verdict, (colour, marker) in series_styles.VERDICTS.items()
        if verdict in verdicts
    ]
    bar = Line2D([], [], color="black", marker="|", markersize=7, markeredgewidth=1.4, linestyle="", label="the paper")
    names = {"placed": "rival placed like HeShare", "best": "rival at its own best"}
    others = [
        Line2D(
            [], [], color=series_styles.TEXT, marker=shape, markersize=size, mfc="none", linestyle="", label=names[form]
        )
        for form, (shape, size) in FORMS.items()
    ]
    return [bar, *ours, *others]


def write(folder: Path, table: pd.DataFrame) -> Path:
    """Write the figure of the paper's claims into `folder` as PDF, PNG, CSV and JSON; return the PNG's path.

    `table` is as from `claim_table.write` in the same folder.
    """
    frame = plotted(table)
    kinds = frame["provenance"].dropna()
    counts = {kind: int((kinds == kind).sum()) for kind in provenance.check_provenances([*kinds] or ["published"])}
    profiles = ", ".join(claim_table.profiles(folder)) or "none run"
    caption = (
        "The paper's value and ours with intervals (claims.md says of what). An ordering's value is the share of its "
        "parts that hold. Hollow: the rival has HeShare's placement; three spokes: its own best settings. "
        f"Notebook profile: {profiles}."
    )
    caption = with_origin(caption, counts)
    with style.using():
        figure = draw(frame)
        drawn = {"smallest_text_pt": style.smallest_text_pt(figure)}
        preview = write_figure(figure, folder, NAME, caption)
    files.write_text(folder / f"{NAME}.csv", tables.to_csv(frame))
    about = {"profile": profiles}
    text = provenance.sidecar_json(
        name=NAME,
        caption=caption,
        rows=counts,
        suffixes=provenance.FIGURE_SUFFIXES,
        notebook=None,
        parameters=about,
        drawn=drawn,
    )
    files.write_text(folder / f"{NAME}.json", text)
    return preview
