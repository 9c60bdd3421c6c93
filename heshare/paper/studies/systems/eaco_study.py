"""The study of EaCO in the setting of its own paper: a trace on nodes of eight V100, beside the systems of Gavel.

EaCO counts the energy of whole nodes. `host_w` is the part of a node's measured power that its GPUs do not explain. The
power of a node that sleeps is not in the publication: it is assumed, and idle nodes of every system sleep.

`run_systems` runs the systems, `changes` compares them, and `sensitivity` changes one thing at a time. The measured
sets of trainings are in `heshare.paper.studies.systems.eaco_sets`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.device_model import co_run
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import change_pct, median_interval
from heshare.lab.sweeps.study_runs import paired_change, repeat
from heshare.lab.systems.eaco.policy import Eaco
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.cluster_nodes import average_active, node_energy_j
from heshare.lab.systems.shared.trace_jobs import venus_trainings
from heshare.lab.systems.shared.training import measured_alone
from heshare.lab.systems.shared.training_step import busy_alone
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures.rows import interval_rows, value_line
from heshare.paper.figures.series_styles import EDGE, series_style
from heshare.paper.texts import render
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run, jct_summary
from heshare.running.run import run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident

NODE = training.NODE_GPUS
"""GPUs of a node, as in EaCO's measurements."""
EPOCHS = 20
"""Epochs of each job of the trace; assumed."""
SLEEP_W = 50.0
"""Power of a whole node that sleeps, W; assumed."""
FIFO, PACKED, GANDIVA, EACO = "FIFO", "FIFO_packed", "Gandiva", "EaCO"
SYSTEMS: Mapping[str, Callable[[], Policy]] = {
    FIFO: lambda: registry.policies()["fifo-packed"].make(threshold=np.inf),
    PACKED: lambda: registry.make("fifo-packed"),
    GANDIVA: lambda: registry.make("gandiva"),
    EACO: Eaco,
}
"""The systems of EaCO's evaluation, by title; no sum of speeds is above infinity, so FIFO never packs."""
PAPER_ENERGY_PCT, PAPER_RUNTIME_PCT = (paper_claims()["E2", part].value for part in ("energy", "runtime"))
"""The most energy that EaCO's paper saves on traces, and the most that it adds to run time, %."""
ASLEEP, AWAKE, GPUS = "nodes, idle ones asleep", "nodes, none asleep", "GPUs alone"
ACCOUNTS = {ASLEEP: "energy_j", AWAKE: "energy_awake_j", GPUS: "energy_gpus_j"}
"""The accounts of energy, by title, and their columns."""
VARIANTS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unchanged": ({}, {}),
    "no deadlines": ({"deadline": np.inf}, {}),
    "deadline 1.1 x alone": ({"deadline": 1.1}, {}),
    "at most 2 jobs a GPU": ({}, {"jobs_max": 2}),
    "jobs of whole nodes": ({"whole_nodes": True}, {}),
    "load 0.9": ({"load": 0.9}, {}),
    "load 1.5": ({"load": 1.5}, {}),
}
"""The change of the trace and the change of EaCO in each variant of `sensitivity`, by title."""


@dataclass(frozen=True, slots=True)
class StudySetting:
    """A trace for clusters of nodes.

    Attributes:
        jobs: jobs to draw; those of other durations, or for more than a node, are left out.
        load: the offered load of the largest cluster; assumed.
        deadline: over the time alone, from the arrival; assumed.
        whole_nodes: whether every job has a whole node, as in EaCO's measurements, and not the GPUs of the trace.
    """

    jobs: int = 300
    load: float = 0.45
    deadline: float = 1.5
    whole_nodes: bool = False

    def draw_tasks(self, nodes: int, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return the tasks of one repetition, for clusters of at most `nodes` nodes."""
        width = NODE if self.whole_nodes else None
        tasks = venus_trainings(self.jobs, rng=rng, gpus=nodes * NODE, load=self.load, record="eaco", gpus_a_job=width)
        return tuple(
            replace(task, epochs=EPOCHS, deadline_s=task.arrival_s + self.deadline * training.alone_s(task))
            for task in tasks
        )


@cache
def v100() -> Gpu:
    return gpu(training.step(training.workloads("eaco")[0]).gpu)


@cache
def host_w() -> float:
    """Return the power of a node apart from its GPUs, W: the median over EaCO's measurements of one workload alone."""
    gpus_w = [NODE * co_run(v100(), [Resident(workload)]).power_w for workload in measured_alone()]
    nodes_w = [entry.node_w for entry in measured_alone().values()]
    return float(np.median(np.subtract(nodes_w, gpus_w)))


def nodes_energy_j(result: Run, sleep_w: float | None = SLEEP_W) -> float:
    """Return the energy of all nodes until the makespan, J; with `sleep_w=None` none of them sleeps."""
    segments, gpus = result.record.segments, len(result.cluster)
    return float(
        node_energy_j(segments, gpus, result.makespan_s, gpus_per_node=NODE, host_w=host_w(), sleep_w=sleep_w).sum()
    )


def utilisation(result: Run) -> float:
    """Return the average GPU utilisation while GPUs run something, weighted by time and at most 1 at every moment.

    This is the driver's measure, the share of time in which some kernel runs, not the share of occupied SMs.
    """
    used_s = active_s = 0.0
    for at, start_s, end_s, _, _, _, residents in result.record.segments:
        if residents:
            workloads = [(result.tasks[task].workload, time_s) for task, _, time_s in residents]
            card = result.cluster.gpus[at]
            busy = sum(busy_alone(card, work) * training.step(work).step_s / time_s for work, time_s in workloads)
            used_s += min(1.0, busy) * (end_s - start_s)
            active_s += end_s - start_s
    return used_s / active_s


def run_on_nodes(tasks: Iterable[Task], nodes: int, policy: Policy, rng: np.random.Generator) -> Run:
    """Run tasks on nodes of V100 with an exact predictor; EaCO itself predicts sets by its history."""
    return run(list(tasks), Cluster((v100(),) * (NODE * nodes)), policy, predictor=DevicePredictor(), rng=rng)


def run_systems(
    setting: StudySetting,
    nodes: Iterable[int],
    systems: Mapping[str, Callable[[], Policy]],
    *,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Run the systems on the same tasks, on clusters of several sizes."""
    sizes = list(nodes)

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        tasks = setting.draw_tasks(max(sizes), repetition.rng(0))
        for size, (title, make) in product(sizes, systems.items()):
            result = run_on_nodes(tasks, size, make(), repetition.rng(1))
            yield {"nodes": size, "title": title, **_measures(result)}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def _measures(result: Run) -> dict[str, float]:
    alone_s = np.array([training.alone_s(task) for task in result.tasks])
    active_nodes = average_active(result.record.segments, result.makespan_s, gpus_per_node=NODE)
    stretch = result.execution_s / alone_s
    # Completion times are rounded sums of intervals: they may pass a deadline that is met exactly.
    deadline_s = np.array([task.deadline_s for task in result.tasks]) * (1 + 1e-9)
    limited = np.isfinite(deadline_s)
    return {
        "tasks": len(result.tasks),
        "energy_j": nodes_energy_j(result),
        "energy_awake_j": nodes_energy_j(result, None),
        "energy_gpus_j": result.energy_cluster_j,
        "node_hours": active_nodes * result.makespan_s / 3600,
        "runtime_pct": 100 * (float(np.mean(stretch)) - 1),
        "worst_runtime_pct": 100 * (float(np.max(stretch)) - 1),
        **jct_summary(result.jct_s),
        "slowdown": float(np.mean(result.jct_s / alone_s)),
        "deadlines_met": float(np.mean((result.completion_s <= deadline_s)[limited])) if limited.any() else np.nan,
        "utilisation_pct": 100 * utilisation(result),
    }


def changes(frame: pd.DataFrame, ours: str) -> pd.DataFrame:
    """Return the change of `ours` against every other system in each account of energy, node hours and average JCT."""
    columns = {**ACCOUNTS, "hours of active nodes": "node_hours", "average JCT": "avg_jct_s"}
    rows = []
    for nodes, part in frame.groupby("nodes", sort=False):
        for theirs in (title for title in part["title"].unique() if title != ours):
            for metric, column in columns.items():
                change = paired_change(part, ours, theirs, column).columns("change_pct")
                rows.append({"nodes": nodes, "ours": ours, "theirs": theirs, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


def sensitivity(setting: StudySetting, nodes: int, *, seed: int, seeds: int) -> pd.DataFrame:
    """Compare EaCO with FIFO on one cluster with one thing changed at a time (`VARIANTS`)."""
    rows = []
    for title, (trace, eaco) in VARIANTS.items():
        systems: dict[str, Callable[[], Policy]] = {FIFO: SYSTEMS[FIFO], EACO: partial(Eaco, **eaco)}
        frame = run_systems(replace(setting, **trace), [nodes], systems, seed=seed, seeds=seeds)
        ours, theirs = (frame[frame["title"] == system].set_index("repetition") for system in (EACO, FIFO))
        energy = paired_change(frame, EACO, FIFO, "energy_j")
        runtime = median_interval(ours["runtime_pct"])
        row = {
            "variant": title,
            **energy.columns("energy_pct"),
            "alone_pct": change_pct(ours["energy_j"], theirs["energy_awake_j"]).value,
            "awake_pct": paired_change(frame, EACO, FIFO, "energy_awake_j").value,
            "hours_pct": paired_change(frame, EACO, FIFO, "node_hours").value,
            **runtime.columns("runtime_pct", "runtime_low", "runtime_high"),
        }
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.assign(n=table.pop("n"), provenance="emulated")


def evaluate_total_energy(changes: pd.DataFrame, variants: pd.DataFrame) -> dict[str, Any]:
    nodes = changes["nodes"].max()
    note = render(
        "14_eaco",
        "total_energy",
        nodes=nodes,
        sizes=changes[changes["nodes"] == nodes].set_index(["theirs", "metric"])["change_pct"],
        least=variants.sort_values("energy_pct").iloc[0],
        alone=variants["alone_pct"],
        awake=variants["awake_pct"].iloc[0],
    )
    return claim_of_row(changes, "E2", "energy", nodes=nodes) | {"note": note}


def evaluate_runtime(frame: pd.DataFrame, variants: pd.DataFrame) -> dict[str, Any]:
    nodes = frame["nodes"].max()
    ours = frame[(frame["nodes"] == nodes) & (frame["title"] == EACO)]
    note = render("14_eaco", "runtime", pairs=variants.set_index("variant").loc["at most 2 jobs a GPU"])
    return median_interval(ours["runtime_pct"]).claim_arguments(note, at={"nodes": nodes})


def why_panels(axes: Sequence[Axes], variants: pd.DataFrame) -> None:
    shown = (
        (("energy_pct", "low", "high"), "Energy of nodes against FIFO (%)", PAPER_ENERGY_PCT),
        (("runtime_pct", "runtime_low", "runtime_high"), "Run time over that alone (%)", PAPER_RUNTIME_PCT),
    )
    # EaCO's own marker is a triangle, which looks like an arrow on a horizontal interval.
    how = replace(series_style(EACO), marker="o")
    for ax, ((value, low, high), label, paper) in zip(axes, shown, strict=True):
        ends = {"value": value, "low": low, "high": high}
        interval_rows(ax, variants, row="variant", **ends, style=lambda _: how, names=ax is axes[0])
        ax.axvline(0, color=EDGE, linewidth=0.6)
        value_line(ax, paper, f"the paper: {paper:+g} %")
        ax.set_xlabel(label)
