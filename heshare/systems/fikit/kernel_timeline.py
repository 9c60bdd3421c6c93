"""Who has the GPU when, kernel by kernel: an urgent and another task under each way of sharing."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from heshare.experiments.figures.style import series_style
from heshare.systems.fikit.kernel_rules import Client, Sharing, share
from heshare.systems.fikit.kernel_trace import KernelTrace

_PIECES = 20_000
WHO = ("urgent", "other")


def pieces(
    high: KernelTrace, low: KernelTrace, ways: Mapping[str, Sharing], *, arrivals_ms: Sequence[float], until_ms: float
) -> pd.DataFrame:
    """The pieces of a short stretch of time: requests of the urgent task arrive, the other always has a next one.

    Args:
        high: the urgent task.
        low: the other one.
        ways: the ways of sharing, by name.
        arrivals_ms: when the urgent task's requests arrive, ms.
        until_ms: where the stretch ends, ms.

    Returns:
        One row a piece: way, task (of `WHO`), start_ms, end_ms; pieces that follow each other directly are one.
    """
    rows = []
    for way, how in ways.items():
        arrivals_s = tuple(1e-3 * each for each in arrivals_ms)
        found = share([Client(high, len(arrivals_s), 0, arrivals_s), Client(low, 0, 1)], how, pieces=_PIECES)
        for place, task in enumerate(WHO):
            mine = 1e3 * found.pieces[found.pieces[:, 0] == place, 1:]
            rows += [(way, task, *piece) for piece in _joined(mine[mine[:, 0] < until_ms].tolist(), until_ms)]
    return pd.DataFrame(rows, columns=["way", "task", "start_ms", "end_ms"])


def _joined(found: Sequence[Sequence[float]], until_ms: float) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start_ms, end_ms in found:
        if joined and start_ms - joined[-1][1] < 1e-6:
            joined[-1] = joined[-1][0], min(end_ms, until_ms)
        else:
            joined.append((start_ms, min(end_ms, until_ms)))
    return joined


def panel(ax: Axes, rows: pd.DataFrame, arrivals_ms: Sequence[float]) -> list[Artist]:
    """A lane for each task under each way of sharing; lines where requests of the urgent task arrive."""
    ways = list(dict.fromkeys(rows["way"]))
    drawn: list[Artist] = [ax.axvline(each, color="#999999", linewidth=0.6, linestyle=":") for each in arrivals_ms]
    for (way, task), part in rows.groupby(["way", "task"], sort=False):
        lane, how = WHO.index(str(task)), series_style("", 4 if task == "urgent" else 0)
        spans = [(start, end - start) for start, end in zip(part["start_ms"], part["end_ms"], strict=True)]
        low = ways.index(str(way)) + 0.4 * lane - 0.4
        label = str(task) if way == ways[0] else "_"
        drawn.append(ax.broken_barh(spans, (low, 0.36), facecolor=how.colour, linewidth=0, label=label))
    ax.set_yticks(range(len(ways)), ways)
    ax.set(ylim=(len(ways) - 0.45, -0.55), xlabel="Time (ms)")
    ax.grid(visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2)
    return drawn
