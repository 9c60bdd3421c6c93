"""Random streams of a repetition: those of its task set and of its policies, equal for the API, commands and sweeps.

Repetition i of seed s is child i of `SeedSequence(s)`. Its child `TASKS` draws the task set, its child `POLICY` is the
policy's.
"""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from heshare.devices.task_sizes import draw, draw_for
from heshare.shared.inputs.bounds import check_whole
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import TaskOptions

TASKS, POLICY = 0, 1
"""Streams of a repetition."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One repetition of a study, counted from 0, and its random streams; `seed` is that of the whole study.

    Raises:
        InputError: one of them is not a whole number of at least zero.
    """

    number: int
    seed: int

    def __post_init__(self) -> None:
        check_whole("repetition", self.number, least=0)
        check_whole("seed", self.seed, least=0)

    def sequence(self, *stream: int) -> np.random.SeedSequence:
        """Return the seed of a stream: child `number` of the study's seed, or a child of that.

        Every call creates a new object. A `SeedSequence` counts the children spawned from it, so a shared one would
        give the second system of a repetition other random numbers than the first.
        """
        return np.random.SeedSequence(self.seed, spawn_key=(self.number, *stream))

    def rng(self, *stream: int) -> np.random.Generator:
        """Return a new generator of a stream; equal streams give equal numbers."""
        return np.random.default_rng(self.sequence(*stream))

    def task_set(
        self,
        n: int = 60,
        *,
        cluster: Cluster | None = None,
        **options: Unpack[TaskOptions],
    ) -> tuple[Task, ...]:
        """Return the repetition's task set; arguments as `heshare.devices.task_sizes.draw`.

        `cluster` is that of arrivals with a load, such as `exponential@0.8`.

        Raises:
            InputError: an argument is out of its range, or the trace is bad.
        """
        return draw_for(draw, n, cluster, rng=self.rng(TASKS), **options)
