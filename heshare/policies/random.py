"""Random: each task on a GPU drawn by lot (Section V, the first baseline)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heshare.policies.placement import RandomPlacement
from heshare.policies.policy import Traits
from heshare.policies.registry import register
from heshare.policies.release import ReleasesPlan
from heshare.prediction.predictor import Predictor
from heshare.scheduling.plan import Batch
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


@register("random", title="Random")
class Random(ReleasesPlan):
    """A GPU drawn uniformly among those whose memory holds the task, once, when the task arrives.

    A GPU runs its tasks in order of arrival, in batches of as many as its memory and the MPS clients allow, each at
    100 % and at the clock that the card chooses.
    """

    name = "random"
    traits = Traits(frequency=False, multi_task=True, heterogeneous=False)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every draw."""
        super().reset(cluster, predictor, rng)
        self._placement = RandomPlacement()
        self._placement.reset(cluster, predictor, rng)

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Draw for the newcomers, leave the others where they are, and form batches."""
        drawn = self._placement.place(tasks)
        queues: list[list[Task]] = [[] for _ in self.cluster.gpus]
        for task in tasks:
            queues[drawn[task.id]].append(task)
        return [memory_batches(queue, gpu) for queue, gpu in zip(queues, self.cluster.gpus, strict=True)]


def memory_batches(tasks: Sequence[Task], gpu: Gpu) -> list[Batch]:
    """Batches of consecutive tasks, each as long as memory and MPS clients allow, at 100 % and the card's clock."""
    groups: list[list[int]] = []
    free_mib = 0.0
    for task in tasks:
        need_mib = memory_mib(task.workload)
        if not groups or need_mib > free_mib or len(groups[-1]) >= gpu.mps_clients:
            groups.append([])
            free_mib = gpu.memory_mib
        groups[-1].append(task.id)
        free_mib -= need_mib
    return [Batch(tuple(group), (100,) * len(group)) for group in groups]
