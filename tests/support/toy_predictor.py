"""A predictor whose results can be computed by hand, and small problem instances for it."""

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
    """Predictor: alone an iteration takes batch_size / speed of the GPU, at the top clock and enough MPS percentage.

    A workload needs the share `demand / speed` of the GPU, at most 1. If all shares add up to more than 1, all tasks
    slow down by the sum. Power is idle power plus the used share of the rest, times the cube of the relative clock.
    """

    speed: dict[str, float] = field(default_factory=lambda: {"T4": 1.0, "V100": 2.0, "A100": 4.0})
    demand: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    requests: list[tuple[tuple[Resident, ...], str, int | None]] = field(default_factory=list)

    def share(self, workload: Workload, gpu: Gpu) -> float:
        return min(1.0, self.demand.get(workload.model, 1.0) / self.speed[gpu.name])

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        return self.co_run([(Resident(workload, 100),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        time_s = np.full((len(sets), max(len(residents) for residents in sets)), np.nan)
        power_w = np.zeros(len(sets))
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            self.requests.append((residents, gpu.name, clock))
            self.calls += len(residents)
            relative_clock = (clock or gpu.max_mhz) / gpu.max_mhz
            shares = [min(self.share(task.workload, gpu), task.mps_pct / 100) for task in residents]
            slowdown = max(1.0, sum(shares))
            for column, (task, share) in enumerate(zip(residents, shares, strict=True)):
                alone_s = task.workload.batch_size / self.speed[gpu.name]
                time_s[row, column] = alone_s * self.share(task.workload, gpu) / share * slowdown / relative_clock
            power_w[row] = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * min(1.0, sum(shares)) * relative_clock**3
        return CoRuns(time_s, power_w)


DEMANDS = {"resnet50": 1.1, "vgg16": 1.9, "mobilenet": 0.3, "densenet121": 0.7, "bert_large": 2.6, "gpt2": 2.2}


def mixed_tasks(n: int, seed: int = 0) -> tuple[Task, ...]:
    """Return n tasks of the six workloads of `DEMANDS`, inference batch sizes 4 and 8, 10 to 1000 iterations."""
    rng = np.random.default_rng(seed)
    models = list(DEMANDS)
    return tuple(
        Task(i, Workload(models[rng.integers(6)], int(rng.choice([4, 8]))), float(np.round(10 ** rng.uniform(1, 3))))
        for i in range(n)
    )


def instance_from_tables(time_s: object, energy_j: object, cluster: str, fits: object = None) -> Instance:
    """Return an instance of given times and energies, shape (n, k); infinite where the task does not fit."""
    times, energies = np.array(time_s, dtype=float), np.array(energy_j, dtype=float)
    mask = np.ones(times.shape, dtype=bool) if fits is None else np.array(fits, dtype=bool)
    tasks = tuple(Task(i, Workload("resnet50", 8), 1.0) for i in range(len(times)))
    needs_mib = np.array([memory_mib(task.workload) for task in tasks])
    gpus = Cluster.parse(cluster)
    return Instance(tasks, gpus, np.where(mask, times, np.inf), np.where(mask, energies, np.inf), mask, needs_mib)
