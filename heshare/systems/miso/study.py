"""MISO's home setting: its 100 training jobs on eight A100 of 40 GB, against whole GPUs, static partitions and MPS."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heshare.experiments.statistics import ConfidenceInterval, median_interval
from heshare.experiments.study_runs import paired_change
from heshare.experiments.sweeps import resolve
from heshare.experiments.sweeps.grid import Grid
from heshare.experiments.sweeps.sweep import WALL_TIME, sweep
from heshare.plugins import title
from heshare.policies.registry import split_description
from heshare.systems.miso.miso_jobs import START_S, miso_tasks
from heshare.systems.miso.partition_search import PUBLISHED
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task

MEMORY_MIB = 40_536.0
"""Memory of the 40 GB card, as the driver reports it, MiB; recalled."""
FREE = "miso(overhead_s=0.001,probe_s=0.0,settle_s=0.001)"
"""MISO if probing, saving and partitioning took no time."""
WHOLE, MPS, STATIC, MISO = "fifo", "miso:mps", "miso:static", "miso"
JCT = "avg_jct_s"
_TITLES = {
    WHOLE: "Unpartitioned",
    MPS: "MPS, 3 a GPU",
    FREE: "MISO at no cost",
    "miso(partitions=all)": "MISO with (4, 3)",
}


def cluster(gpus: int) -> Cluster:
    """So many A100 of 40 GB."""
    return Cluster((replace(gpu("A100"), memory_mib=MEMORY_MIB),) * gpus)


def statics(*, largest: int = 3) -> tuple[str, ...]:
    """Static partitions of MISO's code with an instance of at least `largest` slices, which its largest job needs."""
    able = [one for one in PUBLISHED if largest <= one[0] < 7]
    return tuple(f"{STATIC}(partition={'/'.join(map(str, one))})" for one in able)


def home(
    policies: Sequence[str],
    *,
    seed: int,
    seeds: int,
    tasks: int = 100,
    gpus: int = 8,
    interval_s: float = 60.0,
    start_cost_s: float = START_S,
) -> pd.DataFrame:
    """Run policies on MISO's jobs.

    Args:
        policies: as the registry writes them.
        seed: of all repetitions.
        seeds: repetitions; each has its own order of jobs and its own arrivals.
        tasks: jobs.
        gpus: GPUs.
        interval_s: mean time between two arrivals, s; half of it for the first third.
        start_cost_s: time to start a job, s, whenever it starts.

    Returns:
        One row a repetition and policy, as from `sweep`, without wall time; of the scenario only the column interval_s.
    """
    grid = Grid(
        policies=tuple(policies),
        clusters=(cluster(gpus),),
        tasks=(tasks,),
        intervals_s=(interval_s,),
        predictors=(resolve.TRUTH,),
        draws=(f"{__name__}:draw_jobs",),
        start_costs_s=(start_cost_s,),
        seeds=seeds,
        seed=seed,
    )
    runs = sweep(grid).loc[:, "repetition":].drop(columns=list(WALL_TIME))
    return runs.assign(interval_s=interval_s, title=runs["policy"].map(name_of))


def draw_jobs(n: int, *, rng: np.random.Generator, interval_s: float, **_: object) -> tuple[Task, ...]:
    """Draw MISO's jobs for a sweep; what only concerns the paper's recipe has no effect."""
    return miso_tasks(n, rng=rng, interval_s=interval_s, start_s=START_S)


def name_of(policy: str) -> str:
    """What figures call a policy here."""
    if policy.startswith(STATIC):
        return f"Static {partition_of(policy)}"
    return _TITLES.get(policy, title(policy))


def partition_of(policy: str) -> str:
    """The partition of a static one, such as `3/2/2`."""
    _, given = split_description(policy)
    return given.get("partition", "3/2/2")


def best_static(runs: pd.DataFrame) -> str:
    """The static partition with the least average JCT over all repetitions: chosen with hindsight, as MISO does."""
    means = runs[runs["policy"].str.startswith(STATIC)].groupby("policy")[JCT].mean()
    return str(means.idxmin())


def against(
    runs: pd.DataFrame, ours: str, theirs: str, rng: np.random.Generator, metric: str = JCT
) -> ConfidenceInterval:
    """By how many percent a policy's metric differs from another's, seed by seed."""
    return paired_change(runs, ours, theirs, metric, rng, by="policy")


def table(runs: pd.DataFrame, best: str, rng: np.random.Generator) -> pd.DataFrame:
    """One row a policy: medians of its metrics, its average JCT against whole GPUs and a static partition, %."""
    rows = []
    for policy, part in runs.groupby("policy", sort=False):
        jct = median_interval(part[JCT], rng)
        whole, static = (against(runs, str(policy), other, rng) for other in (WHOLE, best))
        rows.append(
            {
                "policy": policy,
                "title": part["title"].iloc[0],
                "avg_jct_s": jct.value,
                "low": jct.low,
                "high": jct.high,
                "against_whole_pct": whole.value,
                "against_static_pct": static.value,
                "waiting_s": part["avg_waiting_s"].median(),
                "makespan_s": part["makespan_s"].median(),
                "energy_mj": 1e-6 * part["energy_active_j"].median(),
            }
        )
    return pd.DataFrame(rows)


def by_interval(
    intervals_s: Sequence[float], rng: np.random.Generator, *, chosen: Sequence[str] = (), **sizes: Any
) -> pd.DataFrame:
    """MISO, and MISO at no cost, against whole GPUs and the best static partition, as jobs arrive more seldom.

    Args:
        intervals_s: mean times between two arrivals, s.
        rng: draws the bootstrap's samples.
        chosen: the static partitions of which the best is taken; all of `statics()` if none are given.
        **sizes: as of `home`.

    Returns:
        One row an interval, policy and reference: columns interval_s, title, reference, static, change_pct, low, high.
    """
    rows = []
    for interval_s in intervals_s:
        runs = home([WHOLE, MISO, FREE, *(chosen or statics())], interval_s=interval_s, **sizes)
        best = best_static(runs)
        for policy in (MISO, FREE):
            for reference, other in (("Unpartitioned", WHOLE), ("Best static", best)):
                change = against(runs, policy, other, rng)
                row = {"interval_s": interval_s, "title": name_of(policy), "reference": reference}
                rows.append({**row, "static": name_of(best), **change.columns("change_pct")})
    return pd.DataFrame(rows).drop(columns="n")
