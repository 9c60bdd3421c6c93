"""FIFO over exclusive GPUs and gangs, written in SimPy, to compare the event loop with in speed and results.

There are two programs. `by_device` has the logic of the event loop: each GPU is a process that advances its tasks at
their present rates, accounts for energy, and schedules the next end again whenever something changes. `by_job` computes
the duration of each task in advance and assumes that it never changes: each task is a process that waits for its GPUs
and then for its end. Both use the same device model, once for each workload.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import simpy

from heshare.devices.device_model import Estimate
from heshare.world.task import Task
from heshare.world.workload import Workload

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A task on its GPUs: indices, begin and end, s."""

    task: int
    gpus: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Result:
    """Result of a program: stretches in order of their ends, and each GPU's energy until the end, J."""

    stretches: list[Stretch]
    energy_j: list[float]


class Queue:
    """First come, first served: the head of the queue gets the free GPUs with the lowest indices, or all wait."""

    def __init__(self, env: simpy.Environment, gpus: int) -> None:
        self._env, self._free = env, list(range(gpus))
        self._waiting: deque[tuple[int, simpy.Event]] = deque()

    def request(self, gpus: int) -> simpy.Event:
        """Return an event whose value is the GPUs, once they are free."""
        event = self._env.event()
        self._waiting.append((gpus, event))
        return event

    def release(self, gpus: Sequence[int]) -> None:
        """Mark GPUs as free."""
        for gpu in gpus:
            heappush(self._free, gpu)

    def serve(self) -> None:
        """Assign GPUs to the head of the queue as long as enough are free."""
        while self._waiting and self._waiting[0][0] <= len(self._free):
            count, event = self._waiting.popleft()
            event.succeed(tuple([heappop(self._free) for _ in range(count)]))


class Card:
    """A GPU as a process.

    Args:
        env: SimPy's environment.
        estimate: the device model, which returns times and power of a set of workloads.
    """

    def __init__(self, env: simpy.Environment, estimate: Callable[[tuple[Workload, ...]], Estimate]) -> None:
        self._env, self._estimate = env, estimate
        self._left: dict[int, float] = {}
        self._ends: dict[int, simpy.Event] = {}
        self._what: dict[int, Workload] = {}
        self._now_s, self.energy_j = 0.0, 0.0
        self._changed = env.event()
        self._update_state()
        env.process(self._process())

    def start(self, task: Task) -> simpy.Event:
        """Start a task now and return an event for its end."""
        self.pass_time()
        self._left[task.id], self._what[task.id] = task.iterations, task.workload
        end = self._ends[task.id] = self._env.event()
        self._update_state()
        if not self._changed.triggered:
            self._changed.succeed()
        return end

    def pass_time(self) -> None:
        """Account for the progress and energy since the last call."""
        step_s = self._env.now - self._now_s
        self.energy_j += self._state.power_w * step_s
        for task, time_s in self._times_s.items():
            self._left[task] -= step_s / time_s
        self._now_s = self._env.now

    def _process(self) -> Process:
        env = self._env
        while True:
            next_s = min((self._left[task] * time_s for task, time_s in self._times_s.items()), default=math.inf)
            yield self._changed if next_s == math.inf else env.timeout(max(next_s, 0.0)) | self._changed
            if self._changed.triggered:
                self._changed = env.event()
            self.pass_time()
            ended = [task for task, time_s in self._times_s.items() if env.now + self._left[task] * time_s <= env.now]
            for task in ended or self._almost_ended():
                del self._left[task], self._what[task]
                self._ends.pop(task).succeed()
            self._update_state()

    def _almost_ended(self) -> list[int]:
        """Return the tasks that have ended except for rounding."""
        return [task for task, time_s in self._times_s.items() if self._left[task] * time_s < 1e-6]

    def _update_state(self) -> None:
        self._state = self._estimate(tuple(self._what.values()))
        self._times_s = {task: each.time_s for task, each in zip(self._what, self._state.tasks, strict=True)}


def _source(env: simpy.Environment, tasks: Sequence[Task], job: Callable[[Task], Process], queue: Queue) -> Process:
    """Start the process of each task when it arrives; tasks are by arrival."""
    for task in tasks:
        if task.arrival_s > env.now:
            yield env.timeout(task.arrival_s - env.now)
        env.process(job(task))


def by_device(tasks: Sequence[Task], gpus: int, estimate: Callable[[tuple[Workload, ...]], Estimate]) -> Result:
    """Return the result of the program in which GPUs are processes."""
    env = simpy.Environment()
    cards, queue, found = [Card(env, estimate) for _ in range(gpus)], Queue(env, gpus), Result([], [])

    def job(task: Task) -> Process:
        event = queue.request(task.gpus)
        queue.serve()
        chosen = yield event
        start_s = env.now
        yield env.all_of([cards[gpu].start(task) for gpu in chosen])
        found.stretches.append(Stretch(task.id, chosen, start_s, env.now))
        queue.release(chosen)
        queue.serve()

    env.process(_source(env, tasks, job, queue))
    env.run()
    for card in cards:
        card.pass_time()
    return Result(found.stretches, [card.energy_j for card in cards])


def by_job(tasks: Sequence[Task], gpus: int, estimate: Callable[[tuple[Workload, ...]], Estimate]) -> Result:
    """Return the result of the program in which tasks are processes with durations computed in advance."""
    env = simpy.Environment()
    queue, found = Queue(env, gpus), Result([], [0.0] * gpus)
    idle_w, since_s = estimate(()).power_w, [0.0] * gpus
    known = {workload: estimate((workload,)) for workload in {task.workload for task in tasks}}

    def account(chosen: Sequence[int], power_w: float) -> None:
        for gpu in chosen:
            found.energy_j[gpu] += power_w * (env.now - since_s[gpu])
            since_s[gpu] = env.now

    def job(task: Task) -> Process:
        event = queue.request(task.gpus)
        queue.serve()
        chosen = yield event
        state, start_s = known[task.workload], env.now
        account(chosen, idle_w)
        yield env.timeout(task.iterations * state.tasks[0].time_s)
        account(chosen, state.power_w)
        found.stretches.append(Stretch(task.id, chosen, start_s, env.now))
        queue.release(chosen)
        queue.serve()

    env.process(_source(env, tasks, job, queue))
    env.run()
    account(range(gpus), idle_w)
    return found


def stretches(intervals: Iterator[Any]) -> list[Stretch]:
    """Return the intervals of a run as stretches, those of a gang as one, in order of their ends."""
    gangs: dict[int, list[Any]] = {}
    for each in intervals:
        gangs.setdefault(each.task, []).append(each)
    return [
        Stretch(task, tuple([one.gpu for one in each]), each[0].start_s, each[0].end_s) for task, each in gangs.items()
    ]
