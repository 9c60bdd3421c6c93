"""FIFO, shortest first and exclusive: each task runs alone on its GPU or gang of GPUs."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import numpy as np

from heshare.policies.policy import Action, Event, EventKind, Policy, Start, Traits, View
from heshare.policies.predictions import TaskPredictions
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import InputError, require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

ORDERS = ("arrival", "shortest")
CHOICES = ("first", "fastest")


@register("fifo", title="FIFO", parameters={"gpus": "first"})
@register("exclusive", title="Exclusive", parameters={}, preset={"gpus": "fastest"})
@register("sjf", title="SJF", parameters={"gpus": "first"}, preset={"order": "shortest"})
@register(
    "sjf:fastest",
    title="SJF, fastest GPU",
    parameters={},
    preset={"order": "shortest", "gpus": "fastest"},
)
class Exclusive(Policy):
    """One queue: its first task gets as many free GPUs as it needs, at the default clock, otherwise all tasks wait.

    Args:
        order: `arrival` (first come, first served) or `shortest` (shortest predicted time first).
        gpus: `first` takes the free GPUs with the lowest indices, `fastest` those on which the task is predicted to
            run fastest.
    """

    name = "fifo"

    def __init__(self, order: str = "arrival", gpus: str = "first") -> None:
        require("order", order, order in ORDERS, " or ".join(ORDERS))
        require("gpus", gpus, gpus in CHOICES, " or ".join(CHOICES))
        self._shortest, self._fastest = order == "shortest", gpus == "fastest"
        self.traits = Traits(frequency=False, multi_task=False, heterogeneous=self._fastest)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._kinds = cluster.kinds
        self._totals = [cluster.gpus.count(kind) for kind in self._kinds]
        self._free = [[index for index, gpu in enumerate(cluster.gpus) if gpu == kind] for kind in self._kinds]
        self._free_with = [self._free[self._kinds.index(gpu)] for gpu in cluster.gpus]
        self._predictions = TaskPredictions(predictor)
        self._fitting: dict[Workload, list[int]] = {}
        self._queue: list[tuple[float, int, Task, list[int]]] = []
        self._arrived = 0
        self._gpus_of: dict[int, tuple[int, ...]] = {}

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        for task_id in event.tasks:
            # A retried task arrives again: its GPUs are freed first.
            if task_id in self._gpus_of:
                self._leave(task_id)
        if event.kind is EventKind.ARRIVAL:
            self._enter(event, view)
        actions: list[Action] = []
        queue = self._queue
        while queue and (gpus := self._take(queue[0][2], queue[0][3])):
            task_id = heappop(queue)[2].id
            self._gpus_of[task_id] = gpus
            actions.append(Start(task_id, gpus[0], 100, None, gpus[1:]))
        return actions

    def _enter(self, event: Event, view: View) -> None:
        if len(event.tasks) == 1 and (task := view.waiting[-1]).id == event.tasks[0]:
            self._add(task)
            return
        new: dict[int, Task] = {}
        ids = set(event.tasks)
        # They are the last of the waiting tasks, which are many when a cluster is overloaded.
        last = len(view.waiting)
        while len(new) < len(ids):
            last -= 1
            task = view.waiting[last]
            if task.id in ids:
                new[task.id] = task
        for task_id in event.tasks:
            self._add(new[task_id])

    def _add(self, task: Task) -> None:
        kinds = self._kinds_for(task.workload)
        self._arrived += 1
        heappush(self._queue, (self._rank(task, kinds) if self._shortest else 0.0, self._arrived, task, kinds))

    def _leave(self, task_id: int) -> None:
        gpus = self._gpus_of.pop(task_id)
        free = self._free_with[gpus[0]]
        place = bisect_left(free, gpus[0])
        if len(gpus) == 1 or (len(self._kinds) == 1 and (place == len(free) or free[place] > gpus[-1])):
            free[place:place] = gpus  # in order, with no free one between them
            return
        for gpu in gpus:
            insort(self._free_with[gpu], gpu)

    def _take(self, task: Task, kinds: Sequence[int]) -> tuple[int, ...]:
        count = task.gpus
        if len(kinds) == 1 and len(free := self._free[kinds[0]]) >= count:
            first = tuple(free[:count])
            del free[:count]
            return first
        if sum([len(self._free[kind]) for kind in kinds]) < count:
            if sum(self._totals[kind] for kind in kinds) < task.gpus:
                raise cannot_hold(task, self._kinds)
            return ()
        taken: list[int] = []
        while len(taken) < task.gpus:
            available = [kind for kind in kinds if self._free[kind]]
            best = available[0] if self._fastest else min(available, key=lambda kind: self._free[kind][0])
            taken.append(self._free[best].pop(0))
        return tuple(taken)

    def _kinds_for(self, workload: Workload) -> list[int]:
        kinds = self._fitting.get(workload)
        if kinds is None:
            need_mib = memory_mib(workload)
            kinds = [kind for kind, gpu in enumerate(self._kinds) if gpu.memory_mib >= need_mib]
            if self._fastest and len(kinds) > 1:
                kinds.sort(key=lambda kind: self._predictions.alone_s(workload, self._kinds[kind]))
            self._fitting[workload] = kinds
        return kinds

    def _rank(self, task: Task, kinds: Sequence[int]) -> float:
        return min((self._predictions.whole_s(task, self._kinds[kind]) for kind in kinds), default=0.0)


def cannot_hold(task: Task, kinds: Iterable[Gpu]) -> InputError:
    found = f"task {task.id}, {task.workload}, for {task.gpus} GPUs of {memory_mib(task.workload):.0f} MiB each"
    room = ", ".join(f"{kind.name} {kind.memory_mib:.0f} MiB" for kind in kinds)
    advice = "Leave the task out, or take a larger cluster."
    return InputError(found, f"a task that the cluster can hold: {room}", advice, column="gpus")
