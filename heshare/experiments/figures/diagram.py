"""Fig. 5: the system; each box names a function or class of the package and its docstring's first line."""

import textwrap
from importlib import import_module
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

_HIGH, _GAP = 1.25, 0.55
_COLOURS = {
    "world": "#f2f2f2",
    "prediction": "#dcecf8",
    "scheduling": "#d9f0e5",
    "running": "#fbe9cf",
    "devices": "#f7dfd2",
}


_STEPS = (
    ("Task set arrives", "world.task_set:task_set", "tasks T, GPUs G"),
    ("Multi-objective prediction", "prediction.forest:ForestPredictor", "time, power"),
    ("Energy-aware task scheduling", "scheduling.genetic:search", "schemes: Pareto set PS"),
    ("GPU sharing optimisation", "scheduling.configuration:configure", "plans: Pareto set PS'"),
    ("Execution", "running.run:run", "start, MPS %, SM clock"),
    ("GPUs", "devices.device:Device", "progress, power"),
)
"""The steps of the paper's Fig. 5: title, code, and the result that is passed to the next step."""


def steps() -> pd.DataFrame:
    """Return the system's steps, one row each: step, title, stage, code, does (first line of its docstring), gives.

    Raises:
        AttributeError: the package no longer has that function or class, so the figure would be wrong.
    """
    rows = []
    for number, (title, code, gives) in enumerate(_STEPS, start=1):
        module, name = code.split(":")
        found = getattr(import_module(f"heshare.{module}"), name)
        does = (found.__doc__ or "").strip().splitlines()[0].rstrip(".")
        about = {"step": str(number), "title": title, "stage": module.split(".")[0]}
        rows.append({**about, "code": f"heshare.{module}.{name}", "does": does, "gives": gives})
    return pd.DataFrame(rows)


def system(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the steps from top to bottom with the result that each passes to the next; `frame` as from `steps`."""
    last = len(frame) - 1
    for index, row in enumerate(frame.itertuples(index=False)):
        top = -index * (_HIGH + _GAP)
        _box(ax, top, row)
        if index < last:
            _arrow(ax, 3.0, top - _HIGH, top - _HIGH - _GAP, str(row.gives), "left")
    end = -last * (_HIGH + _GAP)
    _arrow(ax, 8.6, end, end + _GAP, str(frame["gives"].iloc[-1]), "right")
    ax.set(xlim=(-0.05, 10.05), ylim=(end - _HIGH - 0.08, 0.08))
    ax.axis("off")


def _box(ax: Axes, top: float, row: Any) -> None:
    bottom = top - _HIGH
    patch = FancyBboxPatch(
        (0.1, bottom), 9.8, _HIGH, boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=_COLOURS[row.stage], edgecolor="#555555", linewidth=0.6,
    )  # fmt: skip
    ax.add_patch(patch)
    does = textwrap.shorten(row.does.split(";")[0].split(" (")[0].replace("`", ""), 76, placeholder=" ...")
    mark = {"boxstyle": "circle,pad=0.22", "facecolor": "#444444", "edgecolor": "none"}
    texts = [
        ax.text(0.6, top - _HIGH / 2, row.step, fontsize=7, ha="center", fontweight="bold", color="white", bbox=mark),
        ax.text(1.15, top - 0.28, row.title, fontsize=7, fontweight="bold"),
        ax.text(1.15, top - 0.66, does, fontsize=5.2, color="#222222"),
        ax.text(1.15, top - 0.99, row.code, fontsize=4.8, family="monospace", color="#444444"),
    ]
    for text in texts:
        text.set(verticalalignment="center")
        # Otherwise the layout reserves space for the text beside the axes.
        text.set_in_layout(False)


def _arrow(ax: Axes, x: float, start: float, end: float, label: str, side: str) -> None:
    arrow = FancyArrowPatch((x, start), (x, end), arrowstyle="-|>", mutation_scale=7, linewidth=0.8, color="#333333")
    ax.add_patch(arrow)
    shift, align = (0.2, "left") if side == "left" else (-0.2, "right")
    text = ax.text(x + shift, (start + end) / 2, label, fontsize=5.8, va="center", ha=align, style="italic")
    text.set_in_layout(False)
