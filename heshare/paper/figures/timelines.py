"""Timelines of a run (tasks, MPS percentages, clock and power of each GPU), and dots of a live comparison."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from heshare.ops.live.live_comparison import DEVICE_MODELS
from heshare.paper.figures.series_styles import CLOCK, GRID, POWER, category_style
from heshare.paper.figures.trace_events import slots
from heshare.running.result import Run
from heshare.world.catalogue import load_class

_TASKS, _CLOCK, _POWER = (-0.46, 0.10), (0.12, 0.27), (0.29, 0.46)
"""The upper and lower edges of tasks, clock and power in a GPU's row, which has height 1 and runs downwards."""


def frame(done: Run) -> pd.DataFrame:
    """Return a run as one table of intervals, by GPU, row and begin.

    Returns:
        Columns gpu (label), row (`task`, `clock` or `power`), start_s, end_s, value (MPS percentage, SM clock reached
        or board power), top (its largest value), unit; and for tasks also task, workload, kind (load class) and
        lane, else missing.
    """
    labels, cards = done.cluster.labels, done.cluster.gpus
    rows: list[dict[str, Any]] = []
    for each, lane in zip(done.record.intervals, slots(done.record.intervals), strict=True):
        what = done.tasks[each.task].workload
        about = {"task": each.task, "workload": f"{what.model}:{each.batch_size}", "kind": load_class(what.model)}
        rows.append(_row(labels[each.gpu], "task", each, each.mps_pct, 100, "%") | about | {"lane": lane})
    for part in done.record.segments:
        card = cards[part.gpu]
        rows.append(_row(labels[part.gpu], "clock", part, part.sm_mhz, card.max_mhz, "MHz"))
        rows.append(_row(labels[part.gpu], "power", part, part.power_w, card.tdp_w, "W"))
    found = pd.DataFrame(rows).astype({"task": "Int64", "lane": "Int64"})
    order = found["gpu"].map({label: place for place, label in enumerate(labels)})
    by = found.assign(place=order).sort_values(["place", "row", "start_s", "end_s", "lane"], kind="stable")
    return by.drop(columns="place").reset_index(drop=True)


def timeline_rows(ax: Axes, intervals: pd.DataFrame, *, gpus: Sequence[str], classes: Sequence[str]) -> None:
    """Draw one row a GPU: a lane for each concurrent task with its number, below them clock and power.

    Clock and power fill their strip at the card's top clock and power limit, which are written at its right end.

    `intervals` is as from `frame`; `gpus` are the labels from top to bottom; `classes` the load classes in the order of
    their colours, as in `timeline_legend`.
    """
    last_s = intervals["end_s"].max()
    for row, gpu in enumerate(gpus):
        parts = dict(iter(intervals[intervals["gpu"] == gpu].groupby("row")))
        if "task" in parts:
            _lanes(ax, parts["task"], row, classes, last_s / 80)
        _strip(ax, parts["clock"], row, _CLOCK, color=CLOCK, fill=False)
        _strip(ax, parts["power"], row, _POWER, color=POWER, fill=True)
        for name, (top, bottom), colour in (("clock", _CLOCK, CLOCK), ("power", _POWER, POWER)):
            words, at = f"{parts[name]['top'].iloc[0]:.0f} {parts[name]['unit'].iloc[0]}", row + (top + bottom) / 2
            ax.text(1.005, at, words, transform=ax.get_yaxis_transform(), fontsize=6, va="center", color=colour)
    ax.set_yticks(range(len(gpus)), list(gpus))
    ax.set(ylim=(len(gpus) - 0.5, -0.5), xlim=(0, 1.02 * last_s / 1e3), xlabel="Time (1000 s)")
    ax.grid(visible=False)
    for row in range(1, len(gpus)):
        ax.axhline(row - 0.5, color=GRID, linewidth=0.5)


def _row(gpu: str, row: str, when: Any, value: float, top: float, unit: str) -> dict[str, Any]:
    size = {"value": float(value), "top": float(top), "unit": unit}
    return {"gpu": gpu, "row": row, "start_s": when.start_s, "end_s": when.end_s, **size}


def _lanes(ax: Axes, part: pd.DataFrame, row: int, classes: Sequence[str], letter_s: float) -> None:
    # The task's number, and its MPS percentage where that is not 100, if there is room for letters of `letter_s`;
    # otherwise the number alone, upwards.
    high = (_TASKS[1] - _TASKS[0]) / (int(part["lane"].max()) + 1)
    columns = ["start_s", "end_s", "lane", "kind", "value", "task"]
    for start_s, end_s, lane, kind, pct, task in part[columns].itertuples(index=False):
        how, base = category_style(classes.index(kind)), row + _TASKS[0] + lane * high
        box = ax.broken_barh([(start_s / 1e3, (end_s - start_s) / 1e3)], (base, high), facecolor=how.colour)
        box.set(edgecolor="white", linewidth=0.3)
        text = f"{task}" if round(pct) == 100 else f"{task}: {pct:.0f} %"
        fits = end_s - start_s > letter_s * (len(text) + 0.2)
        if (fits and high > 0.12) or (end_s - start_s > letter_s * 1.3 and high > 0.2):
            middle = ((start_s + end_s) / 2e3, base + high / 2)
            letters: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "fontsize": 6,
                "color": "white",
                "rotation": 0 if fits else 90,
            }
            ax.annotate(text if fits else f"{task}", middle, **letters)


def timeline_legend(ax: Axes, classes: Sequence[str]) -> None:
    """Put the legend of `timeline_rows` above the axes: load classes, clock and power."""
    styles = [category_style(index) for index in range(len(classes))]
    labels = ["no load class" if name == "none" else f"{name} load" for name in classes]
    handles: list[Patch | Line2D] = [
        Patch(facecolor=how.colour, edgecolor="white", linewidth=0.3, label=label)
        for how, label in zip(styles, labels, strict=True)
    ]
    handles += [Line2D([], [], color=CLOCK, linewidth=0.7, label="SM clock"), Patch(facecolor=POWER, label="power")]
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(handles), borderaxespad=0.2)


def _strip(ax: Axes, part: pd.DataFrame, row: int, where: tuple[float, float], *, color: str, fill: bool) -> None:
    bottom, height = row + where[1], where[1] - where[0]
    edges = np.append(part["start_s"].to_numpy(float), part["end_s"].to_numpy(float)[-1:]) / 1e3
    level = bottom - height * np.clip(part["value"].to_numpy(float) / part["top"].to_numpy(float), 0.0, 1.0)
    ax.stairs(level, edges, baseline=bottom if fill else None, fill=fill, color=color, linewidth=0.7)


def live_panels(axes: Sequence[Axes], found: pd.DataFrame) -> None:
    """Draw `live_results.comparison`: average JCT and energy of each policy, measured and by each device model."""
    shown = (("average JCT (s)", 1.0, "Average JCT (s)"), ("energy, active account (J)", 1e3, "Energy (kJ)"))
    for ax, (quantity, unit, label) in zip(axes, shown, strict=True):
        part = found[found["quantity"] == quantity]
        for index, name in enumerate(("measured", *DEVICE_MODELS)):
            at = np.arange(len(part)) + 0.2 * (index - 0.5 * len(DEVICE_MODELS))
            ax.plot(part[name] / unit, at, label=name, **category_style(index).line_arguments(linestyle=""))
        ax.set_yticks(range(len(part)), list(part["title"]) if ax is axes[0] else [])
        ax.set(ylim=(len(part) - 0.5, -0.5), xlabel=label)
        ax.grid(axis="x")
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1)
