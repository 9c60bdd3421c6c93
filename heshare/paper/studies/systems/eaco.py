"""EaCO in the settings of its paper: its measured sets of trainings on a node, and a trace on nodes of eight V100.

EaCO counts the energy of whole nodes. `host_w` is a node's measured power less that of its GPUs. Assumed: the power of
a sleeping node (idle nodes sleep in every system), load, deadlines and epochs; the trace meets the figures of Venus.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pandas as pd

from heshare.devices.device_model import co_run
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.cluster_nodes import node_energy_j
from heshare.lab.systems.shared.trace_jobs import venus_trainings
from heshare.lab.systems.shared.training import NODE_GPUS, MeasuredSet, measured_alone, measured_sets
from heshare.lab.systems.shared.training_step import busy_alone
from heshare.paper.studies.systems.exact_setting import ExactSetting
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident

SET_EPOCHS, TRACE_EPOCHS = 90, 20
"""Epochs of a training in EaCO's measured sets, and of one of the trace; the second is assumed."""
SPREAD = 0.25
"""By which share the numbers of epochs in a set differ at most from `SET_EPOCHS`; assumed."""
EQUAL = -1
"""The repetition of `set_runs` in which all trainings of a set have `SET_EPOCHS` epochs."""
SLEEP_W = 50.0
"""Power of a whole node that sleeps, W; assumed."""
NODES = "energy_nodes_j"
"""The energy of all nodes, hosts included, until the makespan; idle nodes sleep."""


@dataclass(frozen=True, slots=True)
class EacoSetting(ExactSetting):
    """A trace of trainings on nodes of eight V100.

    Attributes:
        nodes: number of nodes.
        jobs: jobs to draw; those of other durations, or for more than a node, are excluded.
        load: the offered load of the nodes; assumed.
        deadline: the deadline of each job from its arrival, over its time alone; assumed.
    """

    nodes: int = 7
    jobs: int = 400
    load: float = 0.45
    deadline: float = 1.5

    @property
    def gpus(self) -> Cluster:
        """The GPUs of all nodes."""
        return Cluster((v100(),) * (NODE_GPUS * self.nodes))

    def draw(self, *, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return the jobs of one repetition."""
        tasks = venus_trainings(self.jobs, rng=rng, gpus=self.nodes * NODE_GPUS, load=self.load, record="eaco")
        return tuple(
            replace(task, epochs=TRACE_EPOCHS, deadline_s=task.arrival_s + self.deadline * training.alone_s(task))
            for task in tasks
        )


@cache
def v100() -> Gpu:
    """Return the GPU of EaCO's measurements."""
    return gpu(training.step(training.workloads("eaco")[0]).gpu)


@cache
def host_w() -> float:
    """Return the power of a node apart from its GPUs, W: the median over EaCO's measurements of one training alone."""
    gpus_w = [NODE_GPUS * co_run(v100(), [Resident(workload)]).power_w for workload in measured_alone()]
    nodes_w = [entry.node_w for entry in measured_alone().values()]
    return float(np.median(np.subtract(nodes_w, gpus_w)))


def nodes_energy_j(result: Run, sleep_w: float | None = SLEEP_W) -> float:
    """Return the energy of all nodes until the makespan, J; with `sleep_w=None` none of them sleeps."""
    segments = result.record.segments
    by_node_j = node_energy_j(
        segments, len(result.cluster), result.makespan_s, gpus_per_node=NODE_GPUS, host_w=host_w(), sleep_w=sleep_w
    )
    return float(by_node_j.sum())


def runtime_pct(result: Run) -> float:
    """Return by how many percent trainings take longer on their GPUs than alone: the mean over trainings."""
    alone_s = np.array([training.alone_s(task) for task in result.tasks])
    return 100.0 * (float(np.mean(result.execution_s / alone_s)) - 1.0)


def utilisation_pct(result: Run) -> float:
    """Return the average GPU utilisation while GPUs run something, %, at most 100 at every moment.

    This is the driver's measure, the share of time in which some kernel runs, not the share of occupied SMs.
    """
    used_s = 0.0
    active_s = 0.0

    for at, start_s, end_s, _, _, _, residents in result.record.segments:
        if not residents:
            continue
        card = result.cluster.gpus[at]
        busy = 0.0
        for task, _, time_s in residents:
            workload = result.tasks[task].workload
            busy += busy_alone(card, workload) * training.step(workload).step_s / time_s
        used_s += min(1.0, busy) * (end_s - start_s)
        active_s += end_s - start_s
    return 100.0 * used_s / active_s


def busiest_alone_pct() -> float:
    """Return the highest GPU utilisation of a training of EaCO's sets alone, %."""
    return 100.0 * max(training.step(workload).busy for workload in measured_alone())


MEASURES = {NODES: nodes_energy_j, "energy_awake_j": partial(nodes_energy_j, sleep_w=None), "runtime_pct": runtime_pct}
"""Measures of a run on the trace, for `harness.run`."""


def set_runs(systems: Mapping[str, str], *, seed: int, seeds: int) -> pd.DataFrame:
    """Run each of EaCO's measured sets of trainings on one node, `seeds` times with other numbers of epochs.

    Args:
        systems: policies by title.
        seed: of all repetitions.
        seeds: number of repetitions with drawn numbers of epochs; `EQUAL` is one more, without a draw.

    Returns:
        One row a repetition, set and system: repetition, set, title, `NODES`, utilisation_pct, and published_pct,
        EaCO's measured change of energy by running the set together.
    """

    def one_repetition(lengths: FloatArray) -> Iterator[dict[str, object]]:
        for entry in measured_sets():
            tasks = _tasks(entry, lengths)
            for title, policy in systems.items():
                result = _on_one_node(tasks, policy)
                measures = {NODES: nodes_energy_j(result), "utilisation_pct": utilisation_pct(result)}
                yield {"set": set_name(entry), "title": title, **measures, "published_pct": _published_pct(entry)}

    def drawn(repetition: Repetition) -> Iterator[dict[str, object]]:
        return one_repetition(1 + repetition.rng().uniform(-SPREAD, SPREAD, 4))

    equal = pd.DataFrame(one_repetition(np.ones(4)))
    equal.insert(0, "repetition", EQUAL)
    return pd.concat([equal, repeat(drawn, seed=seed, seeds=seeds)], ignore_index=True).assign(provenance="emulated")


def set_name(entry: MeasuredSet) -> str:
    """Return the networks of a set, such as `alexnet+resnet50`."""
    return "+".join(workload.model.removeprefix("eaco_") for workload in entry.workloads)


def _tasks(entry: MeasuredSet, lengths: FloatArray) -> list[Task]:
    tasks = []
    for number, (workload, length) in enumerate(zip(entry.workloads, lengths.tolist(), strict=False)):
        steps = training.step(workload).epoch_samples / (workload.batch_size * NODE_GPUS)
        tasks.append(Task(number, workload, SET_EPOCHS * length * steps, gpus=NODE_GPUS, epochs=SET_EPOCHS))
    return tasks


def _on_one_node(tasks: list[Task], policy: str) -> Run:
    node = Cluster((v100(),) * NODE_GPUS)
    return run(tasks, node, make(policy), predictor=DevicePredictor(), rng=np.random.default_rng(0))


def _published_pct(entry: MeasuredSet) -> float:
    alone_kwh = sum(measured_alone()[workload].energy_kwh for workload in entry.workloads)
    return 100.0 * (entry.energy_kwh / alone_kwh - 1.0)
