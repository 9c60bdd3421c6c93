"""Plans within a power budget: a plan with the begin of each batch, which the constructor checks against the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from heshare.lab.limits.power_bounds import Clock, PowerBounds, as_residents, idle_w
from heshare.lab.limits.power_budget import PowerBudget, largest_excess
from heshare.prediction.predictor import Predictor
from heshare.running.timeline import Segment
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import PlanError
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident

_SAME_S = 1e-6
"""Times of a plan's timeline that are at most so far apart are the same, over one second or over the time itself."""


@dataclass(frozen=True)
class LimitedPlan(Plan):
    """Plan whose predicted power is within a budget at every moment; one that breaks it cannot be built.

    Attributes:
        budget: the limits on the sum of the GPUs' power.
        begin_s: when each batch begins, s, in the form of `queues`; a batch may begin later than the one before ends.
        segments: predicted power of all GPUs, idle ones included, from 0 to the end of the last batch.

    Raises:
        PlanError: as `Plan`; times that are not those of the batches, or power above a limit, with the moment.
    """

    budget: PowerBudget
    begin_s: tuple[tuple[float, ...], ...]
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        Plan.__post_init__(self)
        sizes = [len(queue) for queue in self.queues]
        good = [len(times) for times in self.begin_s] == sizes and all(
            first <= second for times in self.begin_s for first, second in pairwise(times)
        )
        if not good:
            raise PlanError("other times", "a begin for each batch, in order", "Plan again.", column="begin_s")
        for gpu in range(len(self.cluster)):
            rows = [segment for segment in self.segments if segment.gpu == gpu]
            starts = {segment.start_s for segment in rows if segment.residents}
            late = [time_s for time_s in self.begin_s[gpu] if not any(_same(time_s, start_s) for start_s in starts)]
            if late or any(not _same(row.end_s, after.start_s) for row, after in pairwise(rows)):
                found = f"a timeline of {self.cluster.labels[gpu]} that is not that of its batches"
                raise PlanError(found, "power from 0 s to the end, without gaps", "Plan again.", column="segments")
        excess = largest_excess(self.segments, self.budget)
        if excess is not None:
            raise PlanError(
                f"a plan that needs {excess.power_w:.1f} W at {excess.time_s:.0f} s, where {excess.limit_w:g} W are "
                "allowed",
                f"a plan within {self.budget}",
                "Plan with this limit (power_limit=), or raise it.",
                column="power limit",
            )

    def __repr__(self) -> str:
        return f"{Plan.__repr__(self)[:-1]}, within {self.budget})"

    @classmethod
    def of(cls, plan: Plan, budget: PowerBudget, predictor: Predictor) -> LimitedPlan:
        """Return a plan within a budget, with its batches one after the other.

        Args:
            plan: the plan.
            budget: the limits.
            predictor: of the scheduler.

        Raises:
            PlanError: its predicted power breaks the budget.
        """
        steps, by_id = BatchSteps(PowerBounds(predictor)), {task.id: task for task in plan.tasks}
        placed = []
        for gpu, queue in zip(plan.cluster.gpus, plan.queues, strict=True):
            now_s, rows = 0.0, []
            for batch in queue:
                found = steps.of(gpu, batch, batch.sm_mhz, by_id)
                rows.append((now_s, found))
                now_s += found.end_s
            placed.append(rows)
        return limited_plan(plan, plan.queues, placed, budget)


@dataclass(frozen=True, slots=True)
class BatchPower:
    """Predicted execution of a batch on a GPU at a clock, by steps that end with a task each.

    Attributes:
        ends_s: end of each step after the begin of the batch, s, ascending.
        power_w: power in each step, W.
        residents: what runs in each step, as a `Segment` has it.
        time_s: the execution time of each task of the batch, s, by id.
    """

    ends_s: tuple[float, ...]
    power_w: tuple[float, ...]
    residents: tuple[tuple[tuple[int, int, float], ...], ...]
    time_s: dict[int, float]

    @property
    def end_s(self) -> float:
        """Length of the batch, s."""
        return self.ends_s[-1]


class BatchSteps:
    """Predicts batches by steps: the remaining tasks speed up when one ends, as on a device.

    Args:
        predictions: predicts sets of residents, and keeps the predictions.
    """

    def __init__(self, predictions: PowerBounds) -> None:
        self.predictions = predictions
        self._found: dict[tuple[object, ...], BatchPower] = {}

    def of(self, gpu: Gpu, batch: Batch, clock: Clock, tasks: dict[int, Task]) -> BatchPower:
        """Return the prediction of a batch on a GPU at a clock, MHz (None: the card's own).

        Raises:
            PlanError: the predictor does not know these tasks on this GPU.
        """
        key = (gpu.name, batch.tasks, batch.mps_pct, clock)
        if key not in self._found:
            self._found[key] = self._predict(gpu, batch, clock, tasks)
        return self._found[key]

    def _predict(self, gpu: Gpu, batch: Batch, clock: Clock, tasks: dict[int, Task]) -> BatchPower:
        left = {task: tasks[task].iterations for task in batch.tasks}
        shares = dict(zip(batch.tasks, batch.mps_pct, strict=True))
        now_s, ends_s, power_w, residents = 0.0, list[float](), list[float](), []
        time_s: dict[int, float] = {}
        while left:
            each = {task: Resident(tasks[task].workload, shares[task]) for task in left}
            present = as_residents(each.values())
            found = self.predictions.prediction(gpu, present, clock)
            if found is None:
                raise PlanError(f"a batch of {present} on {gpu.name}", "tasks that the predictor knows", "Plan again.")
            pace = {task: found.times_s[present.index(resident)] for task, resident in each.items()}
            step_s = min(left[task] * pace[task] for task in left)
            now_s += step_s
            ends_s.append(now_s)
            power_w.append(found.power_w)
            residents.append(tuple([(task, shares[task], pace[task]) for task in left]))
            done = [task for task in left if left[task] * pace[task] <= step_s * (1 + 1e-12)]
            time_s |= dict.fromkeys(done, now_s)
            left = {task: count - step_s / pace[task] for task, count in left.items() if task not in done}
        return BatchPower(tuple(ends_s), tuple(power_w), tuple(residents), time_s)


def limited_plan(
    plan: Plan,
    queues: tuple[tuple[Batch, ...], ...],
    placed: Sequence[Sequence[tuple[float, BatchPower]]],
    budget: PowerBudget,
) -> LimitedPlan:
    """Return the plan of batches at times, with its predicted timeline, energy (active account) and average JCT.

    Args:
        plan: has the tasks and the cluster.
        queues: the batches of each GPU, with their clocks.
        placed: the begin, s, and the execution of each batch, in the form of `queues`.
        budget: the limits.

    Raises:
        PlanError: the timeline breaks the budget.
    """
    makespan_s = max(begin_s + found.end_s for rows in placed for begin_s, found in rows)
    segments, energy_j, jct_s = list[Segment](), 0.0, 0.0
    for index, (gpu, queue, rows) in enumerate(zip(plan.cluster.gpus, queues, placed, strict=True)):
        own, now_s, rest_w = list[Segment](), 0.0, idle_w(gpu)
        for batch, (begin_s, found) in zip(queue, rows, strict=True):
            if begin_s > now_s:
                own.append(Segment(index, now_s, begin_s, None, gpu.max_mhz, rest_w, ()))
            start_s, mhz = begin_s, batch.sm_mhz or gpu.max_mhz
            for end_s, power_w, residents in zip(found.ends_s, found.power_w, found.residents, strict=True):
                own.append(Segment(index, start_s, begin_s + end_s, batch.sm_mhz, mhz, power_w, residents))
                start_s = begin_s + end_s
            now_s = start_s
            jct_s += sum([begin_s + time_s for time_s in found.time_s.values()])
        energy_j += sum([segment.power_w * (segment.end_s - segment.start_s) for segment in own])
        if makespan_s > now_s:
            own.append(Segment(index, now_s, makespan_s, None, gpu.max_mhz, rest_w, ()))
        segments += own
    begin_s_of = tuple([tuple([begin_s for begin_s, _ in rows]) for rows in placed])
    average_s = jct_s / len(plan.tasks)
    return LimitedPlan(plan.cluster, plan.tasks, queues, energy_j, average_s, budget, begin_s_of, tuple(segments))


def _same(one_s: float, other_s: float) -> bool:
    return abs(one_s - other_s) <= _SAME_S * max(1.0, abs(one_s))
