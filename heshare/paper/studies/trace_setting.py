"""Tasks that arrive one by one, in the bursts of a trace of Venus: a setting of the harness for all systems at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heshare.devices.device import Device
from heshare.devices.device_model import co_run
from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.lab.systems.shared import trace_jobs
from heshare.prediction.load import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """Inference tasks on one GPU each, sized by the recipe, that arrive in the bursts of a generated trace of Venus.

    Attributes:
        cluster: the GPUs, such as `4xT4,2xV100,2xA100`.
        load: rate of arrivals over the capacity of the cluster with one task a GPU at a time.
        tasks: number of tasks.
        batch_sizes: inference batch sizes of drawn tasks.
    """

    cluster: str = "4xT4,2xV100,2xA100"
    load: float = 0.6
    tasks: int = 24
    batch_sizes: tuple[int, ...] = (4, 8)

    @property
    def gpus(self) -> Cluster:
        """The GPUs."""
        return Cluster.parse(self.cluster)

    def labels(self) -> dict[str, object]:
        """Return the columns cluster, load and tasks."""
        return {"cluster": self.cluster, "load": self.load, "tasks": self.tasks}

    def draw(self, *, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return a task set whose arrivals are as in the trace, scaled to the load."""
        tasks = recipe(self.tasks, rng=rng, batch_sizes=self.batch_sizes)
        if self.tasks == 1:
            return tasks

        submits_s = np.array([job.submit_s for job in trace_jobs.generate_trace(self.tasks, rng=rng).jobs])
        after_s = submits_s - submits_s[0]
        times_s = after_s * (self.interval_s() * (self.tasks - 1) / max(after_s[-1], 1.0))
        return tuple(replace(task, arrival_s=float(time_s)) for task, time_s in zip(tasks, times_s, strict=True))

    def interval_s(self) -> float:
        """Return the mean time between arrivals, s, to the ms.

        A GPU's speed is relative to an A100, the mean over the models of Table IV.
        """
        workloads = [Workload(name, 8) for name in sorted(paper_models())]
        speeds = [
            np.mean([time_alone_s(each) / co_run(gpu, (Resident(each),)).tasks[0].time_s for each in workloads])
            for gpu in self.gpus.gpus
        ]
        return round(float(np.mean(helios_durations_s()) / (sum(speeds) * self.load)), 3)

    def make_predictor(self) -> Predictor:
        """Return the predictor of all policies."""
        return load_predictor()

    def make_devices(self, cluster: Cluster) -> Sequence[Device] | None:
        """Return None: the emulated GPUs as calibrated."""
        return None
