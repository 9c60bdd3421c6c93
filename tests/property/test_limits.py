"""Random policies on random clusters keep random limits: the sum of power is never above, and every task ends."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.power_excess import excess_w

import heshare as hs
from heshare.lab.limits import PowerLimit, check_cluster
from heshare.running.timeline import power_steps
from heshare.shared.errors import InputError

PROFILED = ("T4", "V100", "A100")
GPUS = (*PROFILED, "H100", "L4")
ARRIVALS = ("at_once", "miso", "exponential")
QUICK = ("fifo", "random", "sjf", "srtf", "gandiva")
"""Policies that decide within milliseconds."""


def policy_names():
    """Return all policies, HeShare with a short search."""
    names = hs.policy_names()
    return [f"{name}(generations=10)" if name.startswith("heshare:") else name for name in names]


def random_limit(rng, cluster, free):
    """Return a limit of one to three steps below the peak of a run without one, which the cluster can keep."""
    peak_w = float(power_steps(free.record.segments)[1].max())
    steps = int(rng.integers(1, 4))
    times_s = [free.makespan_s / 4 * step for step in range(steps)]
    limits_w = peak_w * rng.uniform(0.5, 1.0, steps)
    while True:
        limit = PowerLimit(tuple(times_s), tuple(limits_w.tolist()))
        try:
            check_cluster(hs.Cluster.parse(cluster), limit)
        except InputError:
            limits_w *= 1.1
        else:
            return limit


def check_random_run(seed, names, gpus=GPUS):
    rng = np.random.default_rng(seed)
    name = str(rng.choice(names))
    kinds = rng.choice(gpus, int(rng.integers(1, 4)), replace=False)
    cluster = ",".join(f"{rng.integers(1, 3)}x{gpu}" for gpu in kinds)
    tasks = hs.task_set(int(rng.integers(2, 9)), seed=seed, arrivals=str(rng.choice(ARRIVALS)))

    free = hs.run(tasks, cluster, name, seed=seed)
    limit = random_limit(rng, cluster, free)
    done = hs.run(tasks, cluster, name, seed=seed, power_limit=limit)

    found = f"seed {seed}: {name} on {cluster} within {limit.to_json()}"
    assert excess_w(done, limit) <= 1e-6, found
    completed = Counter(interval.task for interval in done.record.intervals if interval.outcome == "completed")
    assert completed == Counter([task.id for task in tasks]), found
    assert np.isfinite(done.jct_s).all(), found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:no profile of")
@pytest.mark.parametrize("part", range(10))
def test_many_runs(part):
    """300 random runs keep their limits."""
    for seed in range(30 * part, 30 * part + 30):
        check_random_run(seed, policy_names())


@pytest.mark.parametrize("seed", range(1000, 1010))
def test_quick_policies(seed):
    """Random runs of quick policies keep their limits."""
    check_random_run(seed, QUICK, PROFILED)
