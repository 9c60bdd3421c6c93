"""Gaps of HeShare+ to the optimum: exact fronts of small task sets, the proven bound of large ones."""

from __future__ import annotations

import statistics
import time

import numpy as np
from bench_rows import Row, sample_row, single_row

import heshare
from heshare.experiments.studies.optimality_gap import against_exact, improved
from heshare.plus.costs import BatchCosts
from heshare.plus.optimum.lower_bound import lower_bound, weights_along
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
    predictor, rows = heshare.load_predictor(), []
    for seed in range(instances):
        tasks = heshare.task_set(SIZES[seed % len(SIZES)], seed=seed)
        rng = np.random.default_rng(seed)
        rows.append(against_exact(tasks, Cluster.parse(EXACT), predictor, rng=rng)[0])
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
    predictor, cluster = heshare.load_predictor(), Cluster.parse(LARGE)
    gaps, seconds = [], []
    for seed in range(seeds):
        costs = BatchCosts(make_instance(heshare.task_set(60, seed=seed), cluster, predictor), predictor)
        front = improved(costs, np.random.default_rng(seed))
        weights, start_s = weights_along(front), time.perf_counter()
        proven = lower_bound(costs, weights)
        seconds.append((time.perf_counter() - start_s) / len(weights))
        gaps.append(float(proven.gaps_along_pct(front).max()))
    return [
        sample_row("gap_bound_pct", gaps, "%"),
        single_row("gap_bound_pct_largest", max(gaps), "%", seeds),
        sample_row("bound_per_weight", seconds, "s"),
    ]
