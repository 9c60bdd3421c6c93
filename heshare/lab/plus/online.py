"""Online planning: HeShare and HeShare+ planned again as tasks arrive, and Marginal, which places one task at a time.

`docs/bound.md` has the equations and their sources.
"""

import heapq
import math
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import TypedDict, Unpack

import numpy as np

from heshare.lab.plus.heshare_plus import DEFAULT_SETTINGS, optimise
from heshare.policies.heshare import TITLES
from heshare.policies.plan_release import start_batch
from heshare.policies.policy import Action, Event, EventKind, GpuView, Policy, SetClock, Start, Traits, View, Wait
from heshare.policies.predictions import TaskPredictions
from heshare.policies.registry import Value, register
from heshare.prediction.predictor import Predictor
from heshare.scheduling import planner
from heshare.scheduling.front import Front, PlanChoice
from heshare.scheduling.objectives import fit_mask
from heshare.scheduling.operators import random_schemes
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

_SOON_S = 1e-9
"""Waits shorter than this are over: the time of a tick is rounded."""


@dataclass(frozen=True, slots=True)
class PlanningTime:
    """A model of how long planning takes: `fixed + n (square min(n, whole) + step steps)` for n tasks.

    Measured with the forest on one core, for 5 to 120 tasks on 4 to
    32 GPUs, mostly within a factor of two; the number of GPUs hardly matters. `make bench` measures it again.

    Attributes:
        fixed_s: whatever the tasks, s.
        square_s: for each pair of tasks, s.
        step_s: for each task and step (a generation, or a round), s.
        whole: task sets up to this size are planned as a whole.

    Example:
        4 tasks and 100 steps take 1 + 4 (0.5 x 4 + 0.01 x 100) s.

        >>> PlanningTime(fixed_s=1.0, square_s=0.5, step_s=0.01, whole=10).of(4, 100)
        13.0
    """

    fixed_s: float
    square_s: float
    step_s: float
    whole: int = 300

    def of(self, tasks: int, steps: int) -> float:
        """Return the time of a planning, s."""
        return self.fixed_s + tasks * (self.square_s * min(tasks, self.whole) + self.step_s * steps)


class ReplanningOptions(TypedDict, total=False):
    """Options of `OnlinePlanner` that its policies share."""

    interval_s: float
    charge: float
    warm: bool


class OnlinePlanner(Policy):
    """Plans again at arrivals, over the tasks that have not started, and releases the plan's batches GPU by GPU.

    Args:
        name: the name without the choice.
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        steps: generations or rounds of a planning.
        time: the model of planning times.
        interval_s: least time from the beginning of one planning to that of the next, s; assumed.
        charge: the share of the planning time that is simulated; 0 (plan at once) on real GPUs, where planning takes
            real time.
        warm: whether a planning begins with the previous plans.

    Raises:
        InputError: a parameter is out of its range.
    """

    gangs = False
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        name: str,
        choice: PlanChoice,
        *,
        steps: int,
        time: PlanningTime,
        interval_s: float = 10.0,
        charge: float = 1.0,
        warm: bool = True,
    ) -> None:
        require("interval_s", interval_s, interval_s >= 0, "seconds, at least 0")
        require("charge", charge, charge >= 0, "a factor of at least 0")
        self.name = f"{name}:{choice}"
        self.choice = choice
        self._interval_s = interval_s
        self._charge = charge
        self._warm = warm
        self._steps = steps
        self._time = time

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all plans before a new run."""
        super().reset(cluster, predictor, rng)
        self._predictions = TaskPredictions(predictor)
        self._queues: list[deque[Batch]] = [deque() for _ in cluster.gpus]
        self._seed_plans: tuple[Plan, ...] = ()
        self._next_queues: Sequence[Sequence[Batch]] | None = None
        self._ready_at_s = 0.0
        self._next_planning_s = 0.0
        self._stale = False
        self._wait_requested = False

    @abstractmethod
    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return a front on GPUs that are ready at `ready_s`, s from now, shape (k,); `seeds` are the first schemes."""

    @abstractmethod
    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return the plans of a front with which the next planning begins."""

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Switch to a plan that has become ready, release batches, and plan again if the plan is stale."""
        self._stale = self._stale or event.kind is EventKind.ARRIVAL
        waiting = {task.id: task for task in view.waiting}
        started: dict[int, Batch] = {}
        if self._next_queues is not None and event.time_s >= self._ready_at_s - _SOON_S:
            self._follow(self._next_queues, waiting)
            self._next_queues = None
        idle = event.kind is EventKind.COMPLETION and event.gpu is not None and not self._queues[event.gpu]
        yield from self._release(view, waiting, started)
        self._stale = self._stale or idle
        if self._stale and waiting and self._next_queues is None:
            yield from self._plan(event.time_s, view, waiting, started)
            # A planning that takes no time may have assigned batches to GPUs that are free now.
            yield from self._release(view, waiting, started)

    def charged_s(self, tasks: int) -> float:
        """Return the simulated time of a planning, s."""
        return self._charge * self._time.of(tasks, self._steps)

    def _plan(
        self, now_s: float, view: View, waiting: Mapping[int, Task], started: Mapping[int, Batch]
    ) -> Iterator[Action]:
        if now_s < self._next_planning_s - _SOON_S:
            if not self._wait_requested:
                self._wait_requested = True
                yield Wait(self._next_planning_s)
            return

        tasks = tuple(waiting.values())
        planning_s = self.charged_s(len(tasks))
        free_s = [self._free_s(gpu, view, started.get(gpu.index)) for gpu in view.gpus]
        ready_s = np.maximum(0.0, np.array(free_s) - planning_s)

        front = self.front(tasks, ready_s, self._seeds(tasks) if self._warm else [])
        chosen = front.choose(self.choice)

        self._seed_plans = self.seed_plans(front)
        self._stale = False
        self._wait_requested = False
        self._next_planning_s = now_s + max(planning_s, self._interval_s)

        if planning_s > 0:
            self._next_queues = chosen.queues
            self._ready_at_s = now_s + planning_s
            yield Wait(self._ready_at_s)
        else:
            self._follow(chosen.queues, waiting)

    def _follow(self, queues: Sequence[Sequence[Batch]], waiting: Mapping[int, Task]) -> None:
        remaining = [[_waiting_part(batch, waiting) for batch in queue] for queue in queues]
        self._queues = [deque(batch for batch in queue if batch.tasks) for queue in remaining]

    def _release(self, view: View, waiting: dict[int, Task], started: dict[int, Batch]) -> Iterator[Action]:
        for gpu in view.gpus:
            # `view` is from before this event's actions: a GPU in `started` is shown as idle but is not.
            if gpu.index in started or len(gpu.running) or not self._queues[gpu.index]:
                continue
            batch = self._queues[gpu.index].popleft()
            started[gpu.index] = batch
            for task in batch.tasks:
                del waiting[task]
            yield from start_batch(batch, gpu)

    def _free_s(self, gpu: GpuView, view: View, started: Batch | None) -> float:
        """Return when a GPU's last task is predicted to end, s from now; `started` is the batch that starts now."""
        if started is not None:
            tasks = {task.id: task for task in view.waiting}
            pairs = zip(started.tasks, started.mps_pct, strict=True)
            residents = tuple([Resident(tasks[task].workload, mps_pct) for task, mps_pct in pairs])
            times_s = self.predictor.co_run([residents], gpu.gpu, [started.sm_mhz]).time_s[0].tolist()
            left = [view.remaining[task] for task in started.tasks]
            return float(max(iterations * time_s for iterations, time_s in zip(left, times_s, strict=True)))
        ends_s = [0.0]
        for running in gpu.running.values():
            time_s = running.time_s
            if not math.isfinite(time_s):
                time_s = self._predictions.alone_s(running.task.workload, gpu.gpu)
            ends_s.append(running.remaining * time_s)
        return max(ends_s)

    def _seeds(self, tasks: Sequence[Task]) -> list[IntArray]:
        """Return the schemes of the previous plans; new tasks are assigned at random to a GPU that they fit."""
        fits = fit_mask(tasks, self.cluster)
        seeds = []
        for plan in self._seed_plans:
            scheme = plan.scheme
            drawn = random_schemes(fits, 1, self.rng)[0].tolist()
            seeds.append(np.array([scheme.get(task.id, gpu) for task, gpu in zip(tasks, drawn, strict=True)]))
        return seeds


def _waiting_part(batch: Batch, waiting: Mapping[int, Task]) -> Batch:
    kept = [(task, pct) for task, pct in zip(batch.tasks, batch.mps_pct, strict=True) if task in waiting]
    return replace(batch, tasks=tuple(task for task, _ in kept), mps_pct=tuple(pct for _, pct in kept))


class HeShareOnline(OnlinePlanner):
    """HeShare, planned again as tasks arrive; further parameters are those of `OnlinePlanner`.

    Args:
        generations: of each planning; fewer than for a whole task set, since a planning begins with the previous plans.
        settings: the other settings of a planning.
    """

    TIME = PlanningTime(fixed_s=0.01, square_s=1.3e-4, step_s=8e-6)
    GENERATIONS_A_TASK = 4
    """The largest number of generations for each task of a planning."""
    PLANS = 24
    """The largest number of plans in the front of a planning."""

    def __init__(
        self,
        choice: PlanChoice = "trade-off",
        *,
        generations: int = 50,
        settings: Settings = DEFAULTS,
        **shared: Unpack[ReplanningOptions],
    ) -> None:
        self._settings = replace(settings, generations=generations, front=min(settings.front, self.PLANS))
        super().__init__("heshare-online", choice, steps=generations, time=self.TIME, **shared)

    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return half a population of plans, spread over the front."""
        return tuple(front.plans[:: -(-2 * len(front) // self._settings.population)])

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return HeShare's front."""
        schemes = np.array(seeds) if seeds else None
        # Few tasks have few schemes to search.
        generations = min(self._settings.generations, self.GENERATIONS_A_TASK * len(tasks))
        settings = replace(self._settings, generations=generations)
        return planner.plan(
            tasks, self.cluster, self.predictor, rng=self.rng, settings=settings, ready_s=ready_s, seeds=schemes
        )


class HeSharePlusOnline(OnlinePlanner):
    """HeShare+, planned again as tasks arrive; further parameters are those of `OnlinePlanner`.

    Args:
        rounds: of each planning; fewer than for a whole task set, since a planning begins with the previous plans. The
            weights are fewer too, `WEIGHTS`, and `COARSE` in the first round: more of them change no run noticeably.
    """

    TIME = PlanningTime(fixed_s=0.01, square_s=3.5e-4, step_s=7e-3)
    WEIGHTS = 8
    COARSE = 5

    def __init__(
        self, choice: PlanChoice = "trade-off", *, rounds: int = 2, **shared: Unpack[ReplanningOptions]
    ) -> None:
        self._effort = replace(DEFAULT_SETTINGS, rounds=rounds, weights=self.WEIGHTS, coarse_weights=self.COARSE)
        super().__init__("heshare+-online", choice, steps=rounds, time=self.TIME, **shared)

    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return the three named plans."""
        return front.en_opt, front.trade_off, front.jct_opt

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return the improved scheduler's front."""
        return optimise(
            tasks, self.cluster, self.predictor, rng=self.rng, effort=self._effort, ready_s=ready_s, seeds=seeds
        )


_SHARED: Mapping[str, Value] = MappingProxyType({"interval_s": 10.0, "charge": 1.0, "warm": True})


def _register(choice: PlanChoice, title: str) -> None:
    @register(f"heshare-online:{choice}", title=f"{title}, online", parameters=_SHARED, preset={"generations": 50})
    def heshare(*, generations: int = 50, **shared: Unpack[ReplanningOptions]) -> HeShareOnline:
        return HeShareOnline(choice, generations=generations, **shared)

    @register(f"heshare+-online:{choice}", title=f"HeShare+ {title}, online", parameters=_SHARED, preset={"rounds": 2})
    def plus(*, rounds: int = 2, **shared: Unpack[ReplanningOptions]) -> HeSharePlusOnline:
        return HeSharePlusOnline(choice, rounds=rounds, **shared)


for _choice, _title in TITLES.items():
    _register(_choice, _title)


Set = tuple[Workload, ...]
"""Workloads that share a GPU, sorted."""
Work = tuple[Workload, float]
"""A workload and its iterations left."""
_TIED = 1 + 1e-9
"""Ends that differ by rounding alone are one: otherwise a step of almost no length would follow."""


class SetPredictions:
    """Predictions of sets of workloads at a few clocks of each type of GPU, and their costs; each is predicted once.

    The clocks are spread evenly over a GPU's grid; `price_w` is p, the cost of a second in the system, W.

    Example:
        Two tasks with 2 and 5 iterations that take turns end after 4 and 7 s at 100 W above idle: 700 J, and at
        p = 10 W another 10 (4 + 7) J.

        >>> from heshare.testing.toy import ToyPredictor, toy_gpu
        >>> from heshare.world.workload import Workload
        >>> gpu, short, long = toy_gpu(), Workload("mobilenet", 4), Workload("resnet18", 4)
        >>> sets = SetPredictions(ToyPredictor(), clocks=2, price_w=10.0)
        >>> sets.predict(gpu, [(short, long)])
        >>> sets.drain(gpu, [(long, 5.0), (short, 2.0)])
        (810.0, 7.0)
    """

    def __init__(self, predictor: Predictor, clocks: int, price_w: float) -> None:
        self.price_w = price_w
        self._clocks = clocks
        self._predictor = predictor
        self._predicted: dict[tuple[str, Set], tuple[FloatArray, FloatArray]] = {}
        self._cheapest: dict[tuple[str, Set, int], int] = {}
        self._steps: dict[tuple[str, Set], tuple[list[float], float]] = {}

    def predict(self, gpu: Gpu, sets: Iterable[Set]) -> None:
        """Predict new sets and their subsets, which remain as tasks end, in one call."""
        missing = [whole for whole in sets if (gpu.name, whole) not in self._predicted]
        parts = {part for whole in missing for size in range(1, len(whole) + 1) for part in combinations(whole, size)}
        new = sorted(part for part in parts if (gpu.name, part) not in self._predicted)
        if not new:
            return
        grid = list(spread_clocks(gpu.clocks_mhz, self._clocks))
        residents = [tuple(Resident(workload) for workload in part) for part in new for _ in grid]
        runs = self._predictor.co_run(residents, gpu, grid * len(new))
        for number, part in enumerate(new):
            rows = slice(number * len(grid), (number + 1) * len(grid))
            self._predicted[gpu.name, part] = runs.time_s[rows, : len(part)], runs.power_w[rows]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Return the seconds per iteration alone at the top clock."""
        return float(self._predicted[gpu.name, (workload,)][0][-1, 0])

    def mhz(self, gpu: Gpu, running: Set, queued: int) -> int:
        """Return f*, the cheapest clock for a set while `queued` tasks wait for it, MHz."""
        key = gpu.name, running, queued
        if key not in self._cheapest:
            grid = spread_clocks(gpu.clocks_mhz, self._clocks)
            self._cheapest[key] = grid[self._cheapest_clock(gpu, running, queued)]
        return self._cheapest[key]

    def drain(self, gpu: Gpu, running: Sequence[Work]) -> tuple[float, float]:
        """Return the cost until every running task has ended with no further start, J, and the time until then, s."""
        remaining = sorted(running)
        cost_j = 0.0
        now_s = 0.0
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
        key = gpu.name, running
        if key not in self._steps:
            times_s, power_w = self._predicted[key]
            clock = self._cheapest_clock(gpu, running, 0)
            rate_w = float(power_w[clock]) - gpu.idle_w + self.price_w * len(running)
            self._steps[key] = times_s[clock].tolist(), rate_w
        return self._steps[key]

    def _cheapest_clock(self, gpu: Gpu, running: Set, queued: int) -> int:
        times_s, power_w = self._predicted[gpu.name, running]
        relative_time = (times_s / times_s[-1]).mean(axis=1)
        rate_w = power_w - gpu.idle_w + self.price_w * (len(running) + queued)
        return int(np.argmin(rate_w * relative_time))


@dataclass(slots=True, eq=False)
class _GpuState:
    """State of one GPU: the running tasks, their cost and end, and the tasks that wait for it."""

    index: int
    gpu: Gpu
    running: list[Work] = field(default_factory=list)
    workloads: Set = ()
    free_mib: float = 0.0
    cost_j: float = 0.0
    end_at_s: float = 0.0
    queued: int = 0
    queued_s: float = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return how long another task would wait, s."""
        return max(0.0, self.end_at_s - now_s) + self.queued_s


@register("marginal", title="Marginal")
class Marginal(Policy):
    """Waiting tasks, the shortest first, each where and when it adds least to the cost E + p T.

    When a task ends, tasks may start on its GPU and on idle ones; when a task arrives, on any GPU. On other GPUs a
    set of running tasks that was too expensive to join remains too expensive. The rule is greedy: there is no plan and
    there are no batches, and later arrivals are unknown. The defaults were chosen on task sets that no comparison uses.

    Args:
        price_w: p, the cost of a second that a task spends in the system, W. About 30 gives the least energy, 300 and
            more the least JCT.
        most: the largest number of tasks that share a GPU.
        clocks: the number of clocks of a GPU's grid that are considered.
        overlap: the share of its time alone by which a queued task delays those after it: less than 1, because it
            will share the GPU with others.
        look: the number of waiting tasks that are considered at an event, the shortest first.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "marginal"
    gangs = False
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(
        self, price_w: float = 100.0, most: int = 4, clocks: int = 8, overlap: float = 0.7, look: int = 200
    ) -> None:
        require("price_w", price_w, 0 < price_w < np.inf, "watts above zero")
        require("most", most, most >= 1, "at least one task")
        require("clocks", clocks, clocks >= 1, "at least one clock")
        require("overlap", overlap, 0 <= overlap <= 1, "a share from 0 to 1")
        require("look", look, look >= 1, "at least one task")
        self._price_w = price_w
        self._most = most
        self._clocks = clocks
        self._overlap = overlap
        self._look = look

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all predictions and states."""
        super().reset(cluster, predictor, rng)
        self._kinds = cluster.kinds
        self._sets = SetPredictions(predictor, self._clocks, self._price_w)
        self._states = [_GpuState(index, gpu) for index, gpu in enumerate(cluster.gpus)]
        # Cost and time of an iteration alone by type of GPU, as far as a workload fits it.
        self._alone: dict[Workload, dict[str, tuple[float, float]]] = {}
        self._fastest_s: dict[Workload, float] = {}
        self._order: list[Task] = []

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Start the waiting tasks that cost least together with running ones, and set the clocks."""
        now_s = event.time_s
        ended = event.kind is EventKind.COMPLETION
        self._sort(view, arrived=not ended)

        # GPUs on which tasks may start, and the waits for all others, the least first, by type.
        candidates = []
        waits: dict[str, list[tuple[float, int]]] = {kind.name: [] for kind in self._kinds}
        for state, gpu in zip(self._states, view.gpus, strict=True):
            state.queued = 0
            state.queued_s = 0.0
            changed = len(gpu.running) != len(state.running) or gpu.index == event.gpu
            if changed or not ended or not gpu.running:
                self._look_at(state, gpu, now_s)
                candidates.append(state)
            else:
                waits[state.gpu.name].append((state.wait_s(now_s), state.index))
        for heap in waits.values():
            heapq.heapify(heap)
        starts = []
        for task in self._order[: self._look]:
            target = self._place(task, view.remaining[task.id], candidates, waits, now_s)
            if target is not None:
                starts.append(Start(task.id, target.index))

        # Clocks first: a task that starts now runs at the clock chosen with it.
        for state in self._states:
            if state.running:
                sm_mhz = self._sets.mhz(state.gpu, state.workloads, state.queued)
                if sm_mhz != view.gpus[state.index].requested_mhz:
                    yield SetClock(state.index, sm_mhz)
        yield from starts

    def _sort(self, view: View, *, arrived: bool) -> None:
        """Sort the waiting tasks by their time on the fastest type of GPU."""
        if not arrived:
            waiting = {task.id for task in view.waiting}
            self._order = [task for task in self._order if task.id in waiting]
            return
        for workload in {task.workload for task in view.waiting}.difference(self._alone):
            # A workload may have no prediction on a type of GPU that cannot hold it.
            able = [kind for kind in self._kinds if memory_mib(workload) <= kind.memory_mib]
            for kind in able:
                self._sets.predict(kind, [(workload,)])
            self._alone[workload] = {kind.name: self._sets.drain(kind, [(workload, 1.0)]) for kind in able}
            times_s = [self._sets.alone_s(kind, workload) for kind in able]
            self._fastest_s[workload] = min(times_s, default=math.inf)
        alone_s = {task.id: view.remaining[task.id] * self._fastest_s[task.workload] for task in view.waiting}
        self._order = sorted(view.waiting, key=lambda task: (alone_s[task.id], task.id))

    def _look_at(self, state: _GpuState, gpu: GpuView, now_s: float) -> None:
        state.running = [(each.task.workload, each.remaining) for each in gpu.running.values()]
        state.workloads = tuple(sorted(workload for workload, _ in state.running))
        state.free_mib = gpu.free_mib
        if state.running:
            self._sets.predict(state.gpu, [state.workloads])
        state.cost_j, end_s = self._sets.drain(state.gpu, state.running)
        state.end_at_s = now_s + end_s

    def _place(
        self,
        task: Task,
        iterations: float,
        candidates: list[_GpuState],
        waits: Mapping[str, list[tuple[float, int]]],
        now_s: float,
    ) -> _GpuState | None:
        """Assign a task to the GPU where it adds the least cost, and return that GPU if the task starts there."""
        workload = task.workload
        alone = self._alone[workload]
        least_j = math.inf
        chosen: _GpuState | None = None
        starts = False
        end_s = 0.0

        # Queued after the running tasks: of each type of GPU the one with the least wait, and the candidates.
        for name, (iteration_j, _) in alone.items():
            if waits[name]:
                wait_s, index = waits[name][0]
                cost_j = iterations * iteration_j + self._price_w * wait_s
                if cost_j < least_j:
                    least_j = cost_j
                    chosen = self._states[index]
        for state in candidates:
            if state.running and state.gpu.name in alone:
                cost_j = iterations * alone[state.gpu.name][0] + self._price_w * state.wait_s(now_s)
                if cost_j < least_j:
                    least_j = cost_j
                    chosen = state

        # Together with them, where memory allows; of equal GPUs, the first one.
        need_mib = memory_mib(workload) if candidates else 0.0
        tried = set()
        for state in candidates:
            room = min(self._most, state.gpu.mps_clients)
            signature = (state.gpu.name, state.free_mib, tuple(state.running))
            if len(state.running) >= room or need_mib > state.free_mib or signature in tried:
                continue
            tried.add(signature)
            self._sets.predict(state.gpu, [tuple(sorted((*state.workloads, workload)))])
            whole_j, own_end_s = self._sets.drain(state.gpu, [*state.running, (workload, iterations)])
            cost_j = whole_j - state.cost_j
            # Of equal costs a start comes before a wait, and the first GPU before others.
            if cost_j < least_j or (cost_j == least_j and not starts):
                least_j = cost_j
                chosen = state
                starts = True
                end_s = own_end_s

        if chosen is None:
            return None
        if starts:
            chosen.running = [*chosen.running, (workload, iterations)]
            chosen.workloads = tuple(sorted((*chosen.workloads, workload)))
            chosen.free_mib -= need_mib
            chosen.cost_j += least_j
            chosen.end_at_s = now_s + end_s
            return chosen

        chosen.queued += 1
        chosen.queued_s += self._overlap * iterations * alone[chosen.gpu.name][1]
        entry = (chosen.wait_s(now_s), chosen.index)
        if chosen in candidates:
            # No task overtakes one that is queued.
            candidates.remove(chosen)
            heapq.heappush(waits[chosen.gpu.name], entry)
        else:
            heapq.heapreplace(waits[chosen.gpu.name], entry)
        return None
