"""Comparison of all systems in one shared setting: the same single-GPU tasks and clusters, arrivals as in Venus."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.device_model import co_run
from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.resolve import KEPT
from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.sweeps.study_runs import paired_change
from heshare.lab.sweeps.sweep import WALL_TIME, sweep
from heshare.lab.systems.shared import trace_jobs
from heshare.paper.figures import plots
from heshare.paper.figures.direct_labels import draw_points
from heshare.paper.figures.rows import TITLE, interval_rows
from heshare.paper.figures.series_styles import FAINT
from heshare.policies import registry
from heshare.world.catalogue import paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s
from heshare.world.workload import Resident, Workload

ENERGY, CLUSTER, JCT = "energy_active_j", "energy_cluster_j", "avg_jct_s"
MEASURES = (ENERGY, CLUSTER, JCT, "median_jct_s", "utilisation")
VENUS_ARRIVALS = "heshare.paper.studies.shared_setting:as_in_venus"
"""The name of `as_in_venus` in a grid."""


def as_in_venus(
    n: int,
    *,
    rng: np.random.Generator,
    load: str = "mixed",
    arrivals: str = "at_once",
    interval_s: float = 60.0,
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | None = None,
) -> tuple[Task, ...]:
    """Return tasks of the recipe that arrive in bursts as in a generated trace of Venus, `interval_s` apart on average.

    `arrivals` is ignored; the others are as in `heshare.devices.task_sizes.draw`.
    """
    tasks = recipe(n, rng=rng, load=load, batch_sizes=batch_sizes, trace=trace)
    if n == 1:
        return tasks
    submits_s = np.array([job.submit_s for job in trace_jobs.generate_trace(n, rng=rng).jobs])
    times_s = (submits_s - submits_s[0]) * (interval_s * (n - 1) / max(submits_s[-1] - submits_s[0], 1.0))
    return tuple(replace(task, arrival_s=float(time_s)) for task, time_s in zip(tasks, times_s, strict=True))


def interval_s(cluster: str, load: float) -> float:
    """Return the mean time between arrivals, s, that gives a cluster a load, as a share of its capacity.

    Capacity is that of one task a GPU at a time. A GPU's speed is relative to an A100, the mean over the models of
    Table IV.
    """
    workloads = [Workload(name, 8) for name in sorted(paper_models())]
    speeds = [
        np.mean([time_alone_s(each) / co_run(gpu, (Resident(each),)).tasks[0].time_s for each in workloads])
        for gpu in Cluster.parse(cluster).gpus
    ]
    return float(np.mean(helios_durations_s()) / (sum(speeds) * load))


def run_systems(
    policies: Mapping[str, str],
    clusters: Sequence[str],
    loads: Mapping[str, float],
    *,
    tasks: int,
    seed: int,
    seeds: int,
    folder: Path | None,
) -> pd.DataFrame:
    """Return the runs of every system in every world (cluster and load).

    `policies` are names of the registry by title, `loads` shares of a cluster's capacity by name.
    """
    named = {registry.canonical(text): title for title, text in policies.items()}
    parts = []
    for cluster, (name, load) in product(clusters, loads.items()):
        grid = Grid(
            policies=tuple(named),
            clusters=(cluster,),
            tasks=(tasks,),
            draws=(VENUS_ARRIVALS,),
            predictors=(KEPT,),
            intervals_s=(round(interval_s(cluster, load), 3),),
            seed=seed,
            seeds=seeds,
        )
        rows = sweep(grid, folder=folder).drop(columns=list(WALL_TIME))
        parts.append(rows.assign(title=rows["policy"].map(named), mix=cluster, load=name))
    return pd.concat(parts, ignore_index=True)


def medians(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the median and 95 % interval of each measure of each system in each world.

    Returns:
        The columns of `by`, title, then for each of `MEASURES` three columns (with `_low` and `_high`), `n`,
        `dominated_by` (the titles of systems with no more energy and no more average JCT, one of them less), and
        provenance.
    """
    rows = []
    for key, part in runs.groupby([*by, "title"], sort=False):
        row: dict[str, object] = dict(zip([*by, "title"], key, strict=True))
        for measure in MEASURES:
            row |= median_interval(part[measure]).columns(measure, f"{measure}_low", f"{measure}_high")
        rows.append(row)
    table = pd.DataFrame(rows)
    table["dominated_by"] = [_dominating_systems(table, row, by) for _, row in table.iterrows()]
    return table.assign(provenance="emulated")


def _dominating_systems(table: pd.DataFrame, row: pd.Series, by: Sequence[str]) -> str:
    world = table[(table[list(by)] == row[list(by)]).all(axis=1)]
    no_worse = (world[ENERGY] <= row[ENERGY]) & (world[JCT] <= row[JCT])
    less = (world[ENERGY] < row[ENERGY]) | (world[JCT] < row[JCT])
    return ", ".join(world[no_worse & less]["title"])


def changes_by_load(runs: pd.DataFrame, ours: str, theirs: str) -> dict[str, list[ConfidenceInterval]]:
    """Return the changes (energy, average JCT) of one system against another at each load, paired by repetition."""
    return {
        str(load): [paired_change(part, ours, theirs, measure) for measure in (ENERGY, JCT)]
        for load, part in runs.groupby("load", sort=False)
    }


def energy_jct_products(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return median energy times average JCT of each system (row) over that of the best one in a world (column)."""
    both = runs.assign(product=runs[ENERGY] * runs[JCT])
    table = both.pivot_table(index="title", columns=list(by), values="product", aggfunc="median", sort=False)
    return table / table.min()


def wins(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the title of the best system of each world by energy times average JCT.

    The column `always` says whether it is the best in every repetition.
    """
    both = runs.assign(product=runs[ENERGY] * runs[JCT])
    each = both.pivot_table(index=[*by, "repetition"], columns="title", values="product").idxmin(axis=1)
    always = each.groupby(level=list(by)).agg(lambda titles: len(set(titles)) == 1)
    best = energy_jct_products(runs, by).idxmin()
    return pd.DataFrame({"title": best, "always": always}).reset_index()


def non_dominated(table: pd.DataFrame) -> dict[str, list[str]]:
    """Return the titles of the systems that no other dominates, by load; `table` is as from `medians`."""
    best = table[table["dominated_by"] == ""].sort_values(ENERGY)
    return {load: best.loc[best["load"] == load, "title"].tolist() for load in table["load"].unique()}


def pareto_panels(axes: Sequence[Axes], table: pd.DataFrame, named: Sequence[str]) -> None:
    """Draw average JCT against energy, a panel for each load, with a line through the systems that no other dominates.

    These and `named` have a mark with intervals and a name in the legend, the same in all panels; the others are small
    dots. `table` is as from `medians`.
    """
    ends = ("", "_low", "_high")
    points = table.assign(
        **{f"x{end}": table[f"{ENERGY}{end}"] / 1e6 for end in ends},
        **{f"y{end}": table[f"{JCT}{end}"] / 1e3 for end in ends},
    )
    marked = {*named, *points["title"][points["dominated_by"] == ""]}
    for ax, (load, part) in zip(axes, points.groupby("load", sort=False), strict=True):
        known = part["title"].isin(marked)
        for title, own in part[known].groupby("title", sort=False):
            draw_points(ax, own)
            ax.lines[-1].set_label(_in_words(str(title)))
        line, other = part[part["dominated_by"] == ""].sort_values("x"), part[~known]
        ax.plot(line["x"], line["y"], color=FAINT, linewidth=0.9, zorder=0, label="none is better in both")
        ax.plot(other["x"], other["y"], ".", color=FAINT, markersize=4, label="all others")
        ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)" if ax is axes[0] else "")
        ax.set_title(f"{load} load", **TITLE)
        plots.log_axis(ax)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def _in_words(title: str) -> str:
    name, comma, setting = title.partition(", ")
    return f"{name}, waiting costs {setting}" if comma else name


def product_rows(ax: Axes, table: pd.DataFrame) -> None:
    """Draw `energy_jct_products` of each system, least first: a small dot for each world, their median and range."""
    rows = pd.DataFrame({"value": table.median(axis=1), "low": table.min(axis=1), "high": table.max(axis=1)})
    rows = rows.sort_values("value").reset_index()
    for at, title in enumerate(rows["title"]):
        worlds = table.loc[title].to_numpy(float)
        ax.plot(worlds, np.full(len(worlds), at), ".", color=FAINT, markersize=3.5, zorder=0)
    interval_rows(ax, rows, row="title", value="value", low="low", high="high")
    ax.set_yticks(range(len(rows)), [_in_words(str(title)) for title in rows["title"]])
    ax.set_xlabel("Energy times average JCT,\nover the best system's")
    plots.log_axis(ax, "x")
