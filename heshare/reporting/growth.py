"""How the cost of planning grows with the number of tasks at a fixed number of tasks for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from heshare.prediction.predictor import Predictor
from heshare.running.draw import draw
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.effort import DEFAULT, Effort
from heshare.scheduling.improved import search_for
from heshare.scheduling.objectives import instance
from heshare.world.cluster import Cluster

UNITS = {"T4": 4, "V100": 2, "A100": 2}
TASKS = 60
"""Tasks for each such unit of 8 GPUs."""


def cluster_for(tasks: int) -> Cluster:
    """GPUs in the proportions of `UNITS` for a number of tasks; 10,000 tasks get 1,000 GPUs."""
    units = 125 if tasks == 10_000 else max(1, tasks // TASKS)
    return Cluster.parse(",".join(f"{count * units}x{name}" for name, count in UNITS.items()))


def study(
    sizes: Sequence[int],
    predictor: Predictor,
    *,
    seed: int,
    effort: Effort = DEFAULT,
    timed: bool = True,
    warm: bool = True,
) -> pd.DataFrame:
    """Plan task sets of several sizes with HeShare+.

    Args:
        sizes: numbers of tasks.
        predictor: what is believed; its tables are filled before the search and timed apart.
        seed: of the task sets and the search.
        effort: how hard to search.
        timed: whether to report times, which differ from run to run.
        warm: whether to search once before, unreported, so that compiling is in no row.

    Returns:
        One row a size: `tasks`, `gpus`, `points` of the front, `predictor_rows` asked for the tables and, if timed,
        `tables_s` and `search_s`.
    """
    rows = []
    for place, size in enumerate([*sizes[: int(warm)], *sizes]):
        cluster, calls, start_s = cluster_for(size), predictor.calls, perf_counter()
        tasks = draw(size, rng=np.random.default_rng(seed), load="mixed", arrivals="at_once")
        costs = BatchCosts(instance(tasks, cluster, predictor), predictor, effort.freedom)
        costs.warm()
        filled_s = perf_counter()
        search = search_for(costs, effort, np.random.default_rng(seed))
        search.run()
        plans, _ = search.plans()
        row = {"tasks": size, "gpus": len(cluster), "points": len(plans), "predictor_rows": predictor.calls - calls}
        times_s = {"tables_s": filled_s - start_s, "search_s": perf_counter() - filled_s} if timed else {}
        rows += [{**row, **times_s}] if place >= int(warm) else []
    return pd.DataFrame(rows)


def exponent(frame: pd.DataFrame) -> float:
    """The exponent of the search's time against the number of tasks, by least squares of logarithms."""
    return float(np.polyfit(np.log(frame["tasks"]), np.log(frame["search_s"]), 1)[0])


def panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Seconds of search, or GPUs where no time was taken, and plans on the front, against tasks."""
    drawn: list[Artist] = []
    tasks = frame["tasks"].to_numpy(float)
    shown = ("search_s", "Search (s)") if "search_s" in frame else ("gpus", "GPUs")
    for ax, (column, label) in zip(axes, (shown, ("points", "Plans on the front")), strict=True):
        values = frame[column].to_numpy(float)
        drawn += ax.plot(tasks, values, color="#0072B2", marker="o")
        if column == "search_s":
            drawn += ax.plot(tasks, values[0] * tasks / tasks[0], color="#999999", ls="--", lw=0.8)
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, None)
        ax.set_xscale("log")
        ax.set_xticks(tasks, [f"{size:g}" for size in tasks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set(xlabel="Tasks", ylabel=label)
    return drawn
