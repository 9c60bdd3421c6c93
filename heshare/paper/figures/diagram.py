"""Fig. 5: the system, drawn with the plan of a small task set: inputs and outputs of each step."""

from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from heshare.paper.figures.series_styles import EDGE, GRID, LOAD_CLASSES, STAGES, TEXT, category_style
from heshare.scheduling.plan import Plan
from heshare.world.catalogue import load_class

_HEIGHT, _ROW, _GPUS = 5.2, 1.25, 3
"""Height of the drawing of a plan on so many GPUs, and of a GPU's row."""
_STEPS = (
    ("world", (0.0, 2.2), (3.05, _HEIGHT), "1  Task set"),
    ("prediction", (0.0, 2.2), (0.0, 2.7), "2  Prediction"),
    ("scheduling", (2.6, 4.9), (0.0, _HEIGHT), "3  Task scheduling"),
    ("running", (5.3, 10.0), (0.0, _HEIGHT), "4  GPU sharing"),
)
"""Stage, left and right edge, lower and upper edge, and title of the steps, numbered as in the paper."""
_WITH_GPUS = ("scheduling", "running")
"""The steps that have a row for each GPU."""
_BOXES = (
    (1.95, "profiles of workloads"),
    (1.25, "forest of trees"),
    (0.45, "time and power of each\nbatch, share and clock"),
)
_ARROWS = (
    ((1.1, 1.75), (1.1, 1.46)), ((1.1, 1.05), (1.1, 0.78)), ((2.2, 3.6), (2.6, 3.6)), ((2.2, 1.5), (2.6, 1.5)),
    ((4.9, 2.6), (5.3, 2.6)),
)  # fmt: skip
_WORDS = (
    (2.7, "a queue for each GPU,\nby genetic search", "Pareto set of schemes"),
    (
        5.4,
        "batches with MPS percentages (height of each task)\nand a clock (bar beside the batch)",
        "Pareto set of plans; here: Trade-off",
    ),
)
"""Left edge and texts of the outputs of the steps, above and below the GPUs."""


def batches(plan: Plan) -> pd.DataFrame:
    """Return `Plan.to_frame` with the load class of each workload, and top_mhz, the top clock of its GPU."""
    top = {label: gpu.max_mhz for label, gpu in zip(plan.cluster.labels, plan.cluster.gpus, strict=True)}
    frame = plan.to_frame()
    top_mhz = frame["gpu"].map(top)
    return frame.assign(load=frame["workload"].map(load_class), sm_mhz=frame["sm_mhz"].fillna(top_mhz), top_mhz=top_mhz)


def height_in(frame: pd.DataFrame) -> float:
    """Return the height of the figure of a plan, in."""
    return 2.9 * (1.0 + _lowered(frame) / _HEIGHT)


def _lowered(frame: pd.DataFrame) -> float:
    """Return by how much further GPUs move the lower edge of the drawing down."""
    return _ROW * max(frame["gpu"].nunique() - _GPUS, 0)


def system(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the system from left to right; `frame` as from `batches`."""
    lowered = _lowered(frame)
    for stage, (left, right), (bottom, top), title in _STEPS:
        lower = bottom - lowered if stage in _WITH_GPUS else bottom
        shape = "round,pad=0,rounding_size=0.08"
        box = FancyBboxPatch((left, lower), right - left, top - lower, boxstyle=shape, edgecolor="none")
        box.set_facecolor(STAGES[stage])
        ax.add_patch(box)
        _text(ax, left + 0.1, top - 0.28, title, fontweight="bold", fontsize=7.5)

    _tasks(ax, frame)
    for height, words in _BOXES:
        how = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": EDGE, "linewidth": 0.5}
        _text(ax, 1.1, height, words, ha="center", bbox=how, linespacing=1.1)

    for start, end in _ARROWS:
        ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=8, linewidth=0.9, color=EDGE))

    for x, above, below in _WORDS:
        _text(ax, x, 4.48, above, color=TEXT, linespacing=1.1)
        _text(ax, x, 0.2 - lowered, below, color=TEXT, linespacing=1.1)

    for place, (gpu, part) in enumerate(frame.groupby("gpu", sort=False)):
        bottom = _HEIGHT - 1.05 - _ROW * (place + 1)
        _queue(ax, str(gpu), part, bottom)
        _shares(ax, part, bottom)

    ax.set(xlim=(-0.05, 10.05), ylim=(-0.05 - lowered, _HEIGHT + 0.05))
    ax.axis("off")


def _tasks(ax: Axes, frame: pd.DataFrame) -> None:
    for place, row in enumerate(frame.sort_values("task").to_dict("records")):
        x, y = 0.12 + 0.33 * (place % 6), _HEIGHT - 0.95 - 0.36 * (place // 6)
        _task(ax, x, y, 0.3, 0.32, row["task"], str(row["load"]))
    for place, load in enumerate(LOAD_CLASSES[:3]):
        _task(ax, 0.12 + 0.7 * place, 3.2, 0.1, 0.16, "", load)
        _text(ax, 0.26 + 0.7 * place, 3.28, {"low": "light", "high": "heavy"}.get(load, load), fontsize=6)


def _queue(ax: Axes, gpu: str, part: pd.DataFrame, bottom: float) -> None:
    _text(ax, 2.7, bottom + 0.88, gpu, fontweight="bold")
    width = min(0.33, 2.1 / len(part))
    for place, (task, load) in enumerate(zip(part["task"], part["load"], strict=True)):
        _task(ax, 2.7 + width * place, bottom + 0.3, width - 0.03, 0.4, task, load)


def _shares(ax: Axes, part: pd.DataFrame, bottom: float) -> None:
    # A frame is 100 % high; a narrow column next to a batch is its clock over the top clock.
    left, slot = 5.4, min(4.6 / part["batch"].nunique(), 2.3)
    for _, batch in part.groupby("batch", sort=False):
        wide, high = slot - 0.34, 0.72
        ax.add_patch(Rectangle((left, bottom + 0.25), wide, high, facecolor="white", edgecolor=GRID, linewidth=0.6))
        each = wide / len(batch)
        for place, row in enumerate(batch.to_dict("records")):
            size = high * float(row["mps_pct"]) / 100
            _task(ax, left + each * place, bottom + 0.25, each - 0.02, size, row["task"], str(row["load"]))
            _text(ax, left + each * (place + 0.5), bottom + 0.13, f"{row['mps_pct']} %", ha="center")
        clock, x = float(batch["sm_mhz"].iloc[0]) / float(batch["top_mhz"].iloc[0]), left + wide + 0.04
        for size, face in ((high, "white"), (high * clock, EDGE)):
            ax.add_patch(Rectangle((x, bottom + 0.25), 0.07, size, facecolor=face, edgecolor=GRID, linewidth=0.6))
        _text(ax, left + wide / 2, bottom + 1.06, f"{batch['sm_mhz'].iloc[0]:.0f} MHz", ha="center", color=TEXT)
        left += slot


def _task(ax: Axes, x: float, y: float, width: float, height: float, task: object, load: str) -> None:
    colour = category_style(LOAD_CLASSES.index(load)).colour
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white", linewidth=0.5))
    _text(ax, x + width / 2, y + height / 2, str(task), ha="center", color="white", fontweight="bold")


def _text(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    ha: Literal["left", "center"] = "left",
    color: str = EDGE,
    fontsize: float = 6.5,
    fontweight: Literal["normal", "bold"] = "normal",
    linespacing: float = 1.2,
    bbox: dict[str, Any] | None = None,
) -> None:
    drawn = ax.text(
        x,
        y,
        text,
        ha=ha,
        va="center",
        color=color,
        fontsize=fontsize,
        fontweight=fontweight,
        linespacing=linespacing,
        bbox=bbox,
    )
    # Not in the layout, which would reserve space for it next to the axes.
    drawn.set_in_layout(False)
