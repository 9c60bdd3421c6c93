"""Fig. 5: the system; each box names a function or class of the package and its docstring's first line.

The numbers 1 to 4 are the paper's, in filled circles; what this package adds has open circles.
"""

import textwrap
from importlib import import_module
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from heshare.paper.figures.series_styles import EDGE, STAGES, TEXT

_LINE, _GAP, _LETTERS = 0.42, 0.6, 62
"""Height of a line, height between boxes, and letters of a line."""
_PAPERS = 4
"""The number of steps that the paper numbers in its Fig. 5 and Section III; the others are of this package."""

_STEPS = (
    ("Task set arrives", "world.task_set:task_set", "tasks T, GPUs G"),
    ("Multi-objective prediction", "prediction.forest:ForestPredictor", "time, power"),
    ("Energy-aware task scheduling", "scheduling.genetic:search", "schemes: Pareto set PS"),
    ("GPU sharing optimisation", "scheduling.configuration:configure", "plans: Pareto set PS'"),
    ("Execution", "running.run:run", "start, MPS %, SM clock"),
    ("GPUs", "devices.device:Device", "progress, power"),
)
"""The steps: title, code, and the result that is passed to the next step."""


def steps() -> pd.DataFrame:
    """Return the system's steps: step, whose (`paper` or `here`), title, stage, code, does (its docstring), gives.

    Raises:
        AttributeError: the package no longer has that function or class, so the figure would be wrong.
    """
    rows = []
    for number, (title, code, gives) in enumerate(_STEPS, start=1):
        module, name = code.split(":")
        found = getattr(import_module(f"heshare.{module}"), name)
        does = (found.__doc__ or "").strip().splitlines()[0].rstrip(".")
        whose = "paper" if number <= _PAPERS else "here"
        about = {"step": str(number), "whose": whose, "title": title, "stage": module.split(".")[0]}
        rows.append({**about, "code": f"heshare.{module}.{name}", "does": does, "gives": gives})
    return pd.DataFrame(rows)


def system(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the steps from top to bottom with the result that each passes to the next; `frame` as from `steps`."""
    last, top = len(frame) - 1, 0.0
    for index, row in enumerate(frame.itertuples(index=False)):
        bottom = _box(ax, top, row)
        if index < last:
            top = bottom - _GAP
            _arrow(ax, 3.0, bottom, top, str(row.gives), "left")
    _arrow(ax, 8.8, top, top + _GAP, str(frame["gives"].iloc[-1]), "right")
    ax.set(xlim=(-0.05, 10.05), ylim=(bottom - 0.08, 0.08))
    ax.axis("off")


def _box(ax: Axes, top: float, row: Any) -> float:
    # From `top` downwards; returns the lower edge.
    does = textwrap.wrap(row.does.split(";")[0].split(" (")[0].replace("`", ""), _LETTERS)
    bottom = top - _LINE * (2.7 + len(does))
    patch = FancyBboxPatch(
        (0.1, bottom), 9.8, top - bottom, boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=STAGES[row.stage], edgecolor=TEXT, linewidth=0.6,
    )  # fmt: skip
    ax.add_patch(patch)
    inside, number = (EDGE, "white") if row.whose == "paper" else ("white", EDGE)
    mark = {"boxstyle": "circle,pad=0.22", "facecolor": inside, "edgecolor": EDGE, "linewidth": 0.6}
    middle, title = (top + bottom) / 2, top - 0.85 * _LINE
    texts = [
        ax.text(0.6, middle, row.step, fontsize=7, ha="center", fontweight="bold", color=number, bbox=mark),
        ax.text(1.15, title, row.title, fontsize=7, fontweight="bold"),
        ax.text(1.15, bottom + 0.8 * _LINE, row.code, fontsize=6, family="monospace", color=TEXT),
    ]
    for place, line in enumerate(does, start=1):
        texts.append(ax.text(1.15, title - _LINE * place, line, fontsize=6, color=EDGE))
    for text in texts:
        text.set(verticalalignment="center")
        # Otherwise the layout reserves space for the text beside the axes.
        text.set_in_layout(False)
    return bottom


def _arrow(ax: Axes, x: float, start: float, end: float, label: str, side: str) -> None:
    arrow = FancyArrowPatch((x, start), (x, end), arrowstyle="-|>", mutation_scale=7, linewidth=0.8, color=EDGE)
    ax.add_patch(arrow)
    shift, align = (0.2, "left") if side == "left" else (-0.2, "right")
    text = ax.text(x + shift, (start + end) / 2, label, fontsize=6, va="center", ha=align, style="italic")
    text.set_in_layout(False)
