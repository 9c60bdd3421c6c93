"""PowerFlow's home setting: elastic trainings on nodes of eight GPUs, and its curve of average JCT over energy.

Which trace, cluster and load PowerFlow ran is not in what was at hand: here the trace meets the published figures of
Helios Venus, and every job may run on 1, 2, 4 or 8 GPUs. Energy is that of GPUs while they run something: what a budget
of PowerFlow's is about. The account with idle GPUs stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from heshare.policies.plain import Exclusive
from heshare.policies.policy import Policy
from heshare.policies.power_flow import PowerFlow
from heshare.prediction.truth import DevicePredictor
from heshare.reporting.statistics import median_interval
from heshare.running import metrics
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world import jobs, training, venus
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WIDTHS = (1, 2, 4, 8)
FIFO, SJF, SRTF, POWER_FLOW = "FIFO", "SJF", "SRTF", "PowerFlow"
SLOWER = "SRTF, lower clocks"
COMPARATORS: Mapping[str, Callable[[], Policy]] = {
    FIFO: Exclusive,
    SJF: partial(Exclusive, order="shortest"),
    SRTF: partial(PowerFlow, clocks=1, elastic=False),
}
"""Comparators at the top clock, on the GPUs that jobs ask for."""


@dataclass(frozen=True, slots=True)
class Home:
    """A trace of elastic trainings.

    Attributes:
        jobs: jobs to draw; those of other durations, or for more than a node, are left out.
        gpus: GPUs of the cluster.
        load: time on GPUs that jobs ask for until the last arrives, over the cluster's; assumed.
        shortest_s: the shortest duration, s; assumed.
        longest_s: the longest duration, s; assumed, since a small cluster would wait for a single job of weeks.
        gpu: their type; assumed.
        record: whose trainings the jobs are (`gavel`, `miso`, `eaco`); assumed.
        start_s: time that a start, or another number of GPUs, takes, s; assumed.
    """

    jobs: int = 120
    gpus: int = 32
    load: float = 1.0
    shortest_s: float = 60.0
    longest_s: float = 86_400.0
    gpu: str = "V100"
    record: str = "gavel"
    start_s: float = 10.0

    def draw(self, rng: np.random.Generator) -> tuple[Task, ...]:
        """The tasks of one repetition."""
        trace = jobs.usable(venus.generate(self.jobs, rng=rng), most_gpus=WIDTHS[-1])
        kept = tuple(each for each in trace.jobs if self.shortest_s <= each.duration_s <= self.longest_s)
        trace = jobs.at_load(replace(trace, jobs=kept), self.gpus, self.load)
        pool = training.workloads(self.record)
        tasks = jobs.as_tasks(trace, rng=rng, time_alone_s=lambda workload: 1.0, training_pool=pool)
        # Jobs save themselves whenever they are stopped: no epoch is lost.
        return tuple(replace(task, epochs=None, widths=WIDTHS) for task in tasks)


def runs(
    home: Home, systems: Mapping[tuple[str, float], Callable[[], Policy]], *, seed: int, seeds: int
) -> pd.DataFrame:
    """Systems side by side on the same tasks.

    Args:
        home: the trace.
        systems: what makes each policy, by title and setting (a budget, a clock; 1 where there is none).
        seed: of all draws.
        seeds: how many repetitions.

    Returns:
        One row a repetition and system: title, setting, energy_j (GPUs while they run something), energy_cluster_j,
        JCTs, slowdown, starts (each change of GPUs is one), average active GPUs, and energy and JCT over those of FIFO
        in that repetition (`energy`, `jct`); provenance.
    """
    rows = []
    for repetition, child in enumerate(np.random.SeedSequence(seed).spawn(seeds)):
        tasks = home.draw(np.random.default_rng(child))
        cluster = Cluster((gpu(home.gpu),) * home.gpus)
        for (title, setting), make in systems.items():
            rng = np.random.default_rng(0)
            result = run(tasks, cluster, make(), predictor=DevicePredictor(), rng=rng, start_cost_s=home.start_s)
            rows.append({"repetition": repetition, "title": title, "setting": setting, **_row(result)})
    frame = pd.DataFrame(rows).assign(provenance="emulated")
    first = frame[frame["title"] == FIFO].set_index("repetition")
    for column, source in (("energy", "energy_j"), ("energy_cluster", "energy_cluster_j"), ("jct", "avg_jct_s")):
        frame[column] = frame[source] / frame["repetition"].map(first[source])
    return frame


def _row(result: Run) -> dict[str, float]:
    segments, k = result.record.segments, len(result.cluster)
    alone_s = np.array([training.alone_s(task) for task in result.tasks])
    return {
        "tasks": len(result.tasks),
        "energy_j": float(metrics.node_energy_j(segments, k, result.makespan_s, sleep_w=0.0).sum()),
        "energy_cluster_j": result.energy_cluster_j,
        **metrics.jct_summary(result.jct_s),
        "slowdown": float(np.median(metrics.slowdown(result.jct_s, alone_s))),
        "starts": len({(each.task, each.start_s) for each in result.record.intervals}),
        "active_gpus": metrics.average_active(segments, result.makespan_s),
    }


def systems(
    budgets: Sequence[float], ceilings: Sequence[float] = (), **changed: Any
) -> dict[tuple[str, float], Callable[[], Policy]]:
    """The comparators, SRTF at each lower clock (over the top one), and PowerFlow (changed) under each budget."""
    found: dict[tuple[str, float], Callable[[], Policy]] = {(title, 1.0): make for title, make in COMPARATORS.items()}
    for ceiling in ceilings:
        found[SLOWER, ceiling] = partial(PowerFlow, clocks=1, elastic=False, ceiling=ceiling)
    for budget in budgets:
        found[POWER_FLOW, budget] = partial(PowerFlow, budget=budget, **changed)
    return found


def at_equal_energy(frame: pd.DataFrame, rng: np.random.Generator, account: str = "energy_j") -> pd.DataFrame:
    """How many times faster PowerFlow is under the fastest budget that takes no more energy than a comparator did.

    Nothing is interpolated; a repetition without such a budget counts as 1, and is counted.

    Args:
        frame: as from `runs`.
        rng: of the bootstrap.
        account: the column of energy.

    Returns:
        One row a comparator and setting of it: account, title, setting, energy (over FIFO's, median), times, low, high,
        n, reached (repetitions with a budget within), provenance.
    """
    mine = frame[frame["title"] == POWER_FLOW]
    rows = []
    for (title, setting), part in frame[frame["title"] != POWER_FLOW].groupby(["title", "setting"], sort=False):
        found = [_times(mine[mine["repetition"] == each["repetition"]], each, account) for _, each in part.iterrows()]
        value = median_interval(np.nan_to_num(found, nan=1.0), rng)
        reached, energy = int(np.isfinite(found).sum()), part[account.removesuffix("_j")].median()
        rows.append((account, title, setting, energy, value.value, value.low, value.high, value.n, reached))
    columns = ["account", "title", "setting", "energy", "times", "low", "high", "n", "reached"]
    return pd.DataFrame(rows, columns=columns).assign(provenance="emulated")


def _times(mine: pd.DataFrame, theirs: pd.Series, account: str) -> float:
    within = mine[mine[account] <= theirs[account] * (1 + 1e-9)]
    return float(theirs["avg_jct_s"] / within["avg_jct_s"].min()) if len(within) else float("nan")
