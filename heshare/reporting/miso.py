"""MISO's home setting: its 100 training jobs on eight A100 of 40 GB, against whole GPUs, static partitions and MPS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from heshare.policies.description import split
from heshare.policies.partitioned.search import PUBLISHED
from heshare.policies.registry import title
from heshare.prediction.truth import DevicePredictor
from heshare.reporting.statistics import Interval, change_pct, median_interval
from heshare.running.compare import WALL_TIME, compare
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.miso import START_S, miso_tasks

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
        One row a repetition and policy, as from `heshare.running.compare.compare`, without wall time, and the column
        interval_s.
    """
    runs = compare(
        partial(miso_tasks, tasks, interval_s=interval_s, start_s=START_S),
        cluster(gpus),
        list(policies),
        predictor=DevicePredictor,
        seed=seed,
        seeds=seeds,
        start_cost_s=start_cost_s,
    )
    return runs.drop(columns=list(WALL_TIME)).assign(interval_s=interval_s, title=runs["policy"].map(name_of))


def name_of(policy: str) -> str:
    """What figures call a policy here."""
    if policy.startswith(STATIC):
        return f"Static {partition_of(policy)}"
    return _TITLES.get(policy, title(policy))


def partition_of(policy: str) -> str:
    """The partition of a static one, such as `3/2/2`."""
    _, given = split(policy)
    return given.get("partition", "3/2/2")


def best_static(runs: pd.DataFrame) -> str:
    """The static partition with the least average JCT over all repetitions: chosen with hindsight, as MISO does."""
    means = runs[runs["policy"].str.startswith(STATIC)].groupby("policy")[JCT].mean()
    return str(means.idxmin())


def against(runs: pd.DataFrame, ours: str, theirs: str, rng: np.random.Generator, metric: str = JCT) -> Interval:
    """By how many percent a policy's metric differs from another's, seed by seed."""
    wide = runs.pivot_table(index="repetition", columns="policy", values=metric, sort=False)
    return change_pct(wide[ours], wide[theirs], rng)


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
                found = against(runs, policy, other, rng)
                rows.append((interval_s, name_of(policy), reference, name_of(best), found.value, found.low, found.high))
    return pd.DataFrame(rows, columns=["interval_s", "title", "reference", "static", "change_pct", "low", "high"])
