"""The study of MISO in the setting of its own paper: 100 training jobs on eight A100 of 40 GB.

MISO is compared with whole GPUs, static partitions and equal MPS shares.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.sweeps.study_runs import paired_change
from heshare.lab.sweeps.sweep import WALL_TIME, sweep
from heshare.lab.systems.miso.policy import PUBLISHED
from heshare.lab.systems.shared import training
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import plots
from heshare.paper.figures.rows import interval_rows
from heshare.paper.figures.series_styles import GUIDE
from heshare.policies.registry import split_description, title
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.inputs.csv_table import read_table
from heshare.world.arrivals import arrivals_s
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s
from heshare.world.workload import Workload

MEMORY_MIB = 40_536.0
"""Memory of the 40 GB card, as the driver reports it, MiB; recalled."""
START_S = 10.0
"""Time to start a job, s; MISO subtracts it from a duration before it counts the steps."""
LARGEST = 3
"""Compute slices that MISO's largest job needs."""
FREE = "miso(overhead_s=0.001,probe_s=0.0,settle_s=0.001)"
"""MISO if probing, saving and partitioning took no time."""
WHOLE, MPS, STATIC, MISO = "fifo", "miso:mps", "miso:static", "miso"
JCT = "avg_jct_s"
PAPER_PCT = {WHOLE: paper_claims()["X2", "unpartitioned"].value, STATIC: paper_claims()["X2", "static"].value}
"""Changes of average JCT in MISO's abstract, %, against whole GPUs and the best static partition."""
REFERENCES = {WHOLE: "Unpartitioned", STATIC: "Best static"}
_TITLES = {
    WHOLE: "Unpartitioned",
    MPS: "MPS, 3 a GPU",
    FREE: "MISO at no cost",
    "miso(partitions=all)": "MISO with (4, 3)",
}


def cluster(gpus: int) -> Cluster:
    return Cluster((replace(gpu("A100"), memory_mib=MEMORY_MIB),) * gpus)


def statics() -> tuple[str, ...]:
    """Return the static partitions of MISO's code, as policies, with an instance that holds its largest job."""
    able = [partition for partition in PUBLISHED if LARGEST <= partition[0] < 7]
    return tuple(f"{STATIC}(partition={'/'.join(map(str, partition))})" for partition in able)


def draw_jobs(n: int, *, rng: np.random.Generator, interval_s: float = 60.0, **_: object) -> tuple[Task, ...]:
    """Draw a task set as in MISO's experiments: its fixed pairs of duration and workload, in shuffled order.

    Up to 100 tasks are drawn without replacement, beyond that all pairs are used in turn. `interval_s` is the mean
    time between two arrivals, half of it for the first third; what else a sweep passes has no effect.

    Returns:
        Tasks 0 to n-1 by arrival. A task's iterations are its duration less `START_S`, over its step alone on an A100.

    Raises:
        InputError: no tasks, or an interval that is not above zero.
    """
    require("tasks", n, n >= 1, "at least one task")
    alone_s, workloads = helios_durations_s() - START_S, _workloads()
    known = len(workloads)
    order = rng.choice(known, n, replace=False) if n <= known else rng.permutation(np.arange(n) % known)
    times_s = arrivals_s(n, rng=rng, arrivals="front_loaded", interval_s=interval_s)
    return tuple(
        Task(index, workloads[job], float(alone_s[job]) / training.step(workloads[job]).step_s, float(times_s[index]))
        for index, job in enumerate(order.tolist())
    )


@cache
def _workloads() -> tuple[Workload, ...]:
    return tuple(
        Workload(row.text("model"), row.whole("batch_size", least=1), phase="training")
        for row in read_table(files.data("training", "jobs.csv"), ("percentile", "model", "batch_size"))
    )


def run_policies(
    policies: Sequence[str], *, seed: int, seeds: int, tasks: int = 100, gpus: int = 8, interval_s: float = 60.0
) -> pd.DataFrame:
    grid = Grid(
        policies=tuple(policies),
        clusters=(cluster(gpus),),
        tasks=(tasks,),
        intervals_s=(interval_s,),
        predictors=(resolve.TRUTH,),
        draws=(f"{__name__}:{draw_jobs.__name__}",),
        start_costs_s=(START_S,),
        seeds=seeds,
        seed=seed,
    )
    runs = sweep(grid).loc[:, "repetition":].drop(columns=list(WALL_TIME))
    return runs.assign(interval_s=interval_s, title=runs["policy"].map(name_of))


def name_of(policy: str) -> str:
    if policy.startswith(STATIC):
        return f"Static {partition_of(policy)}"
    return _TITLES.get(policy, title(policy))


def partition_of(policy: str) -> str:
    return split_description(policy)[1].get("partition", "3/2/2")


def best_static(runs: pd.DataFrame) -> str:
    """Return the static partition with the least average JCT over all repetitions, with hindsight, as in MISO."""
    means = runs[runs["policy"].str.startswith(STATIC)].groupby("policy")[JCT].mean()
    return str(means.idxmin())


def against(runs: pd.DataFrame, ours: str, theirs: str) -> ConfidenceInterval:
    return paired_change(runs, ours, theirs, JCT, by="policy")


def table(runs: pd.DataFrame, best: str) -> pd.DataFrame:
    """Return a row for each policy: medians of its metrics, its average JCT against whole GPUs and `best`, %.

    Columns that end with `_low` and `_high` are 95 % intervals over n repetitions.
    """
    rows = []
    for policy, part in runs.groupby("policy", sort=False):
        rows.append(
            {
                "policy": policy,
                "title": part["title"].iloc[0],
                **median_interval(part[JCT]).columns(JCT),
                **_change(runs, str(policy), WHOLE, "against_whole"),
                **_change(runs, str(policy), best, "against_static"),
                "waiting_s": part["avg_waiting_s"].median(),
                "makespan_s": part["makespan_s"].median(),
                "energy_mj": 1e-6 * part["energy_active_j"].median(),
            }
        )
    return pd.DataFrame(rows).assign(provenance="emulated")


def _change(runs: pd.DataFrame, ours: str, theirs: str, name: str) -> dict[str, float]:
    return against(runs, ours, theirs).columns(f"{name}_pct", f"{name}_low", f"{name}_high")


def by_interval(intervals_s: Sequence[float], *, chosen: Sequence[str] = (), **sizes: Any) -> pd.DataFrame:
    """Compare MISO, and MISO at no cost, with whole GPUs and the best static partition, by time between arrivals.

    The best static partition is that of `chosen`, or of all `statics()`; `sizes` are as of `run_policies`.
    """
    rows = []
    for interval_s in intervals_s:
        runs = run_policies([WHOLE, MISO, FREE, *(chosen or statics())], interval_s=interval_s, **sizes)
        best = best_static(runs)
        for policy in (MISO, FREE):
            for reference, other in zip(REFERENCES.values(), (WHOLE, best), strict=True):
                change = against(runs, policy, other)
                row = {"interval_s": interval_s, "title": name_of(policy), "reference": reference}
                rows.append({**row, "static": name_of(best), **change.columns("change_pct")})
    return pd.DataFrame(rows).drop(columns="n")


def jct_rows(ax: Axes, found: pd.DataFrame, best: str) -> None:
    """Draw the average JCT of each policy, longest first, and what the paper's two reductions would give."""
    rows = found.assign(**{name: found[name] / 1e3 for name in (JCT, "low", "high")}).sort_values(JCT, ascending=False)
    rows["label"] = rows["title"] + np.where(rows["policy"] == best, " (best static)", "")
    interval_rows(ax, rows, row="label", value=JCT, low="low", high="high")
    for policy, key, line, name in ((WHOLE, WHOLE, "--", "unpartitioned"), (best, STATIC, ":", "the best static")):
        level = float(rows.set_index("policy")[JCT][policy]) * (1 + PAPER_PCT[key] / 100)
        words = f"the paper: {-PAPER_PCT[key]:g} % below {name}"
        ax.axvline(level, color=GUIDE, linewidth=0.9, linestyle=line, zorder=0, label=words)
    handles = [each for each in ax.lines if str(each.get_label()).startswith("the paper")]
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.3, 1.0), borderaxespad=0.2)
    ax.set_xlabel("Average JCT (1000 s)")
    plots.log_axis(ax, "x")


def interval_panels(axes: Sequence[Axes], why: pd.DataFrame) -> None:
    for ax, (key, reference) in zip(axes, REFERENCES.items(), strict=True):
        plots.lines(ax, why[why["reference"] == reference], x="interval_s", y="change_pct", series="title")
        ax.axhline(PAPER_PCT[key], color=GUIDE, linewidth=0.8, linestyle="--", label="the paper")
        ax.axhline(0, color="black", linewidth=0.6)
        ax.set(xlabel="Mean time between arrivals (s)", ylabel=f"Average JCT against\n{reference.lower()} (%)")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
