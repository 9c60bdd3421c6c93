"""EaCO's home setting: a trace on nodes of eight V100, beside the systems of Gavel that it is held against.

EaCO counts the energy of whole nodes. `host_w` is what its own measurements of jobs alone leave for a node apart from
its GPUs. What a node that sleeps draws is not in its text: assumed, and idle nodes of every system sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from heshare.devices.model import co_run
from heshare.devices.sharing.utilisation import busy_alone
from heshare.policies.eaco import Eaco
from heshare.policies.gavel import FifoPacked, Gandiva
from heshare.policies.policy import Policy
from heshare.prediction.truth import DevicePredictor
from heshare.reporting.statistics import Interval, change_pct
from heshare.running import metrics
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world import jobs, training, venus
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.training import measured_sets
from heshare.world.workload import Resident

NODE = 8
SLEEP_W = 50.0
"""Power of a whole node that sleeps, W; assumed."""
FIFO, PACKED, GANDIVA, EACO = "FIFO", "FIFO_packed", "Gandiva", "EaCO"
SYSTEMS: Mapping[str, Callable[[], Policy]] = {
    FIFO: lambda: FifoPacked(threshold=np.inf),
    PACKED: FifoPacked,
    GANDIVA: Gandiva,
    EACO: Eaco,
}
"""The systems of EaCO's evaluation, by title; a sum of speeds is never above infinity, so that FIFO never packs."""
ASLEEP, AWAKE, GPUS = "nodes, idle ones asleep", "nodes, none asleep", "GPUs alone"
ACCOUNTS = {ASLEEP: "energy_j", AWAKE: "energy_awake_j", GPUS: "energy_gpus_j"}
"""The accounts of energy, by title, and their columns."""


@dataclass(frozen=True, slots=True)
class Home:
    """A trace for clusters of nodes.

    Attributes:
        jobs: jobs to draw; those of other durations, or for more than a node, are left out.
        load: time on GPUs that they ask for until the last arrives, over that of the largest cluster; assumed.
        shortest_s: the shortest duration, s; assumed.
        longest_s: the longest duration, s; assumed, since a small cluster would wait for a single job of weeks.
        deadline: over the time alone, from the arrival; assumed.
        epochs: of each job; assumed.
        whole_nodes: whether every job has a whole node, as in EaCO's measurements, and not what the trace asks for.
    """

    jobs: int = 300
    load: float = 0.45
    shortest_s: float = 60.0
    longest_s: float = 86_400.0
    deadline: float = 1.5
    epochs: int = 20
    whole_nodes: bool = False

    def draw(self, nodes: int, rng: np.random.Generator) -> tuple[Task, ...]:
        """The tasks of one repetition, for clusters of at most so many nodes."""
        trace = jobs.usable(venus.generate(self.jobs, rng=rng), most_gpus=NODE)
        kept = [each for each in trace.jobs if self.shortest_s <= each.duration_s <= self.longest_s]
        if self.whole_nodes:
            kept = [replace(each, gpus=NODE) for each in kept]
        trace = jobs.at_load(replace(trace, jobs=tuple(kept)), nodes * NODE, self.load)
        pool = training.workloads("eaco")
        tasks = jobs.as_tasks(trace, rng=rng, time_alone_s=lambda workload: 1.0, training_pool=pool)
        return tuple(
            replace(task, epochs=self.epochs, deadline_s=task.arrival_s + self.deadline * training.alone_s(task))
            for task in tasks
        )


@cache
def v100() -> Gpu:
    """The GPU of EaCO's measurements."""
    return gpu(training.step(training.workloads("eaco")[0]).gpu)


@cache
def host_w() -> float:
    """Power of a node apart from its GPUs, W: the median over EaCO's measurements of one workload alone."""
    alone = [one for one in measured_sets() if len(one.workloads) == 1]
    return float(np.median([one.node_w - NODE * co_run(v100(), [Resident(one.workloads[0])]).power_w for one in alone]))


def nodes_j(result: Run, sleep_w: float | None = SLEEP_W) -> float:
    """Energy of all nodes until the makespan, J; with `sleep_w=None` none of them sleeps."""
    found = metrics.node_energy_j(
        result.record.segments,
        len(result.cluster),
        result.makespan_s,
        gpus_per_node=NODE,
        host_w=host_w(),
        sleep_w=sleep_w,
    )
    return float(found.sum())


def utilisation(result: Run) -> float:
    """Average GPU utilisation while GPUs run something, 0 to 1."""

    def busy(task: int, gpu: int, time_s: float) -> float:
        workload = result.tasks[task].workload
        return busy_alone(result.cluster.gpus[gpu], workload) * training.step(workload).step_s / time_s

    return metrics.gpu_utilisation(result.record.segments, busy)


def go(tasks: Iterable[Task], nodes: int, policy: Policy, rng: np.random.Generator) -> Run:
    """Run tasks on so many nodes; what the policy believes is what is true until it shares a GPU."""
    return run(list(tasks), Cluster((v100(),) * (NODE * nodes)), policy, predictor=DevicePredictor(), rng=rng)


def runs(
    home: Home, nodes: Iterable[int], systems: Mapping[str, Callable[[], Policy]], *, seed: int, seeds: int
) -> pd.DataFrame:
    """Systems side by side on the same tasks, on clusters of several sizes.

    Args:
        home: the trace.
        nodes: how many nodes; the largest number sets the load.
        systems: what makes each policy, by title.
        seed: of all draws.
        seeds: how many repetitions.

    Returns:
        One row a repetition, cluster and system: see `_row`.
    """
    sizes = list(nodes)
    rows = []
    for repetition, child in enumerate(np.random.SeedSequence(seed).spawn(seeds)):
        drawn, run_seed = child.spawn(2)
        tasks = home.draw(max(sizes), np.random.default_rng(drawn))
        for size in sizes:
            for title, make in systems.items():
                result = go(tasks, size, make(), np.random.default_rng(run_seed))
                rows.append({"repetition": repetition, "nodes": size, "title": title, **_row(result)})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _row(result: Run) -> dict[str, float]:
    alone = np.array([training.alone_s(task) for task in result.tasks])
    segments = result.record.segments
    active = metrics.average_active(segments, result.makespan_s, gpus_per_node=NODE)
    return {
        "tasks": len(result.tasks),
        "energy_j": nodes_j(result),
        "energy_awake_j": nodes_j(result, None),
        "energy_gpus_j": result.energy_cluster_j,
        "node_hours": active * result.makespan_s / 3600,
        "runtime_pct": 100 * (float(np.mean(result.execution_s / alone)) - 1),
        "worst_runtime_pct": 100 * (float(np.max(result.execution_s / alone)) - 1),
        **metrics.jct_summary(result.jct_s),
        "slowdown": float(np.mean(metrics.slowdown(result.jct_s, alone))),
        "deadlines_met": metrics.deadlines_met(result.completion_s, result.tasks),
        "utilisation_pct": 100 * utilisation(result),
    }


def changes(frame: pd.DataFrame, ours: str, rng: np.random.Generator) -> pd.DataFrame:
    """`ours` against every other system on each cluster, in every account of energy, in node hours and average JCT.

    Args:
        frame: as from `runs`.
        ours: a title.
        rng: of the bootstrap.

    Returns:
        One row a cluster, other system and metric: nodes, ours, theirs, metric, change_pct, low, high, n, provenance.
    """
    named = {**ACCOUNTS, "hours of active nodes": "node_hours", "average JCT": "avg_jct_s"}
    rows = []
    for nodes, part in frame.groupby("nodes", sort=False):
        for theirs in (title for title in part["title"].unique() if title != ours):
            for metric, column in named.items():
                found = change(part, ours, theirs, column, rng)
                rows.append((nodes, ours, theirs, metric, found.value, found.low, found.high, found.n, "emulated"))
    return pd.DataFrame(
        rows, columns=["nodes", "ours", "theirs", "metric", "change_pct", "low", "high", "n", "provenance"]
    )


def change(part: pd.DataFrame, ours: str, theirs: str, column: str, rng: np.random.Generator) -> Interval:
    """The change of one column, paired by repetition, %."""
    wide = part.pivot_table(index="repetition", columns="title", values=column)
    return change_pct(wide[ours], wide[theirs], rng)


def medians(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Medians over repetitions of every number, by the columns `by`."""
    numbers = [name for name in frame.columns if name not in (*by, "repetition", "provenance")]
    return frame.groupby(by, sort=False)[numbers].median().reset_index().assign(provenance="emulated")
