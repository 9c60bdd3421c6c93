"""Online policies: HeShare and HeShare+ planned again as tasks arrive, with the planning time charged.

The paper plans a task set that is there from the start. Here tasks arrive at times a_i, and JCTs count from there. A
plan is made again when tasks have arrived, or when a GPU has become idle while tasks wait for others (rolling horizon):
over the waiting tasks only, with the moment r_g at which each GPU g becomes free, and from the previous plans as seeds.
With a planning time of c that begins now, the plan can be followed from c on, so that GPU g begins its part at

    ready_g = max(0, r_g - c),    r_g = max over tasks on g of remaining iterations x predicted seconds per iteration

after that, and every task of its queue waits ready_g in addition. A plan minimises the energy E and

    T = sum over g of (T_g + ready_g |S_g|)

over the assignments S_g of the waiting tasks; what the tasks have waited already is the same for all plans. Until the
plan is ready the previous one is followed, and what that starts is removed from the new one. The planning time is

    c(n) = fixed + n (square min(n, whole) + step x steps)

for n tasks and so many generations or rounds.

Example: c(4) with square = 0.5 s, step = 0.01 s and 100 steps is 1 + 4 (0.5 x 4 + 0.01 x 100) s.

>>> PlanningTime(fixed_s=1.0, square_s=0.5, step_s=0.01, whole=10).of(4, 100)
13.0

Source: rolling horizons: Sethi and Sorger 1991, doi:10.1007/BF02283607. The charge of planning time is ours.
"""

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from heshare.lab.plus import heshare_plus
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS
from heshare.policies.heshare import TITLES
from heshare.policies.plan_release import start_batch
from heshare.policies.policy import Action, Event, EventKind, GpuView, Policy, Traits, View, Wait
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
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident

_SOON_S = 1e-9
"""Waits shorter than this are over: the time of a tick is rounded."""


@dataclass(frozen=True, slots=True)
class PlanningTime:
    """A model of how long planning takes: `fixed + n (square min(n, whole) + step steps)` for n tasks.

    Measured with the forest on one core of the machine that this package is developed on, for 5 to 120 tasks on 4 to
    32 GPUs, mostly within a factor of two; the number of GPUs hardly matters. `make bench` measures it again.

    Attributes:
        fixed_s: whatever the tasks, s.
        square_s: for each pair of tasks, s.
        step_s: for each task and step (a generation, or a round), s.
        whole: task sets up to this size are planned as a whole.
    """

    fixed_s: float
    square_s: float
    step_s: float
    whole: int = 300

    def of(self, tasks: int, steps: int) -> float:
        """Return the time of a planning of so many tasks in so many steps, s."""
        return self.fixed_s + tasks * (self.square_s * min(tasks, self.whole) + self.step_s * steps)


class OnlinePlanner(Policy):
    """Plans again at arrivals, over the tasks that have not started, and releases the plan's batches GPU by GPU.

    Args:
        name: the name without the choice.
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        steps: generations or rounds of a planning.
        time: the model of planning times.
        interval_s: least time from the beginning of one planning to that of the next, s; assumed.
        charge: the share of the planning time that is charged; 0 (plan at once) is right on real GPUs, where planning
            takes real time.
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
        self._interval_s, self._charge, self._warm = interval_s, charge, warm
        self._steps, self._time = steps, time

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all plans before a new run."""
        super().reset(cluster, predictor, rng)
        self._predictions = TaskPredictions(predictor)
        self._queues: list[deque[Batch]] = [deque() for _ in cluster.gpus]
        self._seed_plans: tuple[Plan, ...] = ()
        self._next_queues: Sequence[Sequence[Batch]] | None = None
        self._ready_at_s = self._next_planning_s = 0.0
        self._stale = self._wait_requested = False

    @abstractmethod
    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return a front on GPUs that are ready at `ready_s`, s from now, shape (k,); `seeds` are the first schemes."""

    @abstractmethod
    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return the plans of a front with which the next planning begins."""

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Follow a plan that has become ready, release batches, and plan again if the plan is stale."""
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
            # A planning that takes no time may have given batches to GPUs that are free at this moment.
            yield from self._release(view, waiting, started)

    def charged_s(self, tasks: int) -> float:
        """Return the time that a planning of so many tasks is charged, s."""
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
        self._stale = self._wait_requested = False
        self._next_planning_s = now_s + max(planning_s, self._interval_s)
        if planning_s > 0:
            self._next_queues, self._ready_at_s = chosen.queues, now_s + planning_s
            yield Wait(self._ready_at_s)
        else:
            self._follow(chosen.queues, waiting)

    def _follow(self, queues: Sequence[Sequence[Batch]], waiting: Mapping[int, Task]) -> None:
        remaining = [[_waiting_part(batch, waiting) for batch in queue] for queue in queues]
        self._queues = [deque(batch for batch in queue if batch.tasks) for queue in remaining]

    def _release(self, view: View, waiting: dict[int, Task], started: dict[int, Batch]) -> Iterator[Action]:
        for gpu in view.gpus:
            # `view` is from before this event's actions: a GPU in `started` only seems to be idle.
            if gpu.index in started or len(gpu.running) or not self._queues[gpu.index]:
                continue
            batch = started[gpu.index] = self._queues[gpu.index].popleft()
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
            measured, alone_s = math.isfinite(running.time_s), self._predictions.alone_s
            ends_s.append(running.remaining * (running.time_s if measured else alone_s(running.task.workload, gpu.gpu)))
        return max(ends_s)

    def _seeds(self, tasks: Sequence[Task]) -> list[IntArray]:
        """Return the schemes of the previous plans; new tasks are assigned at random to a GPU that they fit."""
        fits = fit_mask(tasks, self.cluster)
        seeds = []
        for plan in self._seed_plans:
            scheme, drawn = plan.scheme, random_schemes(fits, 1, self.rng)[0].tolist()
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

    def __init__(
        self,
        choice: PlanChoice = "trade-off",
        *,
        generations: int = 50,
        settings: Settings = DEFAULTS,
        **shared: Any,
    ) -> None:
        self._settings = replace(settings, generations=generations)
        super().__init__("heshare-online", choice, steps=generations, time=self.TIME, **shared)

    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return half a population of plans, spread over the front."""
        return tuple(front.plans[:: -(-2 * len(front) // self._settings.population)])

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return HeShare's front."""
        schemes = np.array(seeds) if seeds else None
        return planner.plan(
            tasks, self.cluster, self.predictor, rng=self.rng, settings=self._settings, ready_s=ready_s, seeds=schemes
        )


class HeSharePlusOnline(OnlinePlanner):
    """HeShare+, planned again as tasks arrive; further parameters are those of `OnlinePlanner`.

    Args:
        rounds: of each planning; fewer than for a whole task set, since a planning begins with the previous plans. So
            are the weights, `WEIGHTS`, and `COARSE` in the first round: more of them change no run noticeably.
    """

    TIME = PlanningTime(fixed_s=0.01, square_s=3.5e-4, step_s=7e-3)
    WEIGHTS, COARSE = 8, 5

    def __init__(self, choice: PlanChoice = "trade-off", *, rounds: int = 2, **shared: Any) -> None:
        self._effort = replace(DEFAULT_SETTINGS, rounds=rounds, weights=self.WEIGHTS, coarse_weights=self.COARSE)
        super().__init__("heshare+-online", choice, steps=rounds, time=self.TIME, **shared)

    def seed_plans(self, front: Front) -> tuple[Plan, ...]:
        """Return the three named plans."""
        return front.en_opt, front.trade_off, front.jct_opt

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Return the improved scheduler's front."""
        cluster, predictor = self.cluster, self.predictor
        return heshare_plus.optimise(
            tasks, cluster, predictor, rng=self.rng, effort=self._effort, ready_s=ready_s, seeds=seeds
        )


_SHARED: Mapping[str, Value] = MappingProxyType({"interval_s": 10.0, "charge": 1.0, "warm": True})


def _register(choice: PlanChoice, title: str) -> None:
    @register(f"heshare-online:{choice}", title=f"{title}, online", parameters=_SHARED, preset={"generations": 50})
    def heshare(**changed: Any) -> HeShareOnline:
        return HeShareOnline(choice, **changed)

    @register(f"heshare+-online:{choice}", title=f"HeShare+ {title}, online", parameters=_SHARED, preset={"rounds": 2})
    def plus(**changed: Any) -> HeSharePlusOnline:
        return HeSharePlusOnline(choice, **changed)


for _choice, _title in TITLES.items():
    _register(_choice, _title)
