"""Systems that give every GPU a queue and let a fixed number of tasks of it run, without batches or barriers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.policies.beliefs import Beliefs
from heshare.policies.placement import placement
from heshare.policies.policy import Action, Borrowed, Event, GpuView, Kind, Start, View
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class RunsQueues(ABC):
    """Places tasks into queues, refills a GPU on each completion, and controls GPUs on ticks.

    Tasks that have not started are placed again, together with newcomers, at the first moment at which a GPU has a
    share free to start some of them; whether they move is the placement's affair.

    Args:
        placed: a name of `heshare.policies.placement.PLACEMENTS`.
        limit: the latency limit, as a multiple of the time alone at the top clock.

    Attributes:
        tick_s: the control period, s, or None.
        shares: how many tasks run on a GPU at most.
        mps_pct: the MPS percentage of each.
        gangs: tasks run on one GPU each.
        ticks_on_change: after a tick without an answer the next one matters only once a GPU has changed.
    """

    ticks_on_change = True
    gangs = False
    tick_s: float | None = None
    shares: int = 1
    mps_pct: int = 100
    cluster: Cluster
    beliefs: Beliefs

    def __init__(self, placed: str, limit: float) -> None:
        self.placement = placement(placed)
        self._limit = limit

    @property
    def borrowed(self) -> Borrowed:
        """What the placement reused since the last reset."""
        return self.placement.borrowed

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything and get ready for a run on this cluster."""
        self.cluster = cluster
        self.beliefs = Beliefs(predictor, self._limit)
        self.placement.reset(cluster, predictor, rng)
        self._queues: list[list[Task]] = [[] for _ in cluster.gpus]
        self._seen: list[GpuView | None] = [None] * len(cluster)
        self._stale = False

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Refill queues on arrivals and completions, control clocks on ticks."""
        if event.kind is Kind.TICK:
            for gpu in view.gpus:
                # The same view object: nothing has changed, so that what was decided last time still holds.
                if gpu is not self._seen[gpu.index]:
                    self._seen[gpu.index] = gpu
                    yield from self.control(gpu)
            return
        self._stale = self._stale or event.kind is Kind.ARRIVAL
        changed = view.gpus if event.gpu is None or self._stale else (view.gpus[event.gpu],)
        free = [gpu for gpu in changed if len(gpu.running) < self.shares]
        if self._stale and free:
            self._place(view.waiting)
        for gpu in free:
            yield from self._refill(gpu)

    def sort(self, queue: list[Task], gpu: int) -> list[Task]:
        """A GPU's queue in the order in which it starts; by default first come, first served."""
        return queue

    @abstractmethod
    def started(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """What to do when `tasks` run on a GPU from now on (those that ran before included) and `waiting` queue."""

    def control(self, gpu: GpuView) -> Iterator[Action]:
        """What to do with a GPU on a tick; asked only if something about it may have changed."""
        yield from ()

    def emptied(self, gpu: GpuView) -> None:  # noqa: B027
        """Note that a GPU runs nothing and may be filled; by default nothing comes of it."""

    def start(self, task: Task, gpu: GpuView) -> Start:
        """The action that starts a task."""
        return Start(task.id, gpu.index, self.mps_pct)

    def _place(self, waiting: Sequence[Task]) -> None:
        where = self.placement.place(waiting)
        self._queues = [
            self.sort([task for task in waiting if where[task.id] == gpu], gpu) for gpu in range(len(self.cluster))
        ]
        self._stale = False

    def _refill(self, gpu: GpuView) -> Iterator[Action]:
        """Start from the head of the queue while shares and memory last; nobody overtakes a task that must wait."""
        queue, free_mib = self._queues[gpu.index], gpu.free_mib
        running = [each.task for each in gpu.running.values()]
        before = len(running)
        if not before:
            self.emptied(gpu)
        while queue and len(running) < min(self.shares, gpu.gpu.mps_clients):
            need_mib = self.need_mib(queue[0], gpu)
            if need_mib > free_mib:
                break
            free_mib -= need_mib
            running.append(queue.pop(0))
        if len(running):
            yield from self.started(gpu, running, queue)
        for task in running[before:]:
            yield self.start(task, gpu)

    def need_mib(self, task: Task, gpu: GpuView) -> float:
        """Device memory that a task takes when it starts, MiB."""
        return memory_mib(task.workload)
