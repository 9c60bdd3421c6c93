"""A policy that returns random actions, all of them possible, until it becomes calm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from support.scripted_policy import ScriptedPolicy

from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, View, Wait
from heshare.world.catalogue import memory_mib
from heshare.world.task import Task

PCTS = tuple(range(10, 101, 10))


class RandomActions:
    """Returns random possible actions: starts, pauses, migrations and clocks, of gangs as well.

    After `calm_after` events it only starts tasks, so that every run ends.
    """

    def __init__(self, seed: int, *, tick_s: float | None = None, sharing: str = "mps", calm_after: int = 60) -> None:
        self._rng = np.random.default_rng(seed)
        self._sharing = sharing
        self._calm_after = calm_after
        self.policy = ScriptedPolicy(self._decide, tick_s=tick_s)

    def _decide(self, event: Event, view: View) -> Iterable[Action]:
        rng, calm = self._rng, len(self.policy.trace) > self._calm_after
        self._free_mib = [gpu.free_mib for gpu in view.gpus]
        self._clients = [gpu.gpu.mps_clients - len(gpu.running) for gpu in view.gpus]

        actions: list[Action] = [] if calm else list(self._disturb(view))
        for task in view.waiting:
            width = task.gpus if calm else int(rng.choice([task.gpus, *task.widths]))
            gpus = self._room(task, width)
            if gpus and (calm or rng.random() < 0.7):
                actions.append(Start(task.id, gpus[0], int(rng.choice(PCTS)), also=gpus[1:], sharing=self._sharing))
                self._take(task, gpus)

        paused = sum(isinstance(action, Pause) for action in actions)
        running = len({task for gpu in view.gpus for task in gpu.running})
        if running + sum(isinstance(action, Start) for action in actions) <= paused:
            actions.append(Wait(event.time_s + float(rng.uniform(0.1, 100.0))))
        return actions

    def _disturb(self, view: View) -> Iterator[Action]:
        rng = self._rng
        for gpu in view.gpus:
            if rng.random() < 0.2:
                yield SetClock(gpu.index, [None, *gpu.gpu.clocks_mhz][int(rng.integers(len(gpu.gpu.clocks_mhz) + 1))])

        running = {task: one for gpu in view.gpus for task, one in gpu.running.items()}
        for task, one in running.items():
            # On fewer GPUs more iterations are left.
            assert 0 <= one.remaining <= 2 * one.task.gpus * one.task.iterations
            if rng.random() < 0.1:
                yield Pause(task)
            elif rng.random() < 0.15:
                gpus = self._room(one.task, len(one.gpus))
                if gpus:
                    yield Migrate(task, gpus[0], int(rng.choice(PCTS)), also=gpus[1:], sharing=self._sharing)
                    self._take(one.task, gpus)

    def _room(self, task: Task, width: int) -> tuple[int, ...]:
        needed_mib = memory_mib(task.workload) + 1e-6
        able = [
            index
            for index, free_mib in enumerate(self._free_mib)
            if free_mib >= needed_mib and self._clients[index] > 0
        ]
        if len(able) < width:
            return ()
        return tuple(int(index) for index in self._rng.permutation(able)[:width])

    def _take(self, task: Task, gpus: tuple[int, ...]) -> None:
        for index in gpus:
            self._free_mib[index] -= memory_mib(task.workload)
            self._clients[index] -= 1
