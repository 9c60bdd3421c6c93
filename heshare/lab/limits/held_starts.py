"""Starts that are held back, and the view of a policy to which they look like tasks that load on their GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from heshare.policies.policy import GpuView, Pace, Running, Start, View
from heshare.world.catalogue import memory_mib
from heshare.world.task import Task
from heshare.world.workload import Workload


def placed_workload(task: Task, batch_size: int | None) -> Workload:
    """Return what a task runs with the inference batch size of its start, None for its own."""
    return task.workload if batch_size is None else replace(task.workload, batch_size=batch_size)


class RunningOrHeld(Mapping[int, Running]):
    """The tasks of a GPU: those that run, and those whose start is held back, which seem to load.

    Args:
        running: those that run.
        held: those that are held back, by task id.
    """

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
        """Return the pace of a task, as the views of a run do."""
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
        """Return the task of a held start."""
        return self._starts[task_id][1]

    def add(self, start: Start, task: Task) -> None:
        """Hold a start back, behind the others; one of the same task keeps its place."""
        self._starts[task.id] = start, task

    def put_first(self, starts: Sequence[tuple[Start, Task]]) -> None:
        """Hold starts back before all others, in this order."""
        self._starts = {task.id: (start, task) for start, task in starts} | self._starts

    def remove(self, task_id: int) -> None:
        """Forget a start, which is released or wanted no more."""
        self._starts.pop(task_id, None)

    def clear(self) -> None:
        """Forget all starts."""
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
        wished. Power and the clock reached are as they are.

        Args:
            view: the cluster as it is.
            wishes: the clocks that the policy requested, MHz, by GPU, where they may differ from those that are set.
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
