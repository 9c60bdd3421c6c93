"""Gaps of HeShare+ to the optimum: exact fronts of small task sets, the proven bound of large ones.

The instances are divided between two processes while other stages run, so `bound_per_weight`, the
only time, is CPU time.
"""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import Any

import numpy as np
from bench_rows import Row, sample_row, single_row
from two_processes import in_processes

import heshare
from heshare.lab.plus.batch_table import BatchTable
from heshare.lab.plus.lower_bound import lower_bound, weights_along
from heshare.paper.studies.optimality_gap import against_exact, improved
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster

EXACT = "1xT4,1xV100,1xA100"
LARGE = "4xT4,2xV100,2xA100"
SIZES = (8, 9, 10, 11, 12, 13)


def results() -> list[Row]:
    """Return the rows of both comparisons."""
    return exact() + bound()


def exact(instances: int = 30) -> list[Row]:
    """Return hypervolumes and gaps against exact fronts, over instances of 8 to 13 tasks on 3 GPUs."""
    rows = in_processes(exact_row, range(instances))
    shares = [row["hypervolume"] for row in rows]
    gaps = [row["gap_pct"] for row in rows]
    return [
        sample_row("hv_plus_vs_exact", shares),
        single_row("hv_plus_vs_exact_least", min(shares), n=instances),
        single_row("gap_exact_pct", statistics.fmean(gaps), "%", instances),
        single_row("gap_exact_pct_largest", max(gaps), "%", instances),
    ]


def bound(seeds: int = 10) -> list[Row]:
    """Return the largest gap at five weights along the front of 60 tasks on 8 GPUs, and the bound's time."""
    gaps, seconds = zip(*in_processes(bound_gap, range(seeds)), strict=True)
    return [
        sample_row("gap_bound_pct", gaps, "%"),
        single_row("gap_bound_pct_largest", max(gaps), "%", seeds),
        sample_row("bound_per_weight", seconds, "s"),
    ]


@cache
def predictor() -> Any:
    """Return the predictor of this process."""
    return heshare.load_predictor()


def exact_row(seed: int) -> dict[str, float]:
    """Return the comparison of one small task set with its exact front."""
    tasks = heshare.task_set(SIZES[seed % len(SIZES)], seed=seed)
    return against_exact(tasks, Cluster.parse(EXACT), predictor(), rng=np.random.default_rng(seed))


def bound_gap(seed: int) -> tuple[float, float]:
    """Return the largest gap of one task set to its bound, %, and the bound's CPU time for each weight, s."""
    tasks = heshare.task_set(60, seed=seed)
    table = BatchTable(make_instance(tasks, Cluster.parse(LARGE), predictor()), predictor())
    front = improved(table, np.random.default_rng(seed))
    weights, start_s = weights_along(front), time.process_time()
    proven = lower_bound(table, weights)
    return float(proven.gaps_along_pct(front).max()), (time.process_time() - start_s) / len(weights)
