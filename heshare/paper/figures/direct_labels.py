"""Direct labels: the names of points next to them, placed without covering points or other names."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from heshare.paper.figures.series_styles import GUIDE, series_style
from heshare.shared.arrays import FloatArray

_DISTANCES_PT = (5.0, 8.0, 12.0, 17.0, 23.0, 30.0, 38.0)
_ANGLES = np.deg2rad(np.arange(0, 360, 15))
_WAYS = np.column_stack([np.cos(_ANGLES), np.sin(_ANGLES)])
_LINE_FROM_PT = 10.0
"""From this distance on, a line joins a name to its point."""
_POINT = ("x", "y", "x_low", "x_high", "y_low", "y_high")
_POINT_COST, _NAME_COST, _OUTSIDE_COST = 30.0, 400.0, 2000.0


@dataclass(frozen=True, slots=True)
class PointLabel:
    x: float
    y: float
    text: str
    colour: str = "black"


def label_points(ax: Axes, labels: Sequence[PointLabel], *, avoid: FloatArray | None = None) -> None:
    """Write the names next to their points; call it when limits and scales of the axes are final.

    The names are placed one by one, crowded points first, at the place of least cost: over a point, over another name,
    outside the axes, far away.

    `avoid` are further points that no name should cover, shape (points, 2), in the data's units.
    """
    ax.figure.canvas.draw()
    per_pt = ax.figure.dpi / 72.0
    at = ax.transData.transform(np.array([(each.x, each.y) for each in labels]))
    marks = at if avoid is None or not len(avoid) else np.vstack([at, ax.transData.transform(avoid)])
    frame = ax.get_window_extent()
    taken: list[Bbox] = []

    # Crowded points first: the least sum of distances to their nearest points.
    gaps = np.linalg.norm(at[:, None] - at[None], axis=2)
    nearest = np.sort(gaps, axis=1)[:, : min(4, len(labels))].sum(axis=1)
    for place in np.argsort(nearest, kind="stable").tolist():
        label = labels[place]
        note = ax.annotate(label.text, (label.x, label.y), (0, 0), textcoords="offset points", fontsize=6.0)
        note.set(color=label.colour, ha="center", va="center", annotation_clip=False)
        size = np.array(note.get_window_extent().size)

        # Middles of the name, in points from its point, at which its nearest edge has a distance.
        tried = [way * (size / per_pt / 2 + distance) for distance in _DISTANCES_PT for way in _WAYS]
        best = min(
            (_cost(at[place], offset * per_pt, size, marks, taken, frame), float(np.hypot(*offset)), *offset.tolist())
            for offset in tried
        )
        offset = np.array(best[2:])
        taken.append(_box(at[place] + offset * per_pt, size))
        note.set_position((float(offset[0]), float(offset[1])))

        # A line to the point where the name is far from it.
        edge = np.clip(0.0, offset - size / per_pt / 2, offset + size / per_pt / 2)
        if np.hypot(*edge) > _LINE_FROM_PT:
            arrow = {"arrowstyle": "-", "color": GUIDE, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
            ax.annotate(
                "", (label.x, label.y), tuple(edge.tolist()), textcoords="offset points", arrowprops=arrow, zorder=1
            )


def _box(middle: FloatArray, size: FloatArray) -> Bbox:
    return Bbox([middle - size / 2, middle + size / 2])


def _cost(
    point: FloatArray, offset: FloatArray, size: FloatArray, marks: FloatArray, taken: Sequence[Bbox], frame: Bbox
) -> float:
    box = _box(point + offset, size)
    wide = box.padded(2.0)
    inside = (marks > wide.min).all(axis=1) & (marks < wide.max).all(axis=1)
    over = sum(Bbox.intersection(box.padded(1.0), other) is not None for other in taken)
    outside = not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)
    return _POINT_COST * int(inside.sum()) + _NAME_COST * over + _OUTSIDE_COST * outside + float(np.hypot(*offset)) / 4


def draw_points(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw a point with its intervals for each row, in the style of its series.

    `frame` has the columns title, x, y, x_low, x_high, y_low, y_high.
    """
    for row in frame.to_dict("records"):
        x, y, x_low, x_high, y_low, y_high = (float(row[name]) for name in _POINT)
        how = series_style(str(row["title"])).line_arguments(linestyle="")
        for ends in (([x_low, x_high], [y, y]), ([x, x], [y_low, y_high])):
            ax.plot(*ends, color=how["color"], linewidth=0.7, alpha=0.5)
        ax.plot([x], [y], **how)


def label_frame(ax: Axes, frame: pd.DataFrame, *, avoid: FloatArray | None = None) -> None:
    """Write the title of each row of `draw_points` next to its point; neither intervals nor `avoid` are covered.

    The column `label`, if there is one, has the text instead. Call it when the axes are final.
    """
    rows = [{"label": row["title"], **row} for row in frame.to_dict("records")]
    labels = [
        PointLabel(float(row["x"]), float(row["y"]), str(row["label"]), series_style(str(row["title"])).colour)
        for row in rows
    ]
    steps = np.linspace(0, 1, 7)[:, None]
    values = {name: frame[name].to_numpy(float) for name in _POINT}
    still = np.ones_like(steps)
    parts = [
        np.stack([values["x_low"] + steps * (values["x_high"] - values["x_low"]), still * values["y"]], axis=-1),
        np.stack([still * values["x"], values["y_low"] + steps * (values["y_high"] - values["y_low"])], axis=-1),
    ]
    covered = [part.reshape(-1, 2) for part in parts] + ([] if avoid is None else [avoid])
    label_points(ax, labels, avoid=np.vstack(covered))
