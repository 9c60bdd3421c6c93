"""Plain references: each task has its GPU, or its gang of GPUs, to itself, in order of arrival or shortest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from heshare.errors import InputError
from heshare.policies.beliefs import Beliefs
from heshare.policies.description import check
from heshare.policies.policy import Action, Event, Kind, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

ORDERS = ("arrival", "shortest")
CHOICES = ("first", "fastest")


@register("fifo", title="FIFO", parameters={"backfill": False, "gpus": "first"})
@register("exclusive", title="Exclusive", parameters={"backfill": False}, preset={"gpus": "fastest"})
@register("sjf", title="SJF", parameters={"backfill": False, "gpus": "first"}, preset={"order": "shortest"})
class Exclusive:
    """One queue; its head gets as many free GPUs as it needs, each whole and at the card's own clock, or all wait.

    Args:
        order: `arrival` (first come, first served) or `shortest` (shortest predicted time first).
        backfill: whether those behind a task that must wait may start before it. Without it, a task for many GPUs
            keeps the cluster waiting; with it, it may wait for long itself.
        gpus: `first` takes the free GPUs with the lowest indices, `fastest` those on which the task is predicted to
            run fastest.

    Raises:
        InputError: no such order or choice.
    """

    name = "fifo"
    tick_s: float | None = None

    def __init__(self, order: str = "arrival", backfill: bool = False, gpus: str = "first") -> None:
        check("order", order, order in ORDERS, " or ".join(ORDERS))
        check("gpus", gpus, gpus in CHOICES, " or ".join(CHOICES))
        self._shortest, self._fastest, self._backfill = order == "shortest", gpus == "fastest", backfill
        self.traits = Traits(frequency=False, multi_task=False, heterogeneous=self._fastest)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._kinds = cluster.kinds
        self._totals = [cluster.gpus.count(kind) for kind in self._kinds]
        self._free = [[index for index, gpu in enumerate(cluster.gpus) if gpu == kind] for kind in self._kinds]
        self._kind = [self._kinds.index(gpu) for gpu in cluster.gpus]
        self._beliefs = Beliefs(predictor)
        self._known: dict[Workload, list[int]] = {}
        self._queue: list[tuple[float, int, Task]] = []
        self._arrived = 0
        self._where: dict[int, tuple[int, ...]] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Note who has left and who has come, then start who can."""
        for task_id in event.tasks:
            # One that is to be tried again arrives anew.
            self._leave(task_id)
        if event.kind is Kind.ARRIVAL:
            self._enter(event, view)
        return self._filled() if self._backfill else self._from_the_head()

    def _enter(self, event: Event, view: View) -> None:
        """Put newcomers into the queue; they are the last of those that wait."""
        new: dict[int, Task] = {}
        ids = set(event.tasks)
        last = len(view.waiting)
        while len(new) < len(ids):
            last -= 1
            task = view.waiting[last]
            if task.id in ids:
                new[task.id] = task
        for task_id in event.tasks:
            self._arrived += 1
            heappush(self._queue, (self._rank(new[task_id]), self._arrived, new[task_id]))

    def _leave(self, task_id: int) -> None:
        for gpu in self._where.pop(task_id, ()):
            heappush(self._free[self._kind[gpu]], gpu)

    def _from_the_head(self) -> Iterator[Action]:
        while self._queue and (gpus := self._take(self._queue[0][2])):
            yield self._start(heappop(self._queue)[2], gpus)

    def _filled(self) -> Iterator[Action]:
        waiting = []
        while self._queue and any(self._free):
            item = heappop(self._queue)
            gpus = self._take(item[2])
            if gpus:
                yield self._start(item[2], gpus)
            else:
                waiting.append(item)
        self._queue += waiting
        heapify(self._queue)

    def _start(self, task: Task, gpus: tuple[int, ...]) -> Start:
        self._where[task.id] = gpus
        return Start(task.id, gpus[0], also=gpus[1:])

    def _take(self, task: Task) -> tuple[int, ...]:
        """The GPUs for a task, no longer free; none if there are too few.

        Raises:
            InputError: the cluster can never hold the task.
        """
        able = self._able(task)
        if sum([len(self._free[kind]) for kind in able]) < task.gpus:
            self._check(task, able)
            return ()
        if len(able) == 1:
            free = self._free[able[0]]
            return tuple([heappop(free) for _ in range(task.gpus)])
        taken: list[int] = []
        while len(taken) < task.gpus:
            some = [kind for kind in able if self._free[kind]]
            best = some[0] if self._fastest else min(some, key=lambda kind: self._free[kind][0])
            taken.append(heappop(self._free[best]))
        return tuple(taken)

    def _able(self, task: Task) -> list[int]:
        """The types of GPU whose memory holds a task, by number; the fastest first where that matters."""
        able = self._known.get(task.workload)
        if able is None:
            able = self._known[task.workload] = self._find_able(task)
        return able

    def _find_able(self, task: Task) -> list[int]:
        need_mib = memory_mib(task.workload)
        able = [kind for kind, gpu in enumerate(self._kinds) if gpu.memory_mib >= need_mib]
        if self._fastest and len(able) > 1:
            able.sort(key=lambda kind: self._beliefs.alone_s(task.workload, self._kinds[kind]))
        return able

    def _rank(self, task: Task) -> float:
        """Its place in the queue, the least first."""
        if not self._shortest:
            return 0.0
        kinds = [self._kinds[kind] for kind in self._able(task)]
        return min((self._beliefs.whole_s(task, kind) for kind in kinds), default=0.0)

    def _check(self, task: Task, able: Iterable[int]) -> None:
        if sum(self._totals[kind] for kind in able) < task.gpus:
            raise cannot_hold(task, self._kinds)


def cannot_hold(task: Task, kinds: Iterable[Gpu]) -> InputError:
    """The error for a task that no part of a cluster can ever run."""
    return InputError(
        column="gpus",
        found=f"task {task.id}, {task.workload}, for {task.gpus} GPUs of {memory_mib(task.workload):.0f} MiB each",
        expected="a task that the cluster can hold: "
        + ", ".join(f"{kind.name} {kind.memory_mib:.0f} MiB" for kind in kinds),
        action="Leave the task out, or take a larger cluster.",
    )
