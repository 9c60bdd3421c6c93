"""Planning within a power budget: the batches of a front's plans at lower clocks, or later, so that power suffices.

Batches are placed one after the other, of the GPU that is free first. Each gets the clock and the earliest begin within
the power that is left that add least to the sum of JCTs: those of its tasks, and its end once for every task behind it
on its GPU. This is serial schedule generation for a resource in steps over time (Kolisch 1996).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from heshare.lab.limits.budget_policy import check_cluster
from heshare.lab.limits.limited_plan import BatchPower, BatchSteps, LimitedPlan, limited_plan
from heshare.lab.limits.power_bounds import Clock, PowerBounds, clock_levels, idle_w, top_mhz
from heshare.lab.limits.power_budget import EXCESS_W, PowerBudget
from heshare.lab.limits.power_sharing import FLOOR
from heshare.prediction.predictor import Predictor
from heshare.scheduling.pareto import Front, non_dominated
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import PlanError
from heshare.world.gpu import Gpu
from heshare.world.task import Task


class PowerRoom:
    """The power that is left within a budget over time, above the idle power of all GPUs.

    Args:
        budget: the limits.
        idle_w: idle power of all GPUs, W.
    """

    def __init__(self, budget: PowerBudget, idle_w: float) -> None:
        self._times_s: FloatArray = np.array([*budget.times_s, math.inf])
        self._left_w: FloatArray = np.array(budget.limits_w) - idle_w

    def earliest_s(self, ready_s: float, found: BatchPower, rest_w: float) -> float:
        """Return the earliest begin of a batch from `ready_s` on for which the power suffices, s; `inf` if none is.

        Args:
            ready_s: when its GPU is free, s.
            found: its execution.
            rest_w: idle power of its GPU, W, which is counted already.
        """
        begin_s, starts_s = ready_s, (0.0, *found.ends_s[:-1])
        while True:
            later_s = begin_s
            for start_s, end_s, power_w in zip(starts_s, found.ends_s, found.power_w, strict=True):
                first = int(np.searchsorted(self._times_s, begin_s + start_s, side="right")) - 1
                last = int(np.searchsorted(self._times_s, begin_s + end_s, side="left"))
                short = np.flatnonzero(self._left_w[first:last] + EXCESS_W / 2 < power_w - rest_w)
                if len(short):
                    # The step can begin no earlier than where the last interval without room ends.
                    later_s = max(later_s, float(self._times_s[first + short[-1] + 1]) - start_s)
            if later_s <= begin_s or later_s == math.inf:
                return later_s
            begin_s = later_s

    def take(self, begin_s: float, found: BatchPower, rest_w: float) -> None:
        """Take the power of a batch that begins at a time, s, out of what is left."""
        starts_s = [begin_s, *[begin_s + end_s for end_s in found.ends_s]]
        for time_s in starts_s:
            place = int(np.searchsorted(self._times_s, time_s, side="right"))
            if self._times_s[place - 1] != time_s:
                self._times_s = np.insert(self._times_s, place, time_s)
                self._left_w = np.insert(self._left_w, place, self._left_w[place - 1])
        for (start_s, end_s), power_w in zip(pairwise(starts_s), found.power_w, strict=True):
            first, last = np.searchsorted(self._times_s, [start_s, end_s])
            self._left_w[first:last] -= power_w - rest_w


def plan_within(front: Front, budget: PowerBudget, predictor: Predictor) -> Front:
    """Return the Pareto front of a front's plans once they are within a power budget.

    Plans that keep the budget stay as they are; the batches of the others get lower clocks, or begin later.

    Args:
        front: of any search.
        budget: the limits on the sum of the GPUs' power.
        predictor: of the scheduler.

    Returns:
        A front of `LimitedPlan`.

    Raises:
        InputError: the cluster can never keep the budget.
        PlanError: a batch needs more than the last limit at every clock.
    """
    check_cluster(front[0].cluster, budget)
    calls, steps = predictor.calls, BatchSteps(PowerBounds(predictor))
    plans = [_within(plan, budget, predictor, steps) for plan in front]
    objectives = np.array([[plan.energy_j, plan.jct_s] for plan in plans])
    kept = np.flatnonzero(non_dominated(objectives))
    kept = kept[np.lexsort((objectives[kept, 1], objectives[kept, 0]))]
    rows = front.predictor_rows + predictor.calls - calls
    return Front(tuple([plans[place] for place in kept]), objectives[kept], rows)


def _within(plan: Plan, budget: PowerBudget, predictor: Predictor, steps: BatchSteps) -> LimitedPlan:
    tasks, gpus = {task.id: task for task in plan.tasks}, plan.cluster.gpus
    room = PowerRoom(budget, sum([idle_w(gpu) for gpu in gpus]))
    free_s = [0.0] * len(gpus)
    queues: list[list[Batch]] = [[] for _ in gpus]
    placed: list[list[tuple[float, BatchPower]]] = [[] for _ in gpus]
    waiting = [list(queue) for queue in plan.queues]
    while any(waiting):
        index = min([gpu for gpu, queue in enumerate(waiting) if queue], key=lambda gpu: (free_s[gpu], gpu))
        batch = waiting[index].pop(0)
        behind = sum([len(other.tasks) for other in waiting[index]])
        clock, begin_s, found = _place(gpus[index], batch, free_s[index], behind, room, steps, tasks)
        room.take(begin_s, found, idle_w(gpus[index]))
        free_s[index] = begin_s + found.end_s
        queues[index].append(replace(batch, sm_mhz=clock))
        placed[index].append((begin_s, found))
    return limited_plan(plan, tuple([tuple(queue) for queue in queues]), placed, budget)


def _place(
    gpu: Gpu,
    batch: Batch,
    ready_s: float,
    behind: int,
    room: PowerRoom,
    steps: BatchSteps,
    tasks: dict[int, Task],
) -> tuple[Clock, float, BatchPower]:
    """Return the clock of a batch, when it begins, s, and its execution; the planned clock if it can begin at once."""
    rest_w = idle_w(gpu)
    levels = clock_levels(gpu, batch.sm_mhz)
    planned = steps.of(gpu, batch, levels[0], tasks)
    if room.earliest_s(ready_s, planned, rest_w) <= ready_s:
        return levels[0], ready_s, planned
    high = [clock for clock in levels if clock == levels[0] or top_mhz(gpu, clock) >= FLOOR * gpu.max_mhz]
    for allowed in (high, levels):
        best = _least_jct(gpu, batch, ready_s, behind, room, steps, tasks, allowed)
        if best is not None:
            return best
    least_w = min(max(steps.of(gpu, batch, clock, tasks).power_w) for clock in levels)
    found = f"a batch of {len(batch.tasks)} tasks on {gpu.name} that draws {least_w:.1f} W at its lowest clock"
    expected = "no more than the last limit leaves beside the idle power of the other GPUs"
    raise PlanError(found, expected, "Raise the limit, or take fewer GPUs.", column="power limit")


def _least_jct(
    gpu: Gpu,
    batch: Batch,
    ready_s: float,
    behind: int,
    room: PowerRoom,
    steps: BatchSteps,
    tasks: dict[int, Task],
    clocks: Sequence[Clock],
) -> tuple[Clock, float, BatchPower] | None:
    best: tuple[float, Clock, float, BatchPower] | None = None
    for clock in clocks:
        found = steps.of(gpu, batch, clock, tasks)
        begin_s = room.earliest_s(ready_s, found, idle_w(gpu))
        sum_s = (len(batch.tasks) + behind) * begin_s + sum(found.time_s.values()) + behind * found.end_s
        if sum_s < math.inf and (best is None or sum_s < best[0]):
            best = sum_s, clock, begin_s, found
    return None if best is None else best[1:]
