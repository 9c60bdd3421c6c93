"""Fault tolerance for any policy: retries of failed tasks, suspects run alone, replanning without unusable GPUs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    GpuView,
    Migrate,
    Pause,
    Policy,
    Running,
    SetClock,
    Start,
    View,
    Wait,
)
from heshare.policies.policy_around import PolicyAround
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster

_AGAIN_S = 1.0


class _RenumberedTasks(Mapping[int, Running]):
    """The running tasks of a GPU, with GPU indices among the available GPUs."""

    def __init__(self, running: Mapping[int, Running], available: Sequence[int]) -> None:
        self._running, self._available = running, available

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[int]:
        return iter(self._running)

    def __getitem__(self, task_id: int) -> Running:
        task = self._running[task_id]
        places = [self._available.index(gpu) for gpu in task.gpus if gpu in self._available]
        return replace(task, gpus=tuple(places))


class FaultTolerantPolicy(PolicyAround):
    """A policy on GPUs that can fail, for tasks on one GPU each; without failures it decides as the wrapped policy.

    Failures are not passed on: a task to be retried arrives again. A suspect, which may have made its co-runners fail,
    is hidden until nothing else waits, and then runs alone on a GPU; starts next to it are refused, and those tasks
    arrive again. When a GPU is lost or drained, the wrapped policy is reset to the cluster of the others, and every
    waiting task arrives again; tasks that fit none of these GPUs are hidden and remain unfinished. Tasks on a drained
    GPU run on, hidden from the policy; when the GPU accepts tasks again, the policy is reset to the cluster with it.

    `expected` returns whether a drained GPU may accept tasks again soon; a policy with ticks is then not stopped as
    stranded while it can start nothing.
    """

    def __init__(self, policy: Policy, expected: Callable[[], bool] = lambda: False) -> None:
        super().__init__(policy)
        self._expected = expected
        self.name, self.traits = policy.name, policy.traits

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._available = list(range(len(cluster)))
        self._suspects: set[int] = set()
        self._alone: dict[int, int] = {}
        self._lost: set[int | None] = set()
        self._refused = self._replan = False
        self._again_s = -math.inf

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        self._suspects.update(event.alone)
        self._alone = {gpu: task for gpu, task in self._alone.items() if task in view.gpus[gpu].running}

        if event.lost:
            self._lost.add(event.gpu)

        available = set(self._available)
        if event.lost or event.drained:
            available.discard(event.gpu)
        elif event.drained is False and event.gpu is not None:
            available |= {event.gpu} - self._lost

        self._replan = available != set(self._available)
        if self._replan:
            self._available = sorted(available)
            if self._available:
                cluster = Cluster(tuple(self.cluster.gpus[index] for index in self._available))
                self._policy.reset(cluster, self.predictor, self.rng)

        if event.kind is EventKind.TICK and view.now_s >= self._again_s and self._expected():
            self._again_s = view.now_s + _AGAIN_S
            yield Wait(self._again_s)

        if not self._available:
            return

        visible = self._visible(view)
        translated = self._translated(event, visible)
        if translated is not None:
            yield from self._filtered(self._policy.decide(translated, visible), view)
        if not visible.waiting:
            yield from self._start_suspects(view)

    def _visible(self, view: View) -> View:
        """Return the view without suspects, lost or drained GPUs, and tasks that fit none of the other GPUs."""
        gpus: Sequence[GpuView] = view.gpus
        waiting = view.waiting
        if self._suspects:
            waiting = [task for task in waiting if task.id not in self._suspects]
        if len(self._available) < len(self.cluster):
            gpus = [self._renumbered(view.gpus[index], place) for place, index in enumerate(self._available)]
            most_mib = max(gpu.gpu.memory_mib for gpu in gpus)
            waiting = [task for task in waiting if memory_mib(task.workload) <= most_mib]
        return replace(view, waiting=waiting, gpus=gpus)

    def _renumbered(self, gpu: GpuView, place: int) -> GpuView:
        return replace(gpu, index=place, running=_RenumberedTasks(gpu.running, self._available))

    def _translated(self, event: Event, visible: View) -> Event | None:
        """Return the event without failures and with the wrapped policy's GPU indices; None if it is not for it."""
        kind, tasks = event.kind, event.tasks
        # The wrapped policy assumes that a start refused next to a suspect has succeeded, so the task arrives again.
        if kind is EventKind.FAILURE:
            everything = self._replan or self._refused
            retried = [task.id for task in visible.waiting if everything or task.id in tasks]
            kind, tasks = (EventKind.ARRIVAL, tuple(retried)) if retried else (EventKind.COMPLETION, tasks)
            if not tasks:
                return None
        elif self._refused and visible.waiting:
            kind, tasks = EventKind.ARRIVAL, tuple([task.id for task in visible.waiting])
        self._refused = False
        if kind is not EventKind.COMPLETION:
            return Event(kind, event.time_s, tasks)
        if event.gpu not in self._available:
            return None
        return Event(kind, event.time_s, tasks, self._available.index(event.gpu))

    def _filtered(self, actions: Iterable[Action], view: View) -> Iterator[Action]:
        """Yield the actions with the cluster's GPU indices, without starts next to a suspect."""
        running = {task for index in self._available for task in view.gpus[index].running}
        for action in actions:
            if isinstance(action, SetClock):
                yield replace(action, gpu=self._of_cluster(action.gpu))
                continue
            if isinstance(action, Start | Migrate):
                gpu = self._of_cluster(action.gpu)
                if self._alone.get(gpu, action.task) != action.task:
                    self._refused = True
                    continue
                running.add(action.task)
                action = replace(action, gpu=gpu)
            if isinstance(action, Pause):
                running.discard(action.task)
            yield action

        if self._refused and not running:
            yield Wait(view.now_s + _AGAIN_S)  # no task will end and cause the next event

    def _of_cluster(self, gpu: int) -> int:
        return self._available[gpu] if 0 <= gpu < len(self._available) else gpu

    def _start_suspects(self, view: View) -> Iterator[Action]:
        """Yield starts of suspects on idle GPUs, one each, at the GPU's default clock; the largest GPU first."""
        idle = [view.gpus[index] for index in self._available if not len(view.gpus[index].running)]
        idle.sort(key=lambda gpu: (-gpu.free_mib, gpu.index))
        for task in [task for task in view.waiting if task.id in self._suspects]:
            if not idle or memory_mib(task.workload) > idle[0].free_mib:
                return
            gpu = idle.pop(0)
            if gpu.requested_mhz is not None:
                yield SetClock(gpu.index, None)
            self._alone[gpu.index] = task.id
            yield Start(task.id, gpu.index, 100)
