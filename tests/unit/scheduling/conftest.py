"""A small world with a predictor whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from heshare.prediction.predictor import CoRuns
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


@dataclass
class Toy:
    """Alone, a workload takes batch_size / speed of the GPU / clock share, at any MPS % that covers its demand.

    A workload wants `demand` of the GPU; m that together want more than all of it slow down alike. Power is idle
    plus what is busy, times the clock share cubed.
    """

    speed: dict[str, float] = field(default_factory=lambda: {"T4": 1.0, "V100": 2.0, "A100": 4.0})
    demand: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    asked: list[tuple[tuple[Resident, ...], str, int | None]] = field(default_factory=list)

    def wants(self, workload: Workload, gpu: Gpu) -> float:
        return self.demand.get(workload.model, 1.0) / self.speed[gpu.name]

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
                full = one.workload.batch_size / self.speed[gpu.name]
                time_s[row, column] = full * self.wants(one.workload, gpu) / got * crowd / share
            power_w[row] = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * min(1.0, sum(gets)) * share**3
        return CoRuns(time_s, power_w)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def small() -> tuple[tuple[Task, ...], Cluster]:
    """Six tasks of three workloads on two types of GPU."""
    work = [("resnet50", 8, 100.0), ("vgg16", 4, 300.0), ("mobilenet", 4, 50.0)] * 2
    tasks = tuple(Task(i, Workload(model, size), count + i) for i, (model, size, count) in enumerate(work))
    return tasks, Cluster.parse("2xT4,1xA100")
