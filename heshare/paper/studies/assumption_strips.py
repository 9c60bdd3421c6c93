"""Six numbers over the inference batch size, beside the paper's values: the strips."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures.series_styles import BAND, EDGE, EFFECT, GUIDE, TEXT, category_style
from heshare.paper.studies.assumptions import DEFAULT, MIXED, SIZE

WORTH = "Worth of sharing"
STRIPS: Sequence[tuple[str, str, str, str]] = (
    ("ResNet-50: T4 / A100", "M2", "", "x"),
    ("BERT: T4 / A100", "M3", "", "x"),
    ("Pairs on the A100: slower by", "M7", "", "%"),
    ("Trade-off / Morak: energy", "H1", "energy", "%"),
    ("JCT-opt / Random: JCT", "H4", "Random", "%"),
    (WORTH, "worth", "sharing: energy", "%"),
    (WORTH, "worth", "sharing: jct", "%"),
)
"""Title, id, part and unit of each strip."""
_SMALL = {"fontsize": 6.0, "color": TEXT}


def strips(values: pd.DataFrame, own_size: int) -> pd.DataFrame:
    """Return the strips' numbers by inference batch size; `values` as from `assumptions.values`.

    `own_size` is the package's size in Section II; task sets of the package draw from two sizes.

    Returns:
        One row a strip, part and size: strip, id, part, unit, batch_sizes, value, low, high, paper, verdict, n,
        is_default, holds (the interval or, of a floor, the value agrees with the paper), provenance.
    """
    of_size = values[(values["axis"] == SIZE) & (values["admission"] == DEFAULT)]
    frames = []
    for title, id, part, unit in STRIPS:
        rows = of_size[(of_size["id"] == id) & (of_size["part"] == part)].assign(strip=title, unit=unit)
        drawn = rows["batch_sizes"].str.contains(" ")
        # Section II has one size: its rows for a task set of two repeat those of the package's own size.
        rows = rows[~drawn] if id.startswith("M") else rows
        own = rows["batch_sizes"] == str(own_size) if id.startswith("M") else rows["batch_sizes"].str.contains(" ")
        frames.append(rows.assign(is_default=own).sort_values("batch_sizes", key=_places, kind="stable"))
    names = ["strip", "id", "part", "unit", "batch_sizes", "value", "low", "high", "paper", "verdict", "n"]
    return pd.concat(frames, ignore_index=True)[[*names, "is_default", "holds", "provenance"]]


def _places(sizes: pd.Series) -> pd.Series:
    """Return sort keys: the mean size, that of all sizes last."""
    return sizes.map(lambda text: np.inf if text == MIXED else np.mean([int(each) for each in text.split()]))


def draw(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw each strip: ours with its band over the sizes, and the paper's value as a line."""
    sizes = table["batch_sizes"].drop_duplicates().sort_values(key=_places).tolist()
    for ax, (title, strip) in zip(axes, table.groupby("strip", sort=False), strict=True):
        ax.set_title(title, fontsize=7.5, loc="left")
        ax.set_xticks(range(len(sizes)), [size.replace(" ", "+") for size in sizes])
        ax.set_xlim(-0.5, len(sizes) - 0.5)
        _paper_line(ax, strip.iloc[0])
        for index, (part, rows) in enumerate(strip.groupby("part", sort=False)):
            name = str(part).rpartition(": ")[2].replace("jct", "JCT") if title == WORTH else ""
            _curve(ax, rows, sizes, category_style(index).colour if name else EFFECT, name)
        ax.margins(y=0.18)


def _paper_line(ax: Axes, row: pd.Series) -> None:
    if row["strip"] == WORTH:
        ax.axhline(0.0, color=GUIDE, linewidth=0.8)
        return
    value = 0.0 if np.isnan(row["paper"]) else float(row["paper"])
    number = "close to alone" if np.isnan(row["paper"]) else f"{value:g}{' %' if row['unit'] == '%' else 'x'}"
    ax.axhline(value, color=EDGE, linewidth=0.9, linestyle="--")
    more = "more than " if row["id"] == "M3" else ""
    where: Any = {"ha": "right", "va": "bottom", "fontsize": 6.0, "transform": ax.get_yaxis_transform()}
    ax.text(0.99, value, f"paper: {more}{number}", color=EDGE, **where)


def _curve(ax: Axes, rows: pd.DataFrame, sizes: Sequence[str], colour: str, name: str) -> None:
    at = np.array([sizes.index(size) for size in rows["batch_sizes"]])
    value, low, high = rows[["value", "low", "high"]].to_numpy(float).T
    joined = (rows["batch_sizes"] != MIXED).to_numpy()
    ax.fill_between(at[joined], low[joined], high[joined], color=colour, alpha=0.15, linewidth=0)
    ax.plot(at[joined], value[joined], color=colour)
    ax.vlines(at[~joined], low[~joined], high[~joined], color=colour, linewidth=3, alpha=0.25)
    full = rows["holds"].to_numpy(bool) | (name != "")
    for chosen, face in ((full, colour), (~full, "white")):
        ax.plot(at[chosen], value[chosen], "o", color=colour, markerfacecolor=face, markersize=3.5)
    for place, size in zip(at[rows["is_default"]], value[rows["is_default"]], strict=True):
        ax.axvspan(place - 0.45, place + 0.45, color=BAND, zorder=0)
        digits = 1 if abs(size) < 20 else 0
        ax.annotate(f"{size:.{digits}f}", (place, size), (0, 5), textcoords="offset points", ha="center", **_SMALL)
    if name:
        ax.annotate(name, (at[0], value[0]), (2, 5), textcoords="offset points", fontsize=6.5, color=colour)


def agreement(table: pd.DataFrame) -> dict[str, Any]:
    """Return the sizes at which most of the strips' numbers agree with the paper, how many do, and at our own sizes."""
    stated = table[table["verdict"] != ""]
    own = stated[stated["is_default"]]
    # Section II has no size that is a mixture, so that mixtures are not counted.
    counts = stated[~stated["batch_sizes"].str.contains(" ")].groupby("batch_sizes", sort=False)["holds"].sum()
    best = counts[counts == counts.max()].index.tolist()
    return {"best": best, "most": int(counts.max()), "own": int(own["holds"].sum()), "of": len(own)}
