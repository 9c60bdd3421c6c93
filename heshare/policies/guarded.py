"""Any policy on GPUs that can fail: what failed is planned again, a suspect runs alone, a lost GPU is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from heshare.policies.policy import (
    Action,
    Borrowed,
    Borrows,
    Event,
    GpuView,
    Kind,
    Migrate,
    Policy,
    SetClock,
    Start,
    Traits,
    View,
)
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class Guarded:
    """A policy that never hears of failures.

    A task to be tried again arrives anew. A suspect, which may have taken its neighbours down, is hidden until nothing
    else waits and then has a GPU to itself. When a GPU is lost the policy is reset to the cluster of the others, and
    everything that waits arrives anew; tasks that fit none of these are hidden, and stay behind.

    Args:
        policy: who decides as long as nothing fails; then it is told nothing else than without this guard.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    @property
    def traits(self) -> Traits:
        """Those of the policy."""
        return self._policy.traits

    @property
    def tick_s(self) -> float | None:
        """The policy's."""
        return self._policy.tick_s

    @property
    def borrowed(self) -> Borrowed:
        """What the policy borrowed."""
        return self._policy.borrowed if isinstance(self._policy, Borrows) else Borrowed(0.0, 0)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every failure."""
        self._cluster, self._predictor, self._rng = cluster, predictor, rng
        self._kept = list(range(len(cluster)))
        self._suspects: set[int] = set()
        self._alone: dict[int, int] = {}
        self._refused = False
        self._policy.reset(cluster, predictor, rng)

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """The policy's answer, and the guard's own."""
        self._suspects.update(event.alone)
        self._alone = {gpu: task for gpu, task in self._alone.items() if task in view.gpus[gpu].running}
        if event.lost and event.gpu in self._kept:
            self._forget(event.gpu)
        if not self._kept:
            return
        seen = self._seen(view)
        told = self._told(event, seen)
        if told is not None:
            yield from self._checked(self._policy.decide(told, seen))
        if not seen.waiting:
            yield from self._try_alone(view)

    def _forget(self, gpu: int) -> None:
        self._kept.remove(gpu)
        if self._kept:
            left = Cluster(tuple(self._cluster.gpus[index] for index in self._kept))
            self._policy.reset(left, self._predictor, self._rng)

    def _seen(self, view: View) -> View:
        """What the policy sees: no suspects, no lost GPUs, nothing that fits none of the others."""
        gpus: Sequence[GpuView] = view.gpus
        waiting = view.waiting
        if self._suspects:
            waiting = [task for task in waiting if task.id not in self._suspects]
        if len(self._kept) < len(self._cluster):
            gpus = [replace(view.gpus[index], index=place) for place, index in enumerate(self._kept)]
            waiting = [task for task in waiting if self._fits(task)]
        return replace(view, waiting=waiting, gpus=gpus)

    def _told(self, event: Event, seen: View) -> Event | None:
        """The event as the policy hears it, in its own numbering of GPUs."""
        kind, tasks = event.kind, event.tasks
        if kind is Kind.FAILURE:
            back = [task.id for task in seen.waiting if event.lost or task.id in tasks]
            kind, tasks = (Kind.ARRIVAL, tuple(back)) if back else (Kind.COMPLETION, tasks)
        elif self._refused and seen.waiting:
            # It believes to have started what was refused beside a suspect: that arrives anew.
            kind, tasks = Kind.ARRIVAL, tuple([task.id for task in seen.waiting])
        self._refused = False
        if kind is not Kind.COMPLETION:
            return Event(kind, event.time_s, tasks)
        if event.gpu not in self._kept:
            return None
        return Event(kind, event.time_s, tasks, self._kept.index(event.gpu))

    def _checked(self, actions: Iterable[Action]) -> Iterator[Action]:
        """The policy's actions on the cluster's GPUs, without those that would give a suspect a neighbour."""
        for action in actions:
            if isinstance(action, Start | SetClock | Migrate):
                gpu = self._kept[action.gpu] if 0 <= action.gpu < len(self._kept) else action.gpu
                if gpu in self._alone and not isinstance(action, SetClock):
                    self._refused = True
                    continue
                yield replace(action, gpu=gpu)
            else:
                yield action

    def _try_alone(self, view: View) -> Iterator[Action]:
        """Suspects on idle GPUs, one each, at the card's own clock; the largest GPU first."""
        idle = [view.gpus[index] for index in self._kept if not len(view.gpus[index].running)]
        idle.sort(key=lambda gpu: (-gpu.free_mib, gpu.index))
        for task in [one for one in view.waiting if one.id in self._suspects]:
            if not idle or memory_mib(task.workload) > idle[0].free_mib:
                return
            gpu = idle.pop(0)
            if gpu.requested_mhz is not None:
                yield SetClock(gpu.index, None)
            self._alone[gpu.index] = task.id
            yield Start(task.id, gpu.index, 100)

    def _fits(self, task: Task) -> bool:
        return any(memory_mib(task.workload) <= self._cluster.gpus[index].memory_mib for index in self._kept)
