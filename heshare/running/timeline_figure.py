"""The figure of a run: for each GPU its tasks over time, in the colour of their load, its SM clock and its power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from heshare.running.timeline import Interval, Segment
from heshare.running.trace_events import slots
from heshare.shared.extras import require_extra
from heshare.world.catalogue import load_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from heshare.running.result import Run

LOAD_COLOURS = {"low": "tab:pink", "medium": "tab:purple", "high": "tab:brown", "none": "tab:gray"}
"""The colour of each load class of workloads; training has none."""
CLOCK_COLOUR = "tab:blue"
POWER_COLOUR = "tab:orange"

TASKS = (-0.46, 0.10)
CLOCK = (0.12, 0.27)
POWER = (0.29, 0.46)
"""The upper and lower edges of tasks, clock and power in a GPU's row, which has height 1 and runs downwards."""
LETTERS = 80
"""Letters of text that fit side by side over the whole time."""


def timeline_figure(run: Run) -> Figure:
    """Return the figure of a run's timeline: one row a GPU, a lane for each task that runs at the same time.

    A box has the task's number, and its MPS percentage where that is not 100. Clock and power fill their strip at the
    card's top clock and power limit, which are written at its right end.

    Raises:
        InputError: matplotlib is not installed.
    """
    require_extra("figures", "a plot")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    shown = frame(run)
    last_s = float(shown["end_s"].max())
    labels = run.cluster.labels
    fig, ax = plt.subplots(figsize=(9.0, 0.6 * len(labels) + 1.0), layout="constrained")

    for row, gpu in enumerate(labels):
        parts = dict(iter(shown[shown["gpu"] == gpu].groupby("row")))
        if "task" in parts:
            _draw_tasks(ax, parts["task"], row, last_s)
        _draw_strip(ax, parts["clock"], row, CLOCK, CLOCK_COLOUR, fill=False)
        _draw_strip(ax, parts["power"], row, POWER, POWER_COLOUR, fill=True)
        if row > 0:
            ax.axhline(row - 0.5, color="0.87", linewidth=0.5)

    ax.set_yticks(range(len(labels)), list(labels))
    ax.set(ylim=(len(labels) - 0.5, -0.5), xlim=(0, 1.02 * last_s / 1e3), xlabel="Time (1000 s)")

    handles = [
        Patch(facecolor=colour, label="no load class" if name == "none" else f"{name} load")
        for name, colour in LOAD_COLOURS.items()
        if (shown["kind"] == name).any()
    ]
    handles += [Patch(facecolor=CLOCK_COLOUR, label="SM clock"), Patch(facecolor=POWER_COLOUR, label="power")]
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(handles), frameon=False)

    plt.close(fig)  # Jupyter shows the figure that is returned, and only that
    return fig


def frame(run: Run) -> pd.DataFrame:
    """Return a run as one table of intervals, by GPU, row and begin.

    Returns:
        Columns gpu (label), row (`task`, `clock` or `power`), start_s, end_s, value (MPS percentage, SM clock reached
        or board power), top (its largest value), unit; and for tasks also task, workload, kind (load class) and
        lane, else missing.
    """
    labels = run.cluster.labels
    rows: list[dict[str, Any]] = []
    for each, lane in zip(run.record.intervals, slots(run.record.intervals), strict=True):
        model = run.tasks[each.task].workload.model
        about = {"task": each.task, "workload": f"{model}:{each.batch_size}", "kind": load_class(model), "lane": lane}
        rows.append(_row(labels[each.gpu], "task", each, each.mps_pct, 100, "%") | about)

    for part in run.record.segments:
        card = run.cluster.gpus[part.gpu]
        rows.append(_row(labels[part.gpu], "clock", part, part.sm_mhz, card.max_mhz, "MHz"))
        rows.append(_row(labels[part.gpu], "power", part, part.power_w, card.tdp_w, "W"))

    found = pd.DataFrame(rows).astype({"task": "Int64", "lane": "Int64"})
    order = found["gpu"].map({label: place for place, label in enumerate(labels)})
    by = found.assign(place=order).sort_values(["place", "row", "start_s", "end_s", "lane"], kind="stable")
    return by.drop(columns="place").reset_index(drop=True)


def _row(gpu: str, row: str, when: Interval | Segment, value: float, top: float, unit: str) -> dict[str, Any]:
    size = {"value": float(value), "top": float(top), "unit": unit}
    return {"gpu": gpu, "row": row, "start_s": when.start_s, "end_s": when.end_s, **size}


def _draw_tasks(ax: Axes, part: pd.DataFrame, row: int, last_s: float) -> None:
    letter_s = last_s / LETTERS
    height = (TASKS[1] - TASKS[0]) / (int(part["lane"].max()) + 1)
    columns = ["start_s", "end_s", "lane", "kind", "value", "task"]
    for start_s, end_s, lane, kind, pct, task in part[columns].itertuples(index=False):
        length_s = end_s - start_s
        top = row + TASKS[0] + lane * height
        span = [(start_s / 1e3, length_s / 1e3)]
        ax.broken_barh(span, (top, height), facecolor=LOAD_COLOURS[kind], edgecolor="white", linewidth=0.3)

        # The number and the percentage if they fit, else the number alone, upwards.
        text = f"{task}" if round(pct) == 100 else f"{task}: {pct:.0f} %"
        middle = ((start_s + end_s) / 2e3, top + height / 2)
        how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
        if length_s > letter_s * (len(text) + 0.2) and height > 0.12:
            ax.annotate(text, middle, **how)
        elif length_s > 1.3 * letter_s and height > 0.2:
            ax.annotate(f"{task}", middle, rotation=90, **how)


def _draw_strip(ax: Axes, part: pd.DataFrame, row: int, where: tuple[float, float], colour: str, *, fill: bool) -> None:
    top = row + where[0]
    bottom = row + where[1]
    edges = np.append(part["start_s"].to_numpy(float), part["end_s"].to_numpy(float)[-1:]) / 1e3
    filled = np.clip(part["value"].to_numpy(float) / part["top"].to_numpy(float), 0.0, 1.0)
    level = bottom - (bottom - top) * filled
    ax.stairs(level, edges, baseline=bottom if fill else None, fill=fill, color=colour, linewidth=0.7)

    label = f"{part['top'].iloc[0]:.0f} {part['unit'].iloc[0]}"
    place = ax.get_yaxis_transform()
    ax.text(1.005, (top + bottom) / 2, label, transform=place, fontsize=7, va="center", color=colour)
