"""Average JCT and energy over GPU mixes, loads and numbers of tasks (Figs. 8 to 11), and growth of planning time."""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from heshare.devices.task_sizes import draw
from heshare.experiments.figures import plots
from heshare.experiments.studies import variants
from heshare.experiments.study_runs import median_intervals
from heshare.plus.costs import BatchCosts
from heshare.plus.heshare_plus import search_for
from heshare.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster

_UNITS = {variants.JCT: (1e3, "Average JCT (1000 s)"), variants.ENERGY: (1e6, "Energy (MJ)")}
NOT_DRAWN = ("HeShare+ JCT-opt", "HeShare+ En-opt")
"""Titles that are only in the tables, to leave space between the bars."""


def medians(runs: pd.DataFrame, by: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    """Return medians with 95 % bootstrap intervals of average JCT and energy (both accounts) of each policy and world.

    Args:
        runs: one row a world, repetition and policy.
        by: the columns that name a world.
        rng: random numbers of the bootstrap.

    Returns:
        The columns of `by`, then title, metric, median, low, high, n, provenance.
    """
    return median_intervals(runs, [*by, "title"], variants.METRICS, rng)


def panels(axes: Iterable[Axes], frame: pd.DataFrame, metric: str, *, panel: str, group: str) -> None:
    """Draw bars of one metric: a panel for each value of `panel`, a group for each of `group`, a bar for each policy.

    `frame` is as from `medians`; the titles `NOT_DRAWN` are left out. `metric` is `avg_jct_s` or `energy_active_j`.
    """
    unit, label = _UNITS[metric]
    part = frame[(frame["metric"] == metric) & ~frame["title"].isin(NOT_DRAWN)]
    part = part.assign(**{name: part[name] / unit for name in ("median", "low", "high")})
    shown = list(axes)
    for ax, (title, rows) in zip(shown, part.groupby(panel, sort=False), strict=True):
        plots.bars(ax, rows, group=group, series="title", value="median", low="low", high="high")
        ax.set_title(str(title), fontsize=7, loc="left", pad=2)
        ax.set_ylabel(label)
    shown[0].figure.legend(*shown[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def planning(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the time that planning adds to average JCT.

    No task starts before the plan is ready, so every task waits for it. For an online controller, which also decides
    while tasks run, this is an upper bound.

    Args:
        runs: one row a world, repetition and policy, with `planning_s`; tasks arrive at once.

    Returns:
        One row a policy, medians over worlds and seeds: title, planning_s, predictor_calls, avg_jct_s,
        with_planning_s (average JCT and planning), added_pct, worst_pct (the most that any run adds), provenance.
    """
    added = runs.assign(
        with_planning_s=runs[variants.JCT] + runs["planning_s"], added_pct=100 * runs["planning_s"] / runs[variants.JCT]
    )
    columns = ["planning_s", "predictor_calls", variants.JCT, "with_planning_s", "added_pct"]
    by_title = added.groupby("title", sort=False)
    table = by_title[columns].median().assign(worst_pct=by_title["added_pct"].max(), provenance="emulated")
    return table.reset_index()


def own_plan_claim(
    runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator, why: str
) -> dict[str, Any]:
    """Return the arguments of a claim that compares two of HeShare's own plans, paired by world and seed.

    `ours` and `theirs` are titles. `runs` is as in `variants.median_change`; `why` ends the note.
    """
    other = variants.ENERGY if metric == variants.JCT else variants.JCT
    found, beside = (variants.median_change(runs, ours, theirs, name, rng) for name in (metric, other))
    word = "average JCT" if metric == variants.ENERGY else "energy"
    return found.claim_arguments(
        f"Paired by world and seed, active account; {word} beside it {beside.value:+.0f} % "
        f"[{beside.low:+.0f}, {beside.high:+.0f}]. {why}"
    )


def front_width(runs: pd.DataFrame, rng: np.random.Generator) -> str:
    """Return a sentence with the distance between the ends of HeShare's front, the most that a plan can gain."""
    energy = variants.median_change(runs, "En-opt", "JCT-opt", variants.ENERGY, rng).value
    jct = variants.median_change(runs, "JCT-opt", "En-opt", variants.JCT, rng).value
    return f"The whole front, end to end, is {energy:+.0f} % in energy and {jct:+.0f} % in average JCT when run."


def both_rivals(table: pd.DataFrame, ours: str, metric: str) -> dict[str, Any]:
    """Return the arguments of a claim on Morak and mu-Serve at once: the rival with the smaller gain counts."""
    rows = table[(table["ours"] == ours) & (table["metric"] == metric) & (table["form"] == variants.PAPER)]
    sizes = dict(zip(rows["rival"], rows["change_pct"], strict=True))
    worst, other = sorted(sizes, key=lambda rival: -sizes[rival])
    size = float(sizes[other])
    return variants.rival_claim(table, ours, worst, metric, f"Against {other} in the paper's set-up: {size:+.0f} %.")


UNITS = {"T4": 4, "V100": 2, "A100": 2}
TASKS = 60
"""Number of tasks for each unit of 8 GPUs (`UNITS`)."""


def cluster_for(tasks: int) -> Cluster:
    """Return a cluster in the proportions of `UNITS` for a number of tasks; 10,000 tasks have 1,000 GPUs."""
    units = 125 if tasks == 10_000 else max(1, tasks // TASKS)
    return Cluster.parse(",".join(f"{count * units}x{name}" for name, count in UNITS.items()))


def study(
    sizes: Sequence[int],
    predictor: Predictor,
    *,
    seed: int,
    effort: SearchSettings = DEFAULT_SETTINGS,
    timed: bool = True,
    warm: bool = True,
) -> pd.DataFrame:
    """Return the times and front sizes of planning task sets of several sizes with HeShare+.

    Args:
        sizes: numbers of tasks.
        predictor: the predictor; its tables are filled before the search and timed separately.
        seed: the seed of the task sets and the search.
        effort: settings of the search.
        timed: whether to report times, which differ from run to run.
        warm: whether to search once before, unreported, so that no row includes compilation.

    Returns:
        One row a size: `tasks`, `gpus`, `points` of the front, `predictor_rows` of the tables and, if timed,
        `tables_s` and `search_s`.
    """
    rows = []
    for index, size in enumerate([*sizes[: int(warm)], *sizes]):
        cluster, calls, start_s = cluster_for(size), predictor.calls, perf_counter()
        tasks = draw(size, rng=np.random.default_rng(seed), load="mixed", arrivals="at_once")
        costs = BatchCosts(make_instance(tasks, cluster, predictor), predictor, effort.choices)
        costs.fill_tables()
        filled_s = perf_counter()
        search = search_for(costs, effort, np.random.default_rng(seed))
        search.run()
        front = search.front()
        row = {"tasks": size, "gpus": len(cluster), "points": len(front), "predictor_rows": predictor.calls - calls}
        times_s = {"tables_s": filled_s - start_s, "search_s": perf_counter() - filled_s} if timed else {}
        rows += [{**row, **times_s}] if index >= int(warm) else []
    return pd.DataFrame(rows)


def exponent(frame: pd.DataFrame) -> float:
    """Return the exponent of the search's time against the number of tasks, by least squares of logarithms."""
    return float(np.polyfit(np.log(frame["tasks"]), np.log(frame["search_s"]), 1)[0])


def growth_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """Draw seconds of search, or GPUs where no time was taken, and plans on the front, against tasks."""
    tasks = frame["tasks"].to_numpy(float)
    shown = ("search_s", "Search (s)") if "search_s" in frame else ("gpus", "GPUs")
    for ax, (column, label) in zip(axes, (shown, ("points", "Plans on the front")), strict=True):
        values = frame[column].to_numpy(float)
        ax.plot(tasks, values, color="#0072B2", marker="o")
        if column == "search_s":
            ax.plot(tasks, values[0] * tasks / tasks[0], color="#999999", ls="--", lw=0.8)
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, None)
        ax.set_xscale("log")
        ax.set_xticks(tasks, [f"{size:g}" for size in tasks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set(xlabel="Tasks", ylabel=label)
