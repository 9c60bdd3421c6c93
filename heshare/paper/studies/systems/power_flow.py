"""PowerFlow in the setting of its paper: elastic trainings on one type of GPU, and its gains at equal energy.

The trace, cluster and load of PowerFlow's evaluation are not public. This trace meets the published figures of
Helios Venus, and every job may run on 1, 2, 4 or 8 V100. Energy is that of GPUs while they run something, which is what
PowerFlow's budget limits.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.systems.shared.cluster_nodes import node_energy_j
from heshare.lab.systems.shared.trace_jobs import venus_trainings
from heshare.paper.harness import JCT, REPETITION, TITLE
from heshare.paper.studies.systems.exact_setting import ExactSetting
from heshare.running.result import Run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WIDTHS = (1, 2, 4, 8)
"""Numbers of GPUs that a job may run on."""
START_S = 10.0
"""Time that a start, or a change of GPUs, takes, s; assumed."""
RUNNING = "energy_running_j"
"""The energy of GPUs while they run something."""


@dataclass(frozen=True, slots=True)
class PowerFlowSetting(ExactSetting):
    """A trace of elastic trainings.

    Attributes:
        cards: number of V100.
        jobs: jobs to draw; those of other durations, or for more than a node, are excluded.
        load: the offered load; assumed.
    """

    cards: int = 32
    jobs: int = 100
    load: float = 1.0

    @property
    def gpus(self) -> Cluster:
        """The GPUs."""
        return Cluster((gpu("V100"),) * self.cards)

    def draw(self, *, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return the jobs of one repetition. Without epochs, a job that is stopped loses no work."""
        tasks = venus_trainings(self.jobs, rng=rng, gpus=self.cards, load=self.load, record="gavel")
        return tuple(replace(task, epochs=None, widths=WIDTHS) for task in tasks)


def running_energy_j(result: Run) -> float:
    """Return the energy of GPUs while they run something, J."""
    return float(node_energy_j(result.record.segments, len(result.cluster), result.makespan_s, sleep_w=0.0).sum())


MEASURES = {RUNNING: running_energy_j}
"""Measures of a run, for `harness.run`."""


def gain_at_equal_energy(runs: pd.DataFrame, theirs: str, account: str = RUNNING) -> ConfidenceInterval:
    """Return how many times lower PowerFlow's average JCT is at no more energy than another system takes.

    Of each repetition the budget of least average JCT counts whose energy is within the other's; nothing is
    interpolated. A repetition without such a budget has the value 1.

    Args:
        runs: rows of `harness.run`; titles of PowerFlow's budgets begin with its name.
        theirs: title of the other system.
        account: the column of the energy.
    """
    budgets = runs[runs[TITLE].str.startswith("PowerFlow")]
    other = runs[runs[TITLE] == theirs].set_index(REPETITION)

    # Energies are sums of segments in different orders: equal ones may differ in the last digits.
    limit_j = budgets[REPETITION].map(other[account]) * (1 + 1e-9)
    best_s = budgets[budgets[account] <= limit_j].groupby(REPETITION)[JCT].min()
    return median_interval((other[JCT] / best_s.reindex(other.index)).fillna(1.0))
