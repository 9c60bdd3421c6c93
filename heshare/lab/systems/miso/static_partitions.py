"""MISO's baselines: a static MIG partition, and a fixed number of equal shares under MPS."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from heshare.lab.systems.miso import policy  # noqa: F401 (registers MISO: all three are in one plug-in)
from heshare.lab.systems.miso.mig import COMPUTE, fits, has_mig, least, sharing_of
from heshare.policies.policy import Action, Event, Migrate, Policy, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


@dataclass(slots=True)
class _Instances:
    free: list[int]
    taken: dict[int, tuple[Task, int]] = field(default_factory=dict)

    def enter(self, task: Task, slices: int) -> None:
        self.free.remove(slices)
        self.taken[task.id] = task, slices

    def leave(self, task_id: int) -> None:
        _, slices = self.taken.pop(task_id)
        self.free = sorted([*self.free, slices], reverse=True)


@register("miso:static", title="Static MIG", parameters={"partition": (3, 2, 2)}, preset={})
class StaticPartition(Policy):
    """Every GPU has one MIG partition; a task takes the largest free instance of the cluster if it fits there.

    A GPU without MIG counts as one instance of all slices. Once all waiting tasks have been tried, tasks in small
    instances move to larger free ones of their GPU. Tasks overtake one that fits no free instance (both as in MISO's
    code, the latter for this system alone).

    Args:
        partition: compute slices of the instances; which is best depends on the tasks, so the default is assumed.
    """

    name = "miso:static"
    gangs = False
    # It distinguishes whole GPUs without MIG from instances of those with it.
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(self, partition: tuple[int, ...] = (3, 2, 2)) -> None:
        require("partition", partition, bool(partition) and fits(partition), "instances that fit onto a GPU together")
        self._partition = sorted(partition, reverse=True)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._gpus = [_Instances(self._partition[:] if has_mig(gpu) else [COMPUTE]) for gpu in cluster.gpus]
        self._where: dict[int, int] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        for task_id in event.tasks:
            if task_id in self._where:
                self._gpus[self._where.pop(task_id)].leave(task_id)
        for task in view.waiting:
            index = max(range(len(self._gpus)), key=lambda one: (*self._gpus[one].free[:1], 0)[0])
            held = self._gpus[index]
            if held.free and self._holds(task, index, held.free[0]):
                slices = held.free[0]
                held.enter(task, slices)
                self._where[task.id] = index
                yield Start(task.id, index, sharing=sharing_of(self.cluster.gpus[index], slices))
        for index, held in enumerate(self._gpus):
            yield from self._promoted(index, held)

    def _promoted(self, index: int, held: _Instances) -> Iterator[Action]:
        smallest = sorted(held.taken.values(), key=lambda one: (one[1], one[0].id))
        for (task, slices), larger in zip(smallest, tuple(held.free), strict=False):
            if larger <= slices:
                break
            held.leave(task.id)
            held.enter(task, larger)
            yield Migrate(task.id, index, sharing=sharing_of(self.cluster.gpus[index], larger))

    def _holds(self, task: Task, index: int, slices: int) -> bool:
        fits = any(self._needed(task, one) <= self._partition[0] for one in self.cluster.kinds)
        found = f"task {task.id}, {task.workload}, of {memory_mib(task.workload):.0f} MiB"
        expected = f"tasks that an instance of {self._partition[0]} slices holds"
        require("partition", found, fits, expected, "Choose a partition with a larger instance.")
        return slices >= self._needed(task, self.cluster.gpus[index])

    def _needed(self, task: Task, gpu: Gpu) -> int:
        """Return the compute slices of the smallest instance that a task fits; more than the GPU has if none."""
        need_mib = memory_mib(task.workload)
        if has_mig(gpu):
            return least(gpu, need_mib) or COMPUTE + 1
        return 1 if need_mib <= gpu.memory_mib else COMPUTE + 1


@register("miso:mps", title="Equal MPS shares", preset={})
class EqualShares(Policy):
    """In order of arrival, each task on the first GPU that runs fewer than `shares` and has the memory, 1/shares each.

    Args:
        shares: tasks of a GPU at most (MISO's code: 3).
    """

    name = "miso:mps"
    gangs = False
    traits = Traits(frequency=False, multi_task=True, heterogeneous=False)

    def __init__(self, shares: int = 3) -> None:
        require("shares", shares, 1 <= shares <= 48, "1 to 48 tasks")
        self._shares = shares

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        running = [len(gpu.running) for gpu in view.gpus]
        free_mib = [gpu.free_mib for gpu in view.gpus]
        for task in view.waiting:
            need_mib = memory_mib(task.workload)
            able = (at for at, count in enumerate(running) if count < self._shares and need_mib <= free_mib[at])
            index = next(able, None)
            if index is None:
                return
            running[index] += 1
            free_mib[index] -= need_mib
            yield Start(task.id, index, 100 // self._shares)
