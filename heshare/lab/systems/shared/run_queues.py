"""Base of the policies that give every GPU a queue and run a fixed number of its tasks, without batches or barriers."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from heshare.lab.systems.shared.placement import PlacingPolicy
from heshare.policies.policy import Action, Event, EventKind, GpuView, Running, SetClock, Start, View
from heshare.policies.predictions import TaskPredictions
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class QueuePolicy(PlacingPolicy):
    """Assigns tasks to queues, refills a GPU on each completion, and controls GPUs on ticks.

    When tasks have arrived, all tasks that have not started are placed again, as soon as a GPU can start some of
    them. The placement decides whether they change their GPU.

    At most `slots` tasks run on a GPU at once, each with `mps_pct`. With `ticks_on_change` a tick without an
    action is followed by the first tick after a GPU changed.

    Args:
        placement: a name of `heshare.lab.systems.shared.placement.PLACEMENTS`.
        limit: the latency limit, as a multiple of the time alone at the top clock.
    """

    ticks_on_change = True
    gangs = False
    slots: int = 1
    mps_pct: int = 100
    predictions: TaskPredictions

    def __init__(self, placement: str, limit: float) -> None:
        super().__init__(placement)
        self._limit = limit

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self.predictions = TaskPredictions(predictor, self._limit)
        self._queues: list[list[Task]] = [[] for _ in cluster.gpus]
        self._seen: list[GpuView | None] = [None] * len(cluster)
        self._to_place = False

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if event.kind is EventKind.TICK:
            for gpu in view.gpus:
                # The same view object: nothing changed since the last decision.
                if gpu is not self._seen[gpu.index]:
                    self._seen[gpu.index] = gpu
                    yield from self.control(gpu)
            return
        self._to_place = self._to_place or event.kind is EventKind.ARRIVAL
        changed = view.gpus if event.gpu is None or self._to_place else (view.gpus[event.gpu],)
        free = [gpu for gpu in changed if len(gpu.running) < self.slots]
        if self._to_place and free:
            self._place(view.waiting)
        for gpu in free:
            yield from self._refill(gpu)

    def order(self, queue: list[Task], gpu: int) -> list[Task]:
        """Return a GPU's queue in the order in which its tasks start; by default in order of arrival."""
        return queue

    @abstractmethod
    def on_start(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """Yield the actions when `tasks` run on a GPU from now on (including earlier ones) and `waiting` are queued."""

    def control(self, gpu: GpuView) -> Iterator[Action]:
        """Yield the actions of one control period on one GPU; called only if the GPU may have changed."""
        yield from ()

    def batch_size(self, task: Task, gpu: GpuView) -> int | None:
        """Return the inference batch size at which a task starts; by default None, that of the task."""
        return None

    def _place(self, waiting: Sequence[Task]) -> None:
        placed = self.placed(waiting)
        self._queues = [
            self.order([task for task in waiting if placed[task.id] == gpu], gpu) for gpu in range(len(self.cluster))
        ]
        self._to_place = False

    def _refill(self, gpu: GpuView) -> Iterator[Action]:
        queue, free_mib = self._queues[gpu.index], gpu.free_mib
        tasks = [running.task for running in gpu.running.values()]
        before = len(tasks)
        while queue and len(tasks) < min(self.slots, gpu.gpu.mps_clients):
            workload, size = queue[0].workload, self.batch_size(queue[0], gpu)
            need_mib = memory_mib(workload if size is None else replace(workload, batch_size=size))
            if need_mib > free_mib:
                break
            free_mib -= need_mib
            tasks.append(queue.pop(0))
        if len(tasks):
            yield from self.on_start(gpu, tasks, queue)
        for task in tasks[before:]:
            yield Start(task.id, gpu.index, self.mps_pct, self.batch_size(task, gpu))


def request_clock(gpu: GpuView, sm_mhz: int) -> Iterator[Action]:
    if sm_mhz != gpu.requested_mhz:
        yield SetClock(gpu.index, sm_mhz)


def is_loading(running: Running) -> bool:
    return not np.isfinite(running.time_s)
