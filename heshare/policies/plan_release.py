"""Policies that plan a set of tasks at once and release the plan's batches GPU by GPU (Section III-C)."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.policies.policy import Action, Event, EventKind, GpuView, Policy, SetClock, Start, Traits, View
from heshare.prediction.predictor import Predictor
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import PolicyError
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class PlanReleasePolicy(Policy):
    """Plans the waiting tasks when new ones have arrived, and starts a GPU's next batch when its batch has ended.

    If tasks arrive one after the other, all tasks that have not started are planned again together with the new
    ones, as soon as a GPU is free to start some of them; running batches finish first (a rolling horizon).
    """

    gangs = False

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all plans and prepare for a run on this cluster."""
        super().reset(cluster, predictor, rng)
        self._queues: list[deque[Batch]] = [deque() for _ in cluster.gpus]
        self._stale = False

    @abstractmethod
    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of each GPU, in order of execution, for all of `tasks`, each task once."""

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Plan if tasks have arrived, and release the next batch of each idle GPU."""
        self._stale = self._stale or event.kind is EventKind.ARRIVAL

        # Without new tasks only the GPU of the event can have become idle.
        changed = view.gpus
        if event.gpu is not None and not self._stale:
            changed = (view.gpus[event.gpu],)
        idle = [gpu for gpu in changed if not len(gpu.running)]

        if self._stale and idle:
            self._queues = [deque(queue) for queue in self.plan(tuple(view.waiting))]
            self._stale = False

        for gpu in idle:
            queue = self._queues[gpu.index]
            if queue:
                yield from start_batch(queue.popleft(), gpu)


def start_batch(batch: Batch, gpu: GpuView) -> Iterator[Action]:
    """Yield the actions that start a batch on a GPU: its clock, unless it is requested already, then its tasks."""
    if batch.sm_mhz != gpu.requested_mhz:
        yield SetClock(gpu.index, batch.sm_mhz)
    for task, mps_pct in zip(batch.tasks, batch.mps_pct, strict=True):
        yield Start(task, gpu.index, mps_pct)


class FixedPlanPolicy(PlanReleasePolicy):
    """Releases a given plan, for the task set and the cluster of that plan.

    The declared traits are those of its batches. A plan does not show the reason of its placement, so `heterogeneous`
    is true on a cluster of several types.
    """

    name = "plan"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        batches = [batch for queue in plan.queues for batch in queue]
        self.traits = Traits(
            frequency=any(batch.sm_mhz is not None for batch in batches),
            multi_task=any(len(batch.tasks) > 1 for batch in batches),
            heterogeneous=len(plan.cluster.kinds) > 1,
        )

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of the given plan; a `PolicyError` for other tasks, or on another cluster."""
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
