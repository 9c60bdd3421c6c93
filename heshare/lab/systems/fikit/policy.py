"""FIKIT (Wu, 2023): tasks of several priorities on one GPU, the less urgent in the gaps between the others' kernels.

From its abstract and summaries; the full text was not available. The sharing model `priority-0` to `priority-9`
(`heshare.lab.systems.fikit.priority_sharing`), derived from FIKIT's kernel loop, defines speeds on one GPU. This policy
adds the choices of a cluster, which FIKIT leaves open: tasks are placed at random and do not move, clocks are default.
On emulated GPUs filling is assumed in FIKIT's favour (`priority_sharing.GAPS`): with single kernels almost nothing is
filled.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from heshare.lab.systems.shared.exclusive import cannot_hold
from heshare.lab.systems.shared.placement import PlacingPolicy
from heshare.policies.policy import Action, Event, EventKind, GpuView, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task

QUEUES = 10
"""FIKIT's priority queues; tasks of a higher class than the last share that one."""


@register("fikit", title="FIKIT")
@register("fikit:heshare-placement", title="FIKIT, HeShare's placement", preset={"placement": "heshare"})
class Fikit(PlacingPolicy):
    """Each GPU runs its first task of every class, in order of arrival, the most urgent one as if it was alone.

    Args:
        high: where no task has a class, the share of tasks, the first to arrive, that are urgent; assumed.
        each: tasks of one class that run on a GPU at once, first come, first served; assumed.
        placement: see `heshare.lab.systems.shared.placement`.
    """

    name = "fikit"

    def __init__(self, high: float = 0.2, each: int = 1, placement: str = "random") -> None:
        require("high", high, 0 < high < 1, "a share between 0 and 1")
        require("each", each, each >= 1, "at least one task of a class")
        super().__init__(placement)
        self._high = high
        self._each = each
        self.traits = Traits(frequency=False, multi_task=True, heterogeneous=self.placement.heterogeneous)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._given = False
        self._class: dict[int, int] = {}
        self._others: dict[int, tuple[int, ...]] = {}
        self._where: dict[int, tuple[int, ...]] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if event.kind is EventKind.ARRIVAL:
            self._classify(view)
            placed = self.placed(view.waiting)
            for task in view.waiting:
                self._where[task.id] = (placed[task.id], *self._gang(task, placed[task.id]))
        return self._started(view)

    def _classify(self, view: View) -> None:
        self._given = self._given or any(task.priority for task in view.waiting)
        new = [task for task in view.waiting if task.id not in self._class]
        urgent = self._high * (len(self._class) + len(new) + view.pending)
        for task in new:
            by_arrival = 0 if len(self._class) < urgent else 1
            self._class[task.id] = min(task.priority, QUEUES - 1) if self._given else by_arrival

    def _started(self, view: View) -> Iterator[Action]:
        free = _Free(view.gpus, self._class, self._each)
        blocked: dict[int, set[int]] = {}
        for task in sorted(view.waiting, key=lambda task: self._class[task.id]):
            priority, gpus = self._class[task.id], self._where[task.id]
            waits = blocked.setdefault(priority, set())
            if not waits.isdisjoint(gpus) or not free.take(task, priority, gpus):
                waits.update(gpus)
            else:
                yield Start(task.id, gpus[0], also=gpus[1:], sharing=f"priority-{priority}")

    def _gang(self, task: Task, first: int) -> tuple[int, ...]:
        """Return the other GPUs of a gang, drawn once: of the first one's type if there are enough of them."""
        if task.gpus == 1:
            return ()
        drawn = self._others.get(task.id, ())
        if not drawn or first in drawn:
            gpus = self.cluster.gpus
            fitting = [at for at, gpu in enumerate(gpus) if at != first and gpu.memory_mib >= memory_mib(task.workload)]
            alike = [at for at in fitting if gpus[at] == gpus[first]]
            some = alike if len(alike) >= task.gpus - 1 else fitting
            if len(some) < task.gpus - 1:
                raise cannot_hold(task, self.cluster.kinds)
            drawn = tuple(int(at) for at in self.rng.choice(some, task.gpus - 1, replace=False))
            self._others[task.id] = drawn
        return drawn


class _Free:
    def __init__(self, gpus: Sequence[GpuView], classes: dict[int, int], each: int) -> None:
        self._gpus, self._classes, self._each = gpus, classes, each
        self._mib: dict[int, float] = {}
        self._running: dict[int, list[int]] = {}
        self._short: set[int] = set()

    def take(self, task: Task, priority: int, gpus: Sequence[int]) -> bool:
        need_mib = memory_mib(task.workload)
        for gpu in gpus:
            if gpu not in self._mib:
                view = self._gpus[gpu]
                self._mib[gpu], self._running[gpu] = view.free_mib, [self._classes[one] for one in view.running]
        if any(gpu in self._short or self._running[gpu].count(priority) >= self._each for gpu in gpus):
            return False
        short = {
            gpu
            for gpu in gpus
            if self._mib[gpu] < need_mib or len(self._running[gpu]) >= self._gpus[gpu].gpu.mps_clients
        }
        self._short |= short
        if short:
            return False
        for gpu in gpus:
            self._mib[gpu] -= need_mib
            self._running[gpu].append(priority)
        return True
