"""Marginal, an online policy that is not HeShare: each task where and when it adds least to energy and waiting.

It has none of HeShare's parts (no genetic search, no plan, no batches, no MPS percentages), and its clocks follow from
the same cost.

A second that a task spends in the system costs p, in W = J / s. With N(t) tasks in the system at time t, the sum
of JCTs is the integral of N (each task counts from arrival to completion, as in Little's law), so

    cost = E + p T = integral over t of (sum over g of P_g(t) + p N(t)) dt

and p is the weight w of `heshare.lab.plus.weighted_search`: a low p leads to the end of least energy, a high one to the
end of least JCT. Idle power is left out of P_g: it is drawn whatever the policy does.

Clock. A GPU that runs the set S with q tasks queued behind it costs P(f) - P_idle + p (|S| + q) per second at clock f.
The same work takes s(f) = mean over S of t_i(f) / t_i(top) times as long as at the top clock, so the cheapest clock is

    f* = argmin (P(f) - P_idle + p (|S| + q)) s(f)

Place. D(S) is the cost until S has ended with no further start, by the steps of `heshare.lab.plus.batch_execution`,
each at its f* for q = 0, and e(S) is its end. Task i adds D(S + i) - D(S) beside S, and D(i) + p (e(S) + time of the
queued tasks) behind it. At each event, every waiting task in SPT order takes the cheapest of these places over all
GPUs. The rule is greedy: nothing is planned ahead, nothing is batched, and later arrivals are not foreseen.

Example: two tasks with 2 and 5 iterations that take turns end after 4 and 7 s at 100 W above idle: 700 J, and at
p = 10 W another 10 (4 + 7) J.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> gpu, short, long = toy_gpu(), Workload("mobilenet", 4), Workload("resnet18", 4)
>>> sets = SetPredictions(ToyPredictor(), clocks=2, price_w=10.0)
>>> sets.predict(gpu, [(short, long)])
>>> sets.drain(gpu, [(long, 5.0), (short, 2.0)])
(810.0, 7.0)

Sources: energy plus flow time as one objective of online scheduling with variable speed: Albers and Fujiwara 2007,
doi:10.1145/1290672.1290686. Little's law: Little 1961, doi:10.1287/opre.9.3.383. The policy itself is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from heshare.policies.policy import Action, Event, GpuView, Policy, SetClock, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

Set = tuple[Workload, ...]
"""Workloads that share a GPU, sorted."""
Running = tuple[Workload, float]
"""A workload and its iterations left."""
_TIED = 1 + 1e-9
"""Ends that differ by rounding alone are one: otherwise a step of almost no length would follow."""


class SetPredictions:
    """Predictions of sets of workloads at a few clocks of each GPU, and their costs; each set is predicted once.

    The clocks are spread evenly over a GPU's grid; `price_w` is p, the cost of a second in the system, W.
    """

    def __init__(self, predictor: Predictor, clocks: int, price_w: float) -> None:
        self.price_w, self.clocks = price_w, clocks
        self._predictor = predictor
        self._predicted: dict[tuple[Gpu, Set], tuple[FloatArray, FloatArray]] = {}
        self._chosen: dict[tuple[Gpu, Set, int], int] = {}
        self._steps: dict[tuple[Gpu, Set], tuple[list[float], float]] = {}

    def predict(self, gpu: Gpu, sets: Iterable[Set]) -> None:
        """Predict sets and their subsets, which remain as tasks end, as far as they are new; all in one call."""
        missing = [whole for whole in sets if (gpu, whole) not in self._predicted]
        parts = {part for whole in missing for size in range(1, len(whole) + 1) for part in combinations(whole, size)}
        new = sorted(part for part in parts if (gpu, part) not in self._predicted)
        if not new:
            return
        grid = clock_grid(gpu, self.clocks)
        residents = [tuple(Resident(workload) for workload in part) for part in new for _ in grid]
        runs = self._predictor.co_run(residents, gpu, grid * len(new))
        for number, part in enumerate(new):
            rows = slice(number * len(grid), (number + 1) * len(grid))
            self._predicted[gpu, part] = runs.time_s[rows, : len(part)], runs.power_w[rows]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Return the seconds per iteration alone at the top clock."""
        return float(self._predicted[gpu, (workload,)][0][-1, 0])

    def mhz(self, gpu: Gpu, running: Set, queued: int) -> int:
        """Return f*, the cheapest clock for a set with so many tasks queued behind it, MHz."""
        return clock_grid(gpu, self.clocks)[self._cheapest_clock(gpu, running, queued)]

    def drain(self, gpu: Gpu, running: Sequence[Running]) -> tuple[float, float]:
        """Return the cost until every running task has ended with no further start, J, and the time until then, s."""
        remaining = sorted(running)
        cost_j = now_s = 0.0
        while remaining:
            times_s, rate_w = self._step(gpu, tuple([workload for workload, _ in remaining]))
            ends_s = [left * time_s for (_, left), time_s in zip(remaining, times_s, strict=True)]
            step_s = min(ends_s)
            cost_j += step_s * rate_w
            now_s += step_s
            remaining = [
                (workload, left - step_s / time_s)
                for (workload, left), time_s, end_s in zip(remaining, times_s, ends_s, strict=True)
                if end_s > step_s * _TIED
            ]
        return cost_j, now_s

    def _step(self, gpu: Gpu, running: Set) -> tuple[list[float], float]:
        """Return seconds per iteration at f* without queued tasks, and the cost per second of that, W."""
        key = gpu, running
        if key not in self._steps:
            times_s, power_w = self._predicted[key]
            clock = self._cheapest_clock(gpu, running, 0)
            rate_w = float(power_w[clock]) - gpu.idle_w + self.price_w * len(running)
            self._steps[key] = times_s[clock].tolist(), rate_w
        return self._steps[key]

    def _cheapest_clock(self, gpu: Gpu, running: Set, queued: int) -> int:
        key = gpu, running, queued
        if key not in self._chosen:
            times_s, power_w = self._predicted[gpu, running]
            relative_time = (times_s / times_s[-1]).mean(axis=1)
            rate_w = power_w - gpu.idle_w + self.price_w * (len(running) + queued)
            self._chosen[key] = int(np.argmin(rate_w * relative_time))
        return self._chosen[key]


@cache
def clock_grid(gpu: Gpu, clocks: int) -> list[int]:
    """Return so many clocks of a GPU's grid, evenly spread with the top one, MHz."""
    return list(spread_clocks(gpu.clocks_mhz, clocks))


@dataclass(slots=True)
class _GpuState:
    """One GPU while an event is processed: its running tasks, their cost and end, and the tasks queued for it."""

    view: GpuView
    running: list[Running]
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
        return self.view.gpu.name, tuple(self.running), self.free_mib, self.queued, self.queued_s, self.end_s


@dataclass(frozen=True, slots=True)
class _Placement:
    """One way to run a task: its GPU, whether it queues, what it adds to the cost, and its effect.

    For a task that starts, `seconds` is when everything that then runs has ended; for a queued one its time alone.
    """

    state: _GpuState
    queued: bool
    cost_j: float
    seconds: float
    running: list[Running]


@register("marginal", title="Marginal")
class Marginal(Policy):
    """Waiting tasks, the shortest first, each where and when it adds least to the cost E + p T.

    The defaults were chosen on task sets that no comparison uses.

    Args:
        price_w: p, the cost of a second that a task spends in the system, W. About 30 is the end of least energy, 300
            and more that of least JCT.
        most: the largest number of tasks that share a GPU.
        clocks: the number of clocks of a GPU's grid that are considered.
        overlap: the share of its time alone by which a queued task delays those behind it: less than 1, because it
            will share the GPU with others.
        look: the number of waiting tasks that are considered at an event, the shortest first.
        sizes: the largest inference batch size that may be chosen, in steps of two from the task's own up; 0 keeps the
            task's own.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "marginal"
    gangs = False
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        price_w: float = 100.0,
        most: int = 4,
        clocks: int = 8,
        overlap: float = 0.7,
        look: int = 200,
        sizes: int = 0,
    ) -> None:
        require("price_w", price_w, 0 < price_w < np.inf, "watts above zero")
        require("most", most, most >= 1, "at least one task")
        require("clocks", clocks, clocks >= 1, "at least one clock")
        require("overlap", overlap, 0 <= overlap <= 1, "a share from 0 to 1")
        require("look", look, look >= 1, "at least one task")
        require("sizes", sizes, sizes >= 0, "an inference batch size, or 0 for the task's own")
        self._price_w, self._most, self._clocks, self._overlap, self._look = price_w, most, clocks, overlap, look
        self._largest_size = sizes

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all predictions and starts."""
        super().reset(cluster, predictor, rng)
        self._kinds = cluster.kinds
        self._sets = SetPredictions(predictor, self._clocks, self._price_w)
        self._started: dict[int, Workload] = {}
        self._alone_s: dict[Workload, float] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Evaluate every waiting task on every GPU; start those whose cheapest place is beside the running tasks."""
        order = self._order(view)
        states = [self._state(gpu, bool(order)) for gpu in view.gpus]
        starts = self._starts(order, view, states)
        # Clocks first: a task that starts now runs at the clock that was chosen with it.
        for state in states:
            if state.running:
                sm_mhz = self._sets.mhz(state.view.gpu, state.workloads, state.queued)
                if sm_mhz != state.view.requested_mhz:
                    yield SetClock(state.view.index, sm_mhz)
        yield from starts

    def _order(self, view: View) -> list[Task]:
        alone_s = {task.id: view.remaining[task.id] * self._fastest_s(task.workload) for task in view.waiting}
        return sorted(view.waiting, key=lambda task: (alone_s[task.id], task.id))[: self._look]

    def _fastest_s(self, workload: Workload) -> float:
        if workload not in self._alone_s:
            able = self._able(workload)
            for kind in able:
                self._sets.predict(kind, [(workload,)])
            self._alone_s[workload] = min([self._sets.alone_s(kind, workload) for kind in able], default=math.inf)
        return self._alone_s[workload]

    def _able(self, workload: Workload) -> list[Gpu]:
        # A workload may have no prediction on a type of GPU that cannot hold it.
        need_mib = memory_mib(workload)
        return [kind for kind in self._kinds if need_mib <= kind.memory_mib]

    def _state(self, gpu: GpuView, costs: bool) -> _GpuState:
        tasks = gpu.running.values()
        running = [(self._started.get(each.task.id, each.task.workload), each.remaining) for each in tasks]
        state = _GpuState(gpu, running, gpu.free_mib)
        if running:
            self._sets.predict(gpu.gpu, [state.workloads])
        if costs:
            state.cost_j, state.end_s = self._sets.drain(gpu.gpu, running)
        return state

    def _starts(self, order: Sequence[Task], view: View, states: Sequence[_GpuState]) -> list[Start]:
        starts = []
        for task in order:
            gpu = self._place(task, view.remaining[task.id], states)
            if gpu is not None:
                size = self._started[task.id].batch_size
                starts.append(Start(task.id, gpu, batch_size=None if size == task.workload.batch_size else size))
        return starts

    def _place(self, task: Task, iterations: float, states: Sequence[_GpuState]) -> int | None:
        # Reversed, so that of interchangeable GPUs the one with the lowest index is kept.
        distinct = list({state.signature: state for state in reversed(states)}.values())
        placements = [
            placement
            for workload in _sized(task.workload, self._largest_size)
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
        need_mib = memory_mib(workload)
        beside = [state for state in states if self._may_start(state, need_mib)]
        able = self._able(workload)
        for kind in able:
            joined = [tuple(sorted((*state.workloads, workload))) for state in beside if state.view.gpu == kind]
            self._sets.predict(kind, [(workload,), *joined])
        alone = {kind.name: self._sets.drain(kind, [(workload, iterations)]) for kind in able}
        for state in states:
            if (state.running or state.queued) and need_mib <= state.view.gpu.memory_mib:
                alone_j, alone_s = alone[state.view.gpu.name]
                waiting_j = self._price_w * (state.end_s + state.queued_s)
                yield _Placement(state, True, alone_j + waiting_j, alone_s, [])
        for state in beside:
            running = [*state.running, (workload, iterations)]
            cost_j, end_s = self._sets.drain(state.view.gpu, running)
            yield _Placement(state, False, cost_j - state.cost_j, end_s, running)

    def _may_start(self, state: _GpuState, need_mib: float) -> bool:
        """Return whether a task may start beside the running ones: none overtakes one that is queued there."""
        room = min(self._most, state.view.gpu.mps_clients)
        return not state.queued and len(state.running) < room and need_mib <= state.free_mib


def _sized(workload: Workload, largest: int) -> list[Workload]:
    found = [workload]
    while 2 * found[-1].batch_size <= largest:
        found.append(replace(workload, batch_size=2 * found[-1].batch_size))
    return found
