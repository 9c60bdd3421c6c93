"""Comparison of all systems in one shared setting: the same single-GPU tasks and clusters, arrivals as in Venus."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

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
from heshare.paper.figures.direct_labels import draw_points, label_frame
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


def medians(runs: pd.DataFrame, by: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
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
            row |= median_interval(part[measure], rng).columns(measure, f"{measure}_low", f"{measure}_high")
        rows.append(row)
    table = pd.DataFrame(rows)
    table["dominated_by"] = [_dominating_systems(table, row, by) for _, row in table.iterrows()]
    return table.assign(provenance="emulated")


def _dominating_systems(table: pd.DataFrame, row: pd.Series, by: Sequence[str]) -> str:
    world = table[(table[list(by)] == row[list(by)]).all(axis=1)]
    no_worse = (world[ENERGY] <= row[ENERGY]) & (world[JCT] <= row[JCT])
    less = (world[ENERGY] < row[ENERGY]) | (world[JCT] < row[JCT])
    return ", ".join(world[no_worse & less]["title"])


def changes_by_load(
    runs: pd.DataFrame, ours: str, theirs: str, rng: np.random.Generator
) -> dict[str, list[ConfidenceInterval]]:
    """Return the changes (energy, average JCT) of one system against another at each load, paired by repetition."""
    return {
        str(load): [paired_change(part, ours, theirs, measure, rng) for measure in (ENERGY, JCT)]
        for load, part in runs.groupby("load", sort=False)
    }


def energy_jct_products(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return median energy times average JCT of each system (row) over that of the best one in a world (column)."""
    both = runs.assign(product=runs[ENERGY] * runs[JCT])
    table = both.pivot_table(index="title", columns=list(by), values="product", aggfunc="median", sort=False)
    return table / table.min()


def ties(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return whether each system (row) is the best of a world (column), or no worse than it in one repetition."""
    best = energy_jct_products(runs, by).idxmin()
    both = runs.assign(product=runs[ENERGY] * runs[JCT])
    each = both.pivot_table(index="title", columns=[*by, "repetition"], values="product", sort=False)
    found = {}
    for world, title in best.items():
        part: Any = each[world]
        found[world] = (part <= part.loc[title]).any(axis="columns")
    return pd.DataFrame(found).rename_axis(columns=list(by))


def non_dominated(table: pd.DataFrame) -> dict[str, list[str]]:
    """Return the titles of the systems that no other dominates, by load; `table` is as from `medians`."""
    best = table[table["dominated_by"] == ""].sort_values(ENERGY)
    return {load: best.loc[best["load"] == load, "title"].tolist() for load in table["load"].unique()}


ALWAYS_NAMED, NAMED = ("HeShare online",), 8
"""Systems that `pareto_panel` always names, and how many it names at most besides non-dominated ones."""


def nearest_first(table: pd.DataFrame) -> list[str]:
    """Return the dominated systems of one world, nearest to the non-dominated ones first.

    The distance is the least factor by which a non-dominated system is better in the measure in which it is less so.
    """
    front = table[table["dominated_by"] == ""]
    rest = table[table["dominated_by"] != ""]
    ratios = [
        rest[measure].to_numpy(float)[:, None] / front[measure].to_numpy(float)[None] for measure in (ENERGY, JCT)
    ]
    order = np.argsort(np.maximum(*ratios).min(axis=1), kind="stable")
    return rest["title"].iloc[order].tolist()


def pareto_panel(ax: Axes, table: pd.DataFrame) -> None:
    """Draw average JCT against energy, with a line through the systems that no other dominates.

    These, `ALWAYS_NAMED` and the nearest to them have their names and intervals; the others are small dots.

    `table` has the rows of `medians` of one world.
    """
    ends = {"": "", "_low": "_low", "_high": "_high"}
    points = table.assign(
        **{f"x{end}": table[f"{ENERGY}{own}"] / 1e6 for end, own in ends.items()},
        **{f"y{end}": table[f"{JCT}{own}"] / 1e3 for end, own in ends.items()},
    )
    best = points["dominated_by"] == ""
    near = nearest_first(table)[: max(NAMED - int(best.sum()), 0)]
    named = best | points["title"].isin([*near, *ALWAYS_NAMED])
    line, other = points[best].sort_values("x"), points[~named]
    ax.plot(line["x"], line["y"], color="black", linewidth=0.7, zorder=0)
    ax.plot(other["x"], other["y"], ".", color=FAINT, markersize=4)
    draw_points(ax, points[named])
    ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")
    ax.margins(0.1)
    plots.log_axis(ax)
    label_frame(ax, points[named], avoid=other[["x", "y"]].to_numpy(float))


def heat_map(ax: Axes, table: pd.DataFrame, tied: pd.DataFrame, *, most: float = 4.0) -> None:
    """Draw a heat map of `energy_jct_products`: darker is worse, the best of each world and its ties are bold.

    `tied` is as from `ties`; values of `most` and more have the darkest colour.
    """
    values, bold = table.to_numpy(), tied.loc[table.index, table.columns].to_numpy(bool)
    below: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center", "va": "top"}
    image = ax.imshow(np.log(np.minimum(values, most)), cmap="viridis_r", aspect="auto", vmin=0.0, vmax=np.log(most))
    ticks = [1.0, 1.5, 2.0, 3.0, most]
    bar = ax.figure.colorbar(image, ax=ax, ticks=np.log(ticks), pad=0.01, aspect=30)
    bar.ax.set_yticklabels([*(f"{each:g}" for each in ticks[:-1]), f"≥ {most:g}"], fontsize=6)
    bar.set_label("Energy times average JCT over the best system's", fontsize=6.5)
    worlds = [(str(each[0]), str(each[1])) for each in table.columns.to_flat_index()]
    ax.set_xticks(range(len(worlds)), [str(load) for _, load in worlds])
    for first, (mix, _) in enumerate(worlds):
        own = [place for place, (each, _) in enumerate(worlds) if each == mix]
        if first == own[0]:
            ax.annotate(mix, (np.mean(own), 0), (0, -15), fontsize=6.5, **below)
            ax.axvline(first - 0.5, color="white", linewidth=2)
    ax.set_yticks(range(table.shape[0]), list(table.index))
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        weight = "bold" if bold[row, column] else "normal"
        colour = "white" if value > most**0.5 else "black"
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour, weight=weight)
    ax.grid(visible=False)
