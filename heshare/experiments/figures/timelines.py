"""A run as a figure: for each GPU who ran, under which share, at which clock and power; pure like the plots.

Measured beside simulated, drawn.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from heshare.experiments.figures import plots
from heshare.experiments.figures.style import series_style
from heshare.experiments.figures.trace_events import slots
from heshare.gpu.live.live_comparison import DEVICE_MODELS
from heshare.running.result import Run
from heshare.world.catalogue import model

_TASKS, _CLOCK, _POWER = (-0.46, 0.10), (0.12, 0.27), (0.29, 0.46)
"""Where in a GPU's row, of height 1 and downwards, its tasks, clock and power are drawn."""


def frame(done: Run) -> pd.DataFrame:
    """A run as one table of stretches, by GPU, row and begin.

    Returns:
        Columns gpu (label), row (`task`, `clock` or `power`), start_s, end_s, value (MPS percentage, SM clock reached
        or board power), top (what it could be at most), unit; and for tasks also task, workload, kind (load class) and
        lane, else missing.
    """
    labels, cards = done.cluster.labels, done.cluster.gpus
    rows: list[dict[str, Any]] = []
    for each, lane in zip(done.record.intervals, slots(done.record.intervals), strict=True):
        what = done.tasks[each.task].workload
        about = {"task": each.task, "workload": f"{what.model}:{each.batch_size}", "kind": model(what.model).load}
        rows.append(_row(labels[each.gpu], "task", each, each.mps_pct, 100, "%") | about | {"lane": lane})
    for part in done.record.segments:
        card = cards[part.gpu]
        rows.append(_row(labels[part.gpu], "clock", part, part.sm_mhz, card.max_mhz, "MHz"))
        rows.append(_row(labels[part.gpu], "power", part, part.power_w, card.tdp_w, "W"))
    found = pd.DataFrame(rows).astype({"task": "Int64", "lane": "Int64"})
    order = found["gpu"].map({label: place for place, label in enumerate(labels)})
    by = found.assign(place=order).sort_values(["place", "row", "start_s", "end_s", "lane"], kind="stable")
    return by.drop(columns="place").reset_index(drop=True)


def timeline_rows(ax: Axes, stretches: pd.DataFrame, *, gpus: Sequence[str], classes: Sequence[str]) -> list[Artist]:
    """One row a GPU: a lane for each task that runs at once with its MPS percentage, below them clock and power.

    Clock and power fill their strip at the card's top clock and power limit.

    Args:
        ax: where to draw.
        stretches: as from `frame`.
        gpus: the GPUs' labels from top to bottom.
        classes: load classes in the order of their colours, as in `plots.class_legend`.
    """
    drawn: list[Artist] = []
    for row, gpu in enumerate(gpus):
        part = stretches[stretches["gpu"] == gpu]
        drawn += _lanes(ax, part[part["row"] == "task"], row, classes, stretches["end_s"].max() / 14)
        drawn.append(_strip(ax, part[part["row"] == "clock"], row, _CLOCK, "#0072B2", filled=False))
        drawn.append(_strip(ax, part[part["row"] == "power"], row, _POWER, "#D55E00", filled=True))
    ax.set_yticks(range(len(gpus)), list(gpus))
    ax.set(ylim=(len(gpus) - 0.5, -0.5), xlim=(0, stretches["end_s"].max() / 1e3), xlabel="Time (1000 s)")
    ax.grid(visible=False)
    for row in range(1, len(gpus)):
        ax.axhline(row - 0.5, color="#dddddd", linewidth=0.5)
    return drawn


def _row(gpu: str, row: str, when: Any, value: float, top: float, unit: str) -> dict[str, Any]:
    size = {"value": float(value), "top": float(top), "unit": unit}
    return {"gpu": gpu, "row": row, "start_s": when.start_s, "end_s": when.end_s, **size}


def _lanes(ax: Axes, part: pd.DataFrame, row: int, classes: Sequence[str], told_s: float) -> list[Artist]:
    """Boxes in lanes; those of at least `told_s` say their MPS percentage, where lanes are high enough to read it."""
    drawn: list[Artist] = []
    if part.empty:
        return drawn
    high = (_TASKS[1] - _TASKS[0]) / (int(part["lane"].max()) + 1)
    columns = ("start_s", "end_s", "lane", "kind", "value")
    for start_s, end_s, lane, kind, pct in part[list(columns)].itertuples(index=False):
        how, base = series_style("", classes.index(kind)), row + _TASKS[0] + lane * high
        box = ax.broken_barh([(start_s / 1e3, (end_s - start_s) / 1e3)], (base, high), facecolor=how.colour)
        box.set(hatch=how.hatch, edgecolor="white", linewidth=0.3)
        drawn.append(box)
        if end_s - start_s > told_s and high > 0.15:
            middle = ((start_s + end_s) / 2e3, base + high / 2)
            note = ax.annotate(f"{pct:.0f}", middle, ha="center", va="center", fontsize=4.5)
            note.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.4})
            drawn.append(note)
    return drawn


def _strip(
    ax: Axes, part: pd.DataFrame, row: int, where: tuple[float, float], colour: str, *, filled: bool
) -> StepPatch:
    """Value over top as a step function within a strip, upwards from its lower edge."""
    bottom, height = row + where[1], where[1] - where[0]
    edges = np.append(part["start_s"].to_numpy(float), part["end_s"].to_numpy(float)[-1:]) / 1e3
    level = bottom - height * np.clip(part["value"].to_numpy(float) / part["top"].to_numpy(float), 0.0, 1.0)
    return ax.stairs(level, edges, baseline=bottom if filled else None, fill=filled, color=colour, linewidth=0.7)


_SHOWN = (
    ("average JCT (s)", 1.0, "Average JCT (s)"),
    ("energy, active account (J)", 1e3, "Energy (kJ)"),
)


def live_panels(axes: Sequence[Axes], found: pd.DataFrame) -> list[Artist]:
    """Average JCT and energy of each policy: measured, and by each device model.

    Args:
        axes: two.
        found: as from `heshare.experiments.studies.live_results.comparison`.
    """
    drawn: list[Artist] = []
    for ax, (quantity, unit, label) in zip(axes, _SHOWN, strict=True):
        part = found[found["quantity"] == quantity]
        long = part.melt(
            id_vars="title", value_vars=["measured", *DEVICE_MODELS], var_name="series", value_name="value"
        )
        long["value"] /= unit
        for bar in plots.bars(ax, long, group="title", series="series", value="value"):
            drawn += bar
        plots.slanted(ax, 30)
        ax.set_ylabel(label)
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1)
    return drawn
