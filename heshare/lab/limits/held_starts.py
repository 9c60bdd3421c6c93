"""What policies that hold the starts of another one back have in common: the held starts, and what the other one sees.

To the wrapped policy, a task whose start is held back seems to load on its GPU.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from heshare.policies.policy import GpuView, Migrate, Pace, Policy, ReusedPlanning, ReusesPlanning, Running, Start, View
from heshare.prediction.predictor import Predictor
from heshare.running.clock import MOMENT_S
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def placed_workload(task: Task, batch_size: int | None) -> Workload:
    """Return what a task runs with the inference batch size of its start; None is its own."""
    return task.workload if batch_size is None else replace(task.workload, batch_size=batch_size)


def as_start(move: Migrate) -> Start:
    return Start(move.task, move.gpu, move.mps_pct, move.batch_size, move.also, move.sharing)


class PolicyAround:
    """A policy around another one: tells what the other one tells."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def tick_s(self) -> float | None:
        return self._policy.tick_s

    @property
    def gangs(self) -> bool:
        return bool(getattr(self._policy, "gangs", True))

    @property
    def reused(self) -> ReusedPlanning:
        return self._policy.reused if isinstance(self._policy, ReusesPlanning) else ReusedPlanning()


class HoldingPolicy(PolicyAround):
    """A policy around another one, which holds its starts back."""

    @property
    def ticks_on_change(self) -> bool:
        return bool(getattr(self._policy, "ticks_on_change", False))

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._held = HeldStarts()
        self._own_ticks: list[float] = []
        self._policy.reset(cluster, predictor, rng)

    def _takes_tick(self, now_s: float) -> bool:
        due = min(self._own_ticks, default=math.inf) <= now_s + MOMENT_S
        if due:
            self._own_ticks.remove(min(self._own_ticks))
        return due


class RunningOrHeld(Mapping[int, Running]):
    """The tasks of a GPU: those that run, and those whose start is held back, which seem to load."""

    def __init__(self, running: Mapping[int, Running], held: Mapping[int, Running]) -> None:
        self._running, self._held = running, held

    def __len__(self) -> int:
        return len(self._running) + len(self._held)

    def __iter__(self) -> Iterator[int]:
        yield from self._running
        yield from self._held

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._running or task_id in self._held

    def __getitem__(self, task_id: int) -> Running:
        held = self._held.get(task_id)
        return self._running[task_id] if held is None else held

    def pace(self, task_id: int) -> Pace:
        held = self._held.get(task_id)
        if held is not None:
            return Pace(held.remaining, 0.0, 0.0, math.inf)
        pace: Pace = self._running.pace(task_id)  # type: ignore[attr-defined]
        return pace


class HeldStarts:
    """The starts that a policy asked for and that wait for power, in the order in which they are to be released."""

    def __init__(self) -> None:
        self._starts: dict[int, tuple[Start, Task]] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._starts

    def __iter__(self) -> Iterator[Start]:
        return iter([start for start, _ in self._starts.values()])

    def task(self, task_id: int) -> Task:
        return self._starts[task_id][1]

    def add(self, start: Start, task: Task) -> None:
        """Hold a start back, behind the others; one of the same task keeps its place."""
        self._starts[task.id] = start, task

    def put_first(self, starts: Sequence[tuple[Start, Task]]) -> None:
        """Hold starts back before all others, in this order."""
        self._starts = {task.id: (start, task) for start, task in starts} | self._starts

    def remove(self, task_id: int) -> None:
        self._starts.pop(task_id, None)

    def clear(self) -> None:
        self._starts.clear()

    def on_gpus(self) -> dict[int, list[tuple[Start, Task]]]:
        """Return the held starts of each GPU that has any, those of gangs on each of their GPUs."""
        found: dict[int, list[tuple[Start, Task]]] = {}
        for start, task in self._starts.values():
            for gpu in (start.gpu, *start.also):
                found.setdefault(gpu, []).append((start, task))
        return found

    def shown(self, view: View, wishes: Mapping[int, int | None]) -> View:
        """Return the view of a policy whose starts are held back and whose clocks may be lowered.

        Held tasks are on their GPUs, take memory there and make no progress; requested clocks are those that the policy
        wished. Power and the clock reached are as they are. `wishes` has the clocks that the policy requested, MHz, by
        GPU, where they may differ from those that are set.
        """
        held = self.on_gpus()
        changed = {gpu for gpu, wish in wishes.items() if view.gpus[gpu].requested_mhz != wish} | set(held)
        if not changed:
            return view
        gpus = [
            _shown_gpu(gpu, held.get(gpu.index, ()), wishes.get(gpu.index, gpu.requested_mhz), view.remaining)
            if gpu.index in changed
            else gpu
            for gpu in view.gpus
        ]
        waiting = [task for task in view.waiting if task.id not in self._starts] if held else view.waiting
        return replace(view, waiting=waiting, gpus=gpus)


def _shown_gpu(
    gpu: GpuView, held: Sequence[tuple[Start, Task]], wish: int | None, remaining: Mapping[int, float]
) -> GpuView:
    rows = {}
    for start, task in held:
        size = 1.0 if start.batch_size is None else start.batch_size / task.workload.batch_size
        left = remaining.get(task.id, task.iterations) / size
        gpus = (start.gpu, *start.also)
        rows[task.id] = Running(task, start.mps_pct, math.inf, left, start.sharing, gpus)
    needed_mib = sum([memory_mib(placed_workload(task, start.batch_size)) for start, task in held])
    running = RunningOrHeld(gpu.running, rows) if rows else gpu.running
    return replace(gpu, running=running, requested_mhz=wish, free_mib=gpu.free_mib - needed_mib)
