"""Systems that plan a set of tasks at once and then release the plan's batches, GPU by GPU (Section III-C)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.errors import PolicyError
from heshare.policies.policy import Action, Event, GpuView, Kind, SetClock, Start, Traits, View
from heshare.prediction.predictor import Predictor
from heshare.scheduling.plan import Batch, Plan
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class ReleasesPlan(ABC):
    """Plans the waiting tasks once new ones have arrived; starts a GPU's next batch when its previous one is done.

    When tasks arrive one after the other, everything that has not started is planned anew together with the
    newcomers, at the first moment at which a GPU is free to start some of it; batches that run are left to finish
    first (a rolling horizon).

    Attributes:
        name: on the command line and in results.
        traits: what it does (Table I).
        gangs: tasks run on one GPU each.
        tick_s: None; it needs no ticks.
    """

    name: str
    traits: Traits
    gangs = False
    tick_s: float | None = None
    cluster: Cluster
    predictor: Predictor
    rng: np.random.Generator

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every plan and get ready for a run on this cluster."""
        self.cluster, self.predictor, self.rng = cluster, predictor, rng
        self._queues: list[deque[Batch]] = [deque() for _ in cluster.gpus]
        self._stale = False

    @abstractmethod
    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """The batches of each GPU, in order, for all of `tasks`; each task once."""

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Plan if tasks have arrived, and release the next batch wherever nothing runs."""
        self._stale = self._stale or event.kind is Kind.ARRIVAL
        changed = view.gpus if event.gpu is None or self._stale else (view.gpus[event.gpu],)
        idle = [gpu for gpu in changed if not len(gpu.running)]
        if self._stale and idle:
            self._queues = [deque(queue) for queue in self.plan(tuple(view.waiting))]
            self._stale = False
        for gpu in idle:
            yield from self._release(gpu)

    def _release(self, gpu: GpuView) -> Iterator[Action]:
        queue = self._queues[gpu.index]
        if not queue:
            return
        batch = queue.popleft()
        if batch.sm_mhz != gpu.requested_mhz:
            yield SetClock(gpu.index, batch.sm_mhz)
        for task, mps_pct in zip(batch.tasks, batch.mps_pct, strict=True):
            yield Start(task, gpu.index, mps_pct)


class FollowsPlan(ReleasesPlan):
    """Releases a plan that was made elsewhere, for the task set that it was made for.

    Args:
        plan: the plan.
        name: how to call it.
        traits: what the plan does; by default what its batches show (a plan does not tell why it placed a task
            where it did, so `heterogeneous` is taken as true on a cluster of several types).
    """

    def __init__(self, plan: Plan, *, name: str = "plan", traits: Traits | None = None) -> None:
        self.name = name
        self._plan = plan
        batches = [batch for queue in plan.queues for batch in queue]
        self.traits = traits or Traits(
            frequency=any(batch.sm_mhz is not None for batch in batches),
            multi_task=any(len(batch.tasks) > 1 for batch in batches),
            heterogeneous=len(plan.cluster.kinds) > 1,
        )

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """The plan's batches.

        Raises:
            PolicyError: the tasks that wait or the cluster are not the plan's.
        """
        if sorted(task.id for task in tasks) != sorted(task.id for task in self._plan.tasks):
            raise PolicyError(
                f"{self.name}: {len(tasks)} tasks wait, and the plan is for {len(self._plan.tasks)} others. "
                "Run a plan on the task set that it was made for, all arriving at once."
            )
        if self.cluster != self._plan.cluster:
            raise PolicyError(
                f"{self.name}: the plan is for {self._plan.cluster}, and the run is on {self.cluster}. "
                "Run it on the cluster that it was made for."
            )
        return self._plan.queues
