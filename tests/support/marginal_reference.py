"""Slow form of the policy `marginal` for tasks on one GPU, which computes every place of every task in Python.

The policy and the costs are described in `heshare.lab.plus.marginal`; tests compare their decisions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.plus.marginal.marginal_policy import Marginal
from heshare.lab.plus.marginal.set_predictions import Set, SetPredictions, clock_grid
from heshare.lab.plus.marginal.waiting_order import sized
from heshare.policies.policy import Action, Event, GpuView, SetClock, Start, View
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


class SlowCosts(SetPredictions):
    """Predictions of sets, their cheapest clocks, and the cost until the tasks of a GPU have ended, in Python."""

    def __init__(self, predictor: Predictor, clocks: int, price_w: float) -> None:
        super().__init__(predictor, clocks, price_w)
        self._chosen: dict[tuple[Gpu, Set, int], int] = {}

    def mhz(self, gpu: Gpu, running: Set, queued: int) -> int:
        """Return f*, the cheapest clock for a set with so many tasks queued behind it, MHz."""
        return clock_grid(gpu, self.clocks)[self._cheapest_clock(gpu, running, queued)]

    def _cheapest_clock(self, gpu: Gpu, running: Set, queued: int) -> int:
        key = gpu, running, queued
        if key not in self._chosen:
            times_s, power_w = self._predicted[gpu, running]
            relative_time = (times_s / times_s[-1]).mean(axis=1)
            rate_w = power_w - gpu.idle_w + self.price_w * (len(running) + queued)
            self._chosen[key] = int(np.argmin(rate_w * relative_time))
        return self._chosen[key]

    def drain(self, gpu: Gpu, running: Sequence[tuple[Workload, float]]) -> tuple[float, float]:
        """Return the cost until every running task has ended, with no further start, and the time until then.

        Args:
            gpu: the type of GPU.
            running: workloads and iterations left.

        Returns:
            The cost, J, and the time from now, s.
        """
        remaining = sorted(running)
        cost_j = now_s = 0.0
        while remaining:
            workloads = tuple(workload for workload, _ in remaining)
            clock = self._cheapest_clock(gpu, workloads, 0)
            times_s, power_w = self._predicted[gpu, workloads]
            ends_s = [iterations * float(times_s[clock, i]) for i, (_, iterations) in enumerate(remaining)]
            step_s = min(ends_s)
            cost_j += step_s * (float(power_w[clock]) - gpu.idle_w + self.price_w * len(remaining))
            now_s += step_s
            # Ends that differ by rounding alone are one: otherwise a step of almost no length would follow.
            remaining = [
                (workload, iterations - step_s / float(times_s[clock, i]))
                for i, (workload, iterations) in enumerate(remaining)
                if ends_s[i] > step_s * (1 + 1e-9)
            ]
        return cost_j, now_s


@dataclass(slots=True)
class _GpuState:
    """One GPU while an event is processed: its running tasks, their cost and end, and the tasks queued for it."""

    view: GpuView
    running: list[tuple[Workload, float]]
    free_mib: float
    cost_j: float = 0.0
    end_s: float = 0.0
    queued: int = 0
    queued_s: float = 0.0

    @property
    def workloads(self) -> Set:
        return tuple(sorted(workload for workload, _ in self.running))

    @property
    def signature(self) -> tuple[object, ...]:
        """GPUs of one signature are interchangeable."""
        return self.view.gpu.name, tuple(self.running), self.free_mib, self.queued, self.queued_s


@dataclass(frozen=True, slots=True)
class _Placement:
    """One way to run a task: its GPU, whether it queues, what it adds to the cost, and its effect.

    For a task that starts, `seconds` is when everything that then runs has ended; for a queued one its time alone.
    """

    state: _GpuState
    queued: bool
    cost_j: float
    seconds: float
    running: list[tuple[Workload, float]]


class MarginalReference(Marginal):
    """Waiting tasks, the shortest first, each where and when it adds least to the cost E + p T, with one GPU each."""

    gangs = False

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all predictions and starts."""
        self._kinds = cluster.kinds
        self._sets = SlowCosts(predictor, self._clocks, self._price_w)
        self._started: dict[int, Workload] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Evaluate every waiting task on every GPU; start those whose cheapest place is beside the running tasks."""
        states = [self._state(gpu) for gpu in view.gpus]
        starts = []
        for task in self._shortest(view):
            gpu = self._place_task(task, view.remaining[task.id], states)
            if gpu is not None:
                size = self._started[task.id].batch_size
                starts.append(Start(task.id, gpu, batch_size=None if size == task.workload.batch_size else size))
        # Clocks first: a task that starts now runs at the clock that was chosen with it.
        for state in states:
            if state.running:
                sm_mhz = self._sets.mhz(state.view.gpu, state.workloads, state.queued)
                if sm_mhz != state.view.requested_mhz:
                    yield SetClock(state.view.index, sm_mhz)
        yield from starts

    def _state(self, gpu: GpuView) -> _GpuState:
        running = [(self._started[task.task.id], task.remaining) for task in gpu.running.values()]
        state = _GpuState(gpu, running, gpu.free_mib)
        self._sets.predict(gpu.gpu, [state.workloads])
        state.cost_j, state.end_s = self._sets.drain(gpu.gpu, running)
        return state

    def _shortest(self, view: View) -> list[Task]:
        """Return the waiting tasks in the order of their time alone on their fastest type of GPU."""
        for kind in self._kinds:
            self._sets.predict(kind, [(task.workload,) for task in view.waiting])
        times_s = {
            task.id: view.remaining[task.id] * min(self._sets.alone_s(kind, task.workload) for kind in self._kinds)
            for task in view.waiting
        }
        return sorted(view.waiting, key=lambda task: (times_s[task.id], task.id))[: self._look]

    def _place_task(self, task: Task, iterations: float, states: Sequence[_GpuState]) -> int | None:
        """Place a task where it costs least; return the GPU if it starts there now, None if it waits."""
        # Reversed, so that of interchangeable GPUs the one with the lowest index is kept.
        distinct = list({state.signature: state for state in reversed(states)}.values())
        placements = [
            placement
            for workload in sized(task.workload, self._largest_size)
            for placement in self._placements(
                workload, iterations * task.workload.batch_size / workload.batch_size, distinct
            )
        ]
        if not placements:
            return None
        best = min(placements, key=lambda placement: (placement.cost_j, placement.queued, placement.state.view.index))
        state = best.state
        if best.queued:
            state.queued += 1
            state.queued_s += self._overlap * best.seconds
            return None
        self._started[task.id] = best.running[-1][0]
        state.running = best.running
        state.free_mib -= memory_mib(best.running[-1][0])
        state.cost_j, state.end_s = best.cost_j + state.cost_j, best.seconds
        return state.view.index

    def _placements(self, workload: Workload, iterations: float, states: Sequence[_GpuState]) -> Iterator[_Placement]:
        """Return a task's placements: queued behind the running tasks of each GPU, and beside them."""
        need_mib = memory_mib(workload)
        beside = [state for state in states if self._may_start(state, need_mib)]
        for kind in self._kinds:
            of_kind = [state for state in beside if state.view.gpu == kind]
            joined = [tuple(sorted((*state.workloads, workload))) for state in of_kind]
            self._sets.predict(kind, [(workload,), *joined])
        for state in states:
            if state.running and need_mib <= state.view.gpu.memory_mib:
                alone_j, alone_s = self._sets.drain(state.view.gpu, [(workload, iterations)])
                waiting_j = self._price_w * (state.end_s + state.queued_s)
                yield _Placement(state, True, alone_j + waiting_j, alone_s, [])
        for state in beside:
            running = [*state.running, (workload, iterations)]
            cost_j, end_s = self._sets.drain(state.view.gpu, running)
            yield _Placement(state, False, cost_j - state.cost_j, end_s, running)

    def _may_start(self, state: _GpuState, need_mib: float) -> bool:
        """Return whether a task may start beside the running ones: no task overtakes one queued for the same GPU."""
        room = min(self._most, state.view.gpu.mps_clients)
        return not state.queued and len(state.running) < room and need_mib <= state.free_mib
