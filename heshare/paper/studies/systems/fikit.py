"""FIKIT in the setting of its paper: an urgent and another task on one GPU, kernel by kernel.

Durations and SMs of kernels are traces of a V100 (the Orion record); the time of a launch is that of eager PyTorch. The
other task always has a next request; those of the urgent one arrive one after the other, or at random.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, Sharing, share
from heshare.lab.systems.fikit.kernel_trace import KernelTrace

CASE = ("high", "low", "load")
"""Columns that name a case: the urgent task, the other one, and the load of the urgent one."""
JITTER = 0.05
"""Coefficient of variation of each kernel and launch; assumed."""


def runs(
    ways: Mapping[str, Sharing],
    traces: Mapping[str, KernelTrace],
    loads: Sequence[float],
    *,
    requests: int,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Run every pair of traced models at every load under every way of sharing.

    Arrivals and jitter are the same for all ways of sharing and loads of one pair and repetition.

    Args:
        ways: rules of sharing by title.
        traces: the models' kernels.
        loads: requests of the urgent task as a share of what it could serve alone, Poisson; 0: one after the other.
        requests: of the urgent task.
        seed: of all repetitions.
        seeds: number of repetitions.

    Returns:
        One row a repetition, case and way: repetition, `CASE`, title, jct_s (mean of the urgent task's requests) and
        low_speed (of the other task, over its speed alone).
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for load, (one, high), (two, low) in product(loads, enumerate(traces), enumerate(traces)):
            for title, how in ways.items():
                rng = np.random.default_rng(np.random.SeedSequence([seed, repetition.number, one, two]))
                measures = _measures(traces[high], traces[low], load, how, requests, rng)
                yield {"high": high, "low": low, "load": load, "title": title, **measures}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def _measures(
    high: KernelTrace, low: KernelTrace, load: float, how: Sharing, requests: int, rng: np.random.Generator
) -> dict[str, float]:
    high_s, low_s = high.alone()[1], low.alone()[1]
    gaps_s = rng.exponential(high_s / load if load else 0.0, requests)
    arrivals_s = tuple(np.cumsum(gaps_s).tolist()) if load else None

    clients = [Client(high, requests, 0, arrivals_s), Client(low, 0, 1)]
    outcome = share(clients, how, rng=rng, jitter=JITTER)
    return {"jct_s": float(outcome.jct_s[0].mean()), "low_speed": float(outcome.rate[1] * low_s / low.busy_s)}


def overhead_pct(traces: Mapping[str, KernelTrace], rule: FikitRule) -> pd.Series:
    """Return by how many percent the interception of launches lengthens an iteration of each model alone."""
    plain_s = pd.Series({name: trace.alone()[1] for name, trace in traces.items()})
    slowed_s = pd.Series({name: trace.with_host(each_s=rule.launch_s).alone()[1] for name, trace in traces.items()})
    return 100.0 * (slowed_s / plain_s - 1.0)
