"""Random: each task on a GPU drawn uniformly from those that it fits (Section IV, baseline 1)."""

from collections.abc import Sequence

import numpy as np

from heshare.policies.plan_release import PlanReleasePolicy
from heshare.policies.policy import ReusedPlanning, Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import fit_mask
from heshare.scheduling.plan import Batch
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


def draw_gpus(tasks: Sequence[Task], cluster: Cluster, rng: np.random.Generator) -> dict[int, int]:
    """Return a GPU's index for each task id, drawn uniformly from those that the task fits, in the order of the tasks.

    Raises:
        InputError: a task fits no GPU.
    """
    if not tasks:
        return {}
    fits = fit_mask(tasks, cluster)
    fitting, drawn = np.argsort(~fits, axis=1, kind="stable"), rng.integers(fits.sum(axis=1))
    return dict(zip([task.id for task in tasks], fitting[np.arange(len(tasks)), drawn].tolist(), strict=True))


class RandomPlacement:
    """Placement that draws each task's GPU once, in order of arrival."""

    heterogeneous = False
    reused = ReusedPlanning()

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard the GPUs drawn so far."""
        self._cluster, self._rng = cluster, rng
        self._drawn: dict[int, int] = {}

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Return the GPU's index by task id; draw GPUs for the new tasks only.

        Raises:
            InputError: a task fits no GPU.
        """
        new = [task for task in tasks if task.id not in self._drawn]
        self._drawn.update(draw_gpus(new, self._cluster, self._rng))
        return {task.id: self._drawn[task.id] for task in tasks}


@register("random", title="Random", parameters={})
@register("random:all-at-once", title="Random, all at once", parameters={}, preset={"all_at_once": True})
class Random(PlanReleasePolicy):
    """Random: a GPU drawn uniformly from those that the task fits, once, when the task arrives.

    Each GPU has a queue of its tasks in order of arrival (Section III, "independent sub-task queue") and runs one at a
    time, at 100 % and the default clock.

    Args:
        all_at_once: run as many of a GPU's tasks together as memory and the MPS clients allow, at 100 % each.
    """

    name = "random"

    def __init__(self, all_at_once: bool = False) -> None:
        self.traits = Traits(frequency=False, multi_task=all_at_once, heterogeneous=False)
        self._all_at_once = all_at_once

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard the GPUs drawn so far."""
        super().reset(cluster, predictor, rng)
        self._placement = RandomPlacement()
        self._placement.reset(cluster, predictor, rng)

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of each GPU; draw GPUs for the new tasks only."""
        drawn = self._placement.place(tasks)
        queues: list[list[Task]] = [[] for _ in self.cluster.gpus]
        for task in tasks:
            queues[drawn[task.id]].append(task)

        if self._all_at_once:
            return [memory_batches(queue, gpu) for queue, gpu in zip(queues, self.cluster.gpus, strict=True)]
        return [[Batch((task.id,), (100,)) for task in queue] for queue in queues]


def memory_batches(tasks: Sequence[Task], gpu: Gpu) -> list[Batch]:
    """Return batches of consecutive tasks, as long as memory and MPS clients allow, at 100 % and the default clock."""
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
