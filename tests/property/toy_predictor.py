"""A predictor whose answers can be worked out by hand, and small worlds for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from heshare.prediction.predictor import CoRuns
from heshare.scheduling.objectives import Instance
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


@dataclass
class Toy:
    """Alone, an iteration takes batch_size / speed of the GPU, at the top clock and any MPS % that covers its demand.

    A workload wants `demand / speed` of the GPU (all of it at most); workloads that together want more than all of it
    slow down alike. Power is idle plus what is busy of the rest, times the clock's share of the top clock cubed.
    """

    speed: dict[str, float] = field(default_factory=lambda: {"T4": 1.0, "V100": 2.0, "A100": 4.0})
    demand: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    asked: list[tuple[tuple[Resident, ...], str, int | None]] = field(default_factory=list)

    def wants(self, workload: Workload, gpu: Gpu) -> float:
        return min(1.0, self.demand.get(workload.model, 1.0) / self.speed[gpu.name])

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        return self.co_run([(Resident(workload, 100),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        time_s = np.full((len(sets), max(len(one) for one in sets)), np.nan)
        power_w = np.zeros(len(sets))
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            self.asked.append((residents, gpu.name, clock))
            self.calls += len(residents)
            share = (clock or gpu.max_mhz) / gpu.max_mhz
            gets = [min(self.wants(one.workload, gpu), one.mps_pct / 100) for one in residents]
            crowd = max(1.0, sum(gets))
            for column, (one, got) in enumerate(zip(residents, gets, strict=True)):
                full_s = one.workload.batch_size / self.speed[gpu.name]
                time_s[row, column] = full_s * self.wants(one.workload, gpu) / got * crowd / share
            power_w[row] = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * min(1.0, sum(gets)) * share**3
        return CoRuns(time_s, power_w)


DEMANDS = {"resnet50": 1.1, "vgg16": 1.9, "mobilenet": 0.3, "densenet121": 0.7, "bert_large": 2.6, "gpt2": 2.2}


def mixed_tasks(n: int, seed: int = 0) -> tuple[Task, ...]:
    """n tasks of the six workloads of `DEMANDS`, inference batch sizes 4 and 8, iterations from 10 to 1000."""
    rng = np.random.default_rng(seed)
    models = list(DEMANDS)
    return tuple(
        Task(i, Workload(models[rng.integers(6)], int(rng.choice([4, 8]))), float(np.round(10 ** rng.uniform(1, 3))))
        for i in range(n)
    )


def table(time_s: object, energy_j: object, cluster: str, fits: object = None) -> Instance:
    """An instance from hand-written tables, shape (n, k); what does not fit is infinite."""
    time, energy = np.array(time_s, dtype=float), np.array(energy_j, dtype=float)
    fit = np.ones(time.shape, dtype=bool) if fits is None else np.array(fits, dtype=bool)
    tasks = tuple(Task(i, Workload("resnet50", 8), 1.0) for i in range(len(time)))
    needs = np.array([memory_mib(task.workload) for task in tasks])
    gpus = Cluster.parse(cluster)
    return Instance(tasks, gpus, np.where(fit, time, np.inf), np.where(fit, energy, np.inf), fit, needs)
