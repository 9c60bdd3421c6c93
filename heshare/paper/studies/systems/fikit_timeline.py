"""The kernels of an urgent and another task on a GPU over a short time, under each way of sharing."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from heshare.lab.systems.fikit.kernel_rules import Client, Sharing, share
from heshare.lab.systems.fikit.kernel_trace import KernelTrace
from heshare.paper.figures.series_styles import GUIDE, category_style

_PIECES = 20_000
TASKS = ("urgent", "other")


def pieces(
    high: KernelTrace, low: KernelTrace, ways: Mapping[str, Sharing], *, arrivals_ms: Sequence[float], until_ms: float
) -> pd.DataFrame:
    """Return the pieces of a short time: requests of the urgent task arrive, the other always has a next one.

    Returns:
        One row a piece: way, task (of `TASKS`), start_ms, end_ms; pieces that follow each other directly are one.
    """
    arrivals_s = tuple(1e-3 * each for each in arrivals_ms)
    rows: list[tuple[str, str, float, float]] = []
    for way, how in ways.items():
        found = share([Client(high, len(arrivals_s), 0, arrivals_s), Client(low, 0, 1)], how, pieces=_PIECES)
        for place, task in enumerate(TASKS):
            own = 1e3 * found.pieces[found.pieces[:, 0] == place, 1:]
            for start_ms, end_ms in own[own[:, 0] < until_ms].tolist():
                follows = bool(rows) and rows[-1][:2] == (way, task) and start_ms - rows[-1][3] < 1e-6
                begin_ms = rows.pop()[2] if follows else start_ms
                rows.append((way, task, begin_ms, min(end_ms, until_ms)))
    return pd.DataFrame(rows, columns=["way", "task", "start_ms", "end_ms"])


def panel(ax: Axes, rows: pd.DataFrame, arrivals_ms: Sequence[float]) -> list[Artist]:
    """Draw a lane for each task under each way of sharing, and lines where requests of the urgent task arrive."""
    ways = list(dict.fromkeys(rows["way"]))
    drawn: list[Artist] = [ax.axvline(each, color=GUIDE, linewidth=0.6, linestyle=":") for each in arrivals_ms]
    for (way, task), part in rows.groupby(["way", "task"], sort=False):
        lane, how = TASKS.index(str(task)), category_style(1 if task == "urgent" else 0)
        spans = [(start, end - start) for start, end in zip(part["start_ms"], part["end_ms"], strict=True)]
        low = ways.index(str(way)) + 0.4 * lane - 0.4
        label = str(task) if way == ways[0] else "_"
        drawn.append(ax.broken_barh(spans, (low, 0.36), facecolor=how.colour, linewidth=0, label=label))
    ax.set_yticks(range(len(ways)), ways)
    ax.set(ylim=(len(ways) - 0.45, -0.55), xlabel="Time (ms)")
    ax.grid(visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2)
    return drawn
