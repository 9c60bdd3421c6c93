"""MISO in the setting of its paper: 100 training jobs that arrive at eight A100 of 40 GB, in MIG instances."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from heshare.lab.systems.miso.policy import PUBLISHED
from heshare.lab.systems.shared import training
from heshare.paper.harness import JCT, TITLE
from heshare.paper.studies.systems.exact_setting import ExactSetting
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.inputs.csv_table import read_table
from heshare.world.arrivals import arrivals_s
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s
from heshare.world.workload import Workload

MEMORY_MIB = 40_536.0
"""Memory of the 40 GB card, as the driver reports it, MiB; recalled."""
START_S = 10.0
"""Time to start a job, s; MISO subtracts it from a duration before it counts the steps."""
LARGEST = 3
"""Compute slices that MISO's largest job needs."""


@dataclass(frozen=True, slots=True)
class MisoSetting(ExactSetting):
    """Jobs of MISO's experiments: its fixed pairs of duration and workload, in shuffled order.

    Up to 100 jobs are drawn without replacement, beyond that all pairs are used in turn.

    Attributes:
        cards: number of A100.
        jobs: number of jobs.
        interval_s: mean time between two arrivals, half of it for the first third, s.
    """

    cards: int = 8
    jobs: int = 100
    interval_s: float = 60.0

    def __post_init__(self) -> None:
        require("jobs", self.jobs, self.jobs >= 1, "at least one job")

    @property
    def gpus(self) -> Cluster:
        """The GPUs."""
        return Cluster((replace(gpu("A100"), memory_mib=MEMORY_MIB),) * self.cards)

    def draw(self, *, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return the jobs by arrival. Iterations are the duration less `START_S`, over the step alone on an A100."""
        alone_s = helios_durations_s() - START_S
        workloads = _workloads()
        known = len(workloads)

        shuffled = rng.permutation(np.arange(self.jobs) % known) if self.jobs > known else None
        order = rng.choice(known, self.jobs, replace=False) if shuffled is None else shuffled
        times_s = arrivals_s(self.jobs, rng=rng, arrivals="front_loaded", interval_s=self.interval_s)

        tasks = []
        for index, job in enumerate(order.tolist()):
            iterations = float(alone_s[job]) / training.step(workloads[job]).step_s
            tasks.append(Task(index, workloads[job], iterations, float(times_s[index])))
        return tuple(tasks)


@cache
def _workloads() -> tuple[Workload, ...]:
    rows = read_table(files.data("training", "jobs.csv"), ("percentile", "model", "batch_size"))
    return tuple(Workload(row.text("model"), row.whole("batch_size", least=1), phase="training") for row in rows)


def static_partitions() -> dict[str, str]:
    """Return the static partitions of MISO's code that have an instance for its largest job, as policies by title."""
    names = ["/".join(map(str, partition)) for partition in PUBLISHED if LARGEST <= partition[0] < 7]
    return {f"Static {name}": f"miso:static(partition={name})" for name in names}


def best_static(runs: pd.DataFrame) -> str:
    """Return the title of the static partition of least average JCT over all repetitions: with hindsight, as in MISO.

    Only partitions of MISO's code count.
    """
    statics = runs[runs[TITLE].isin(static_partitions())]
    return str(statics.groupby(TITLE)[JCT].mean().idxmin())
