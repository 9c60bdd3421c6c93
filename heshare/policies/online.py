"""HeShare and HeShare+ online: planned again as tasks arrive, over all that has not started, and the planning charged.

The paper plans a task set that is there from the start. Here a plan is made anew when tasks have arrived, or when a GPU
runs dry while tasks wait for others: over what waits, knowing when each GPU will be free (a rolling horizon), beginning
with the plans before (warm). Planning takes virtual time, by a model of what it takes: until it is over the plan before
goes on, and what that starts is left out of the new one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from heshare.policies.beliefs import Beliefs
from heshare.policies.description import Value, check
from heshare.policies.heshare import Choice
from heshare.policies.policy import Action, Event, GpuView, Kind, SetClock, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.scheduling import improved, planner
from heshare.scheduling.effort import DEFAULT
from heshare.scheduling.objectives import FloatArray, IntArray, fit_mask
from heshare.scheduling.operators import anywhere
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident

# Waits shorter than this are over: the time of a tick is rounded.
_SOON_S = 1e-9


@dataclass(frozen=True, slots=True)
class PlanningTime:
    """How long planning takes: `fixed + square n min(n, whole) + step n steps`, for n tasks.

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
        """Planning of so many tasks in so many steps, s."""
        return self.fixed_s + tasks * (self.square_s * min(tasks, self.whole) + self.step_s * steps)


class Online(ABC):
    """Plans again at arrivals, over what has not started, and releases the plan's batches GPU by GPU.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        interval_s: least time from the beginning of one planning to that of the next, s; assumed.
        charge: how much of the planning time is charged; 0 (plan at once) is right on real GPUs, where it takes time.
        warm: whether a plan begins with those before.
        steps: generations or rounds of a planning.
        time: what a planning takes.

    Raises:
        InputError: a parameter is out of its range.
    """

    gangs = False
    tick_s: float | None = None
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)
    cluster: Cluster
    predictor: Predictor
    rng: np.random.Generator

    def __init__(
        self, name: str, choice: Choice, *, interval_s: float, charge: float, warm: bool, steps: int, time: PlanningTime
    ) -> None:
        check("interval_s", interval_s, interval_s >= 0, "seconds, at least 0")
        check("charge", charge, charge >= 0, "a factor of at least 0")
        self.name = f"{name}:{choice}"
        self.choice = choice
        self._interval_s, self._charge, self._warm = interval_s, charge, warm
        self._steps, self._time = steps, time

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every plan."""
        self.cluster, self.predictor, self.rng = cluster, predictor, rng
        self._beliefs = Beliefs(predictor)
        self._queues: list[deque[Batch]] = [deque() for _ in cluster.gpus]
        self._last: tuple[Plan, ...] = ()
        self._coming: Sequence[Sequence[Batch]] | None = None
        self._coming_s = self._next_s = 0.0
        self._stale = self._asked = False

    @abstractmethod
    def kept(self, front: Front) -> tuple[Plan, ...]:
        """The plans that the next planning begins with."""

    @abstractmethod
    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """Plan tasks on GPUs that begin at `ready_s`, s from now, shape (k,); `seeds` are schemes to begin with."""

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Take up a plan that is ready, release batches, and plan again where it is time."""
        self._stale = self._stale or event.kind is Kind.ARRIVAL
        waiting = {task.id: task for task in view.waiting}
        begun: dict[int, Batch] = {}
        if self._coming is not None and event.time_s >= self._coming_s - _SOON_S:
            self._take_up(self._coming, waiting)
            self._coming = None
        dry = event.kind is Kind.COMPLETION and event.gpu is not None and not self._queues[event.gpu]
        yield from self._release(view, waiting, begun)
        self._stale = self._stale or dry
        if self._stale and waiting and self._coming is None:
            yield from self._plan(event.time_s, view, waiting, begun)
            yield from self._release(view, waiting, begun)

    def charged_s(self, tasks: int) -> float:
        """What a planning of so many tasks is charged, s."""
        return self._charge * self._time.of(tasks, self._steps)

    def _plan(
        self, now_s: float, view: View, waiting: Mapping[int, Task], begun: Mapping[int, Batch]
    ) -> Iterator[Action]:
        """Begin a planning now, or as soon as the last one is long enough ago."""
        if now_s < self._next_s - _SOON_S:
            if not self._asked:
                self._asked = True
                yield Wait(self._next_s)
            return
        tasks = tuple(waiting.values())
        takes_s = self.charged_s(len(tasks))
        free_s = [self._free_s(gpu, view, begun.get(gpu.index)) for gpu in view.gpus]
        ready_s = np.maximum(0.0, np.array(free_s) - takes_s)
        found = self.front(tasks, ready_s, self._seeds(tasks) if self._warm else [])
        chosen = {"trade-off": found.trade_off, "en-opt": found.en_opt, "jct-opt": found.jct_opt}[self.choice]
        self._last = self.kept(found)
        self._stale = self._asked = False
        self._next_s = now_s + max(takes_s, self._interval_s)
        if takes_s > 0:
            self._coming, self._coming_s = chosen.queues, now_s + takes_s
            yield Wait(self._coming_s)
        else:
            self._take_up(chosen.queues, waiting)

    def _take_up(self, queues: Sequence[Sequence[Batch]], waiting: Mapping[int, Task]) -> None:
        """Follow these queues from now on, without what has been started since they were planned."""
        left = [[_only(batch, waiting) for batch in queue] for queue in queues]
        self._queues = [deque(batch for batch in queue if batch.tasks) for queue in left]

    def _release(self, view: View, waiting: dict[int, Task], begun: dict[int, Batch]) -> Iterator[Action]:
        """Start the next batch wherever nothing runs; what is begun no longer waits."""
        for gpu in view.gpus:
            if gpu.index in begun or len(gpu.running) or not self._queues[gpu.index]:
                continue
            batch = begun[gpu.index] = self._queues[gpu.index].popleft()
            if batch.sm_mhz != gpu.requested_mhz:
                yield SetClock(gpu.index, batch.sm_mhz)
            for task, mps_pct in zip(batch.tasks, batch.mps_pct, strict=True):
                del waiting[task]
                yield Start(task, gpu.index, mps_pct)

    def _free_s(self, gpu: GpuView, view: View, begun: Batch | None) -> float:
        """When a GPU's last task is believed to end, s from now; `begun` is what starts on it at this moment."""
        if begun is not None:
            tasks = {task.id: task for task in view.waiting}
            pairs = zip(begun.tasks, begun.mps_pct, strict=True)
            residents = tuple([Resident(tasks[task].workload, pct) for task, pct in pairs])
            times_s = self.predictor.co_run([residents], gpu.gpu, [begun.sm_mhz]).time_s[0].tolist()
            return float(max(view.remaining[task] * each for task, each in zip(begun.tasks, times_s, strict=True)))
        left_s = 0.0
        for one in gpu.running.values():
            time_s = one.time_s if math.isfinite(one.time_s) else self._beliefs.alone_s(one.task.workload, gpu.gpu)
            left_s = max(left_s, one.remaining * time_s)
        return left_s

    def _seeds(self, tasks: Sequence[Task]) -> list[IntArray]:
        """The schemes of the plans before; newcomers are put anywhere they fit, by chance."""
        fits = fit_mask(tasks, self.cluster)
        seeds = []
        for plan in self._last:
            known, drawn = plan.scheme, anywhere(fits, 1, self.rng)[0].tolist()
            seeds.append(np.array([known.get(task.id, gpu) for task, gpu in zip(tasks, drawn, strict=True)]))
        return seeds


def _only(batch: Batch, waiting: Mapping[int, Task]) -> Batch:
    """A batch without the tasks that do not wait any more."""
    kept = [(task, pct) for task, pct in zip(batch.tasks, batch.mps_pct, strict=True) if task in waiting]
    return replace(batch, tasks=tuple(task for task, _ in kept), mps_pct=tuple(pct for _, pct in kept))


class HeShareOnline(Online):
    """HeShare, planned again as tasks arrive.

    Args:
        choice: see `Online`.
        generations: of each planning; fewer than for a whole task set, since plans begin with those before.
        interval_s: see `Online`.
        charge: see `Online`.
        warm: see `Online`.
        settings: how to plan otherwise.
    """

    TIME = PlanningTime(fixed_s=0.01, square_s=1.3e-4, step_s=8e-6)

    def __init__(
        self,
        choice: Choice = "trade-off",
        *,
        generations: int = 50,
        interval_s: float = 10.0,
        charge: float = 1.0,
        warm: bool = True,
        settings: Settings = planner.DEFAULTS,
    ) -> None:
        self._settings = replace(settings, generations=generations)
        shared = {"interval_s": interval_s, "charge": charge}
        super().__init__("heshare-online", choice, warm=warm, steps=generations, time=self.TIME, **shared)

    def kept(self, front: Front) -> tuple[Plan, ...]:
        """Half a population, spread over the front."""
        return front.plans[:: -(-2 * len(front) // self._settings.population)]

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """HeShare's front."""
        begin = np.array(seeds) if seeds else None
        return planner.plan(
            tasks, self.cluster, self.predictor, rng=self.rng, settings=self._settings, ready_s=ready_s, seeds=begin
        )


class HeSharePlusOnline(Online):
    """HeShare+, planned again as tasks arrive.

    Args:
        choice: see `Online`.
        rounds: of each planning; fewer than for a whole task set, since plans begin with those before. So are the
            weights, `WEIGHTS` and `COARSE` in the first round: more of them change nothing that a run would show.
        interval_s: see `Online`.
        charge: see `Online`.
        warm: see `Online`.
    """

    TIME = PlanningTime(fixed_s=0.01, square_s=3.5e-4, step_s=7e-3, whole=DEFAULT.undivided)
    WEIGHTS, COARSE = 8, 5

    def __init__(
        self,
        choice: Choice = "trade-off",
        *,
        rounds: int = 2,
        interval_s: float = 10.0,
        charge: float = 1.0,
        warm: bool = True,
    ) -> None:
        self._effort = replace(DEFAULT, rounds=rounds, weights=self.WEIGHTS, coarse=self.COARSE)
        shared = {"interval_s": interval_s, "charge": charge}
        super().__init__("heshare+-online", choice, warm=warm, steps=rounds, time=self.TIME, **shared)

    def kept(self, front: Front) -> tuple[Plan, ...]:
        """The three named plans."""
        return front.en_opt, front.trade_off, front.jct_opt

    def front(self, tasks: Sequence[Task], ready_s: FloatArray, seeds: Sequence[IntArray]) -> Front:
        """The improved scheduler's front."""
        asked = (tasks, self.cluster, self.predictor)
        return improved.optimise(*asked, rng=self.rng, effort=self._effort, ready_s=ready_s, seeds=seeds)


_SHARED: Mapping[str, Value] = MappingProxyType({"interval_s": 10.0, "charge": 1.0, "warm": True})


def _register(choice: Choice, title: str) -> None:
    """Enter both online forms of one choice, as forms of HeShare: they are asked for by name."""

    @register(f"heshare-online:{choice}", title=f"{title}, online", parameters=_SHARED, preset={"generations": 50})
    def heshare(**changed: Any) -> HeShareOnline:
        return HeShareOnline(choice, **changed)

    @register(f"heshare+-online:{choice}", title=f"HeShare+ {title}, online", parameters=_SHARED, preset={"rounds": 2})
    def plus(**changed: Any) -> HeSharePlusOnline:
        return HeSharePlusOnline(choice, **changed)


for _choice, _title in (("trade-off", "Trade-off"), ("en-opt", "En-opt"), ("jct-opt", "JCT-opt")):
    _register(cast(Choice, _choice), _title)
