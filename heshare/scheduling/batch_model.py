"""The batch model (Section III-C 1, Eqs. 11-15): predicted times and energy of batches of tasks that share a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from heshare.prediction.predictor import CODES, CodedSets, Predictor
from heshare.scheduling.objectives import Instance, numbered_workloads
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.arrays import BoolArray, FloatArray, IntArray, distinct_rows
from heshare.shared.compiled import njit

EMPTY = -1
"""Marks an index without a task, or a GPU without a queue."""
DEFAULT_CLOCK = 0
"""Marks the GPU's default clock."""


@dataclass(frozen=True, slots=True)
class Batches:
    """b batches (Eq. 11), each on a type of GPU.

    Attributes:
        kind: index in the instance's `kinds`, shape (b,).
        tasks: task indices in SPT order, `EMPTY` after the last task, shape (b, w).
        mps_pct: MPS percentage of each task, shape (b, w).
        sm_mhz: SM clock, MHz, or `DEFAULT_CLOCK`, shape (b,).
    """

    kind: IntArray
    tasks: IntArray
    mps_pct: IntArray
    sm_mhz: IntArray

    @property
    def members(self) -> BoolArray:
        """Mask of the tasks, shape (b, w)."""
        return cast(BoolArray, self.tasks != EMPTY)

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: IntArray | BoolArray) -> Batches:
        """Return the batches of some rows, in their order; rows may repeat."""
        return Batches(self.kind[rows], self.tasks[rows], self.mps_pct[rows], self.sm_mhz[rows])


def unconfigured_batches(kind: IntArray, tasks: IntArray) -> Batches:
    """Return batches whose tasks have 100 % each, at the default clock."""
    return Batches(kind, tasks, np.full(tasks.shape, 100), np.full(len(kind), DEFAULT_CLOCK))


@dataclass(frozen=True, slots=True)
class BatchExecutions:
    """Predicted execution of b batches.

    Attributes:
        time_s: tau_i, execution time of each task, s, 0 where there is none, shape (b, w).
        end_s: tau_B, execution time of the batch, the longest of its tasks, s, shape (b,).
        energy_j: E_B, energy of the batch (Eq. 14), J, shape (b,).
    """

    time_s: FloatArray
    end_s: FloatArray
    energy_j: FloatArray

    def jct_s(self, behind: IntArray) -> FloatArray:
        """Return what each batch adds to the sum of JCTs of its queue (Eqs. 13 and 15), s, shape (b,).

        By Eq. 13 a task's JCT is its own time plus the times of all batches before. So in the sum over the queue each
        batch counts the times of its tasks, and its own length once for every task behind it. `behind` is the number of
        tasks in later batches of the queue, shape (b,).
        """
        return cast(FloatArray, self.time_s.sum(axis=1) + behind * self.end_s)


class BatchModel:
    """Predicts the execution of batches of a task set.

    Tasks with the same workload are equal for the predictor; only their iterations differ.
    """

    def __init__(self, instance: Instance, predictor: Predictor) -> None:
        self.instance = instance
        self._predictor = predictor
        self._workloads, self._workload = numbered_workloads(instance.tasks)
        self._iterations = np.array([task.iterations for task in instance.tasks])

    def batches_of(self, plans: Iterable[Plan]) -> Batches:
        """Return the batches of plans of the instance's tasks, in the order of plans, GPUs and queues."""
        kinds = []
        found: list[Batch] = []
        for plan in plans:
            for kind, queue in zip(self.instance.kind_of.tolist(), plan.queues, strict=True):
                kinds += [kind] * len(queue)
                found += queue

        place = {task.id: index for index, task in enumerate(self.instance.tasks)}
        shape = (len(found), max(len(batch.tasks) for batch in found))
        tasks = np.full(shape, EMPTY)
        mps_pct = np.full(shape, 100)
        for row, batch in enumerate(found):
            tasks[row, : len(batch.tasks)] = [place[task] for task in batch.tasks]
            mps_pct[row, : len(batch.tasks)] = batch.mps_pct
        clocks_mhz = np.array([batch.sm_mhz or DEFAULT_CLOCK for batch in found])
        return Batches(np.array(kinds), tasks, mps_pct, clocks_mhz)

    def execute(self, batches: Batches, *, piecewise: bool = False) -> BatchExecutions:
        """Predict batches whose tasks start together and which end with their last task (Eqs. 13 and 14).

        With `piecewise` the remaining tasks speed up when a task ends, as on a device. Otherwise each task runs as if
        all stayed until the end of the batch (Eq. 13, literally).
        """
        return self._execute_piecewise(batches) if piecewise else self._execute_literally(batches)

    def _execute_literally(self, batches: Batches) -> BatchExecutions:
        per_iteration, power_w = self.rates(batches)
        time_s = np.where(batches.members, per_iteration * self._iterations[batches.tasks], 0.0)
        end_s = time_s.max(axis=1)
        return BatchExecutions(time_s, end_s, power_w * end_s)

    def _execute_piecewise(self, batches: Batches) -> BatchExecutions:
        left = np.where(batches.members, self._iterations[batches.tasks], 0.0)
        time_s = np.zeros(left.shape)
        end_s = np.zeros(len(batches))
        energy_j = np.zeros(len(batches))

        # Each pass brings every batch that is not finished to the next end of a task.
        rows = np.arange(len(batches))
        while len(rows):
            tasks = np.where(left[rows] > 0, batches.tasks[rows], EMPTY)
            present = Batches(batches.kind[rows], tasks, batches.mps_pct[rows], batches.sm_mhz[rows])
            per_iteration, power_w = self.rates(present)

            _run_all_until_next_end(rows, left, per_iteration, power_w, time_s, end_s, energy_j)
            rows = rows[(left[rows] > 0).any(axis=1)]

        return BatchExecutions(time_s, end_s, energy_j)

    def rates(self, batches: Batches) -> tuple[FloatArray, FloatArray]:
        """Return seconds per iteration of each task while its whole batch runs, (b, w), and the power, W, (b,).

        Seconds are 1 where there is no task.
        """
        # Sets are equal in any order, so each one is sorted, with places without a task last.
        codes = np.where(batches.members, self._workload[batches.tasks] * CODES + batches.mps_pct, EMPTY)
        order = np.argsort(-codes, axis=1, kind="stable")
        sets = np.take_along_axis(codes, order, axis=1)

        sorted_s = np.ones(sets.shape)
        power_w = np.empty(len(batches))
        for kind, gpu in enumerate(self.instance.kinds):
            rows = np.flatnonzero(batches.kind == kind)
            if not len(rows):
                continue
            # The predictor is asked for each set and clock once; it keeps what it has predicted.
            first, inverse = distinct_rows(np.column_stack((batches.sm_mhz[rows], sets[rows])))
            asked = rows[first]
            clocks_mhz = [clock or None for clock in batches.sm_mhz[asked].tolist()]
            answer = self._predictor.co_run(CodedSets.of_codes(sets[asked], self._workloads), gpu, clocks_mhz)
            sorted_s[rows, : answer.time_s.shape[1]] = answer.time_s[inverse]
            power_w[rows] = answer.power_w[inverse]

        iteration_s = np.empty(sets.shape)
        np.put_along_axis(iteration_s, order, sorted_s, axis=1)
        return np.where(batches.members, iteration_s, 1.0), power_w


def plan_objectives(plans: Sequence[Plan], instance: Instance, predictor: Predictor | BatchModel) -> FloatArray:
    """Return [energy in J, average JCT in s] of plans whose tasks speed up when others end, shape (m, 2).

    So plans that were chosen by Eq. 13 are judged as all others are. The tasks of `instance` arrive at once. Instead of
    a predictor, the batch model of `instance` that made the plans may be given.
    """
    model = predictor if isinstance(predictor, BatchModel) else BatchModel(instance, predictor)
    number = []  # the plan of each batch
    behind = []  # the tasks in later batches of its queue
    for place, plan in enumerate(plans):
        for queue in plan.queues:
            left = sum(len(batch.tasks) for batch in queue)
            for batch in queue:
                left -= len(batch.tasks)
                number.append(place)
                behind.append(left)

    done = model.execute(model.batches_of(plans), piecewise=True)
    energy_j = np.bincount(number, done.energy_j, len(plans))
    jct_s = np.bincount(number, done.jct_s(np.array(behind)), len(plans)) / len(instance.tasks)
    return np.column_stack((energy_j, jct_s))


@njit(cache=True, error_model="numpy")
def run_until_next_end(left: FloatArray, iteration_s: FloatArray) -> float:
    """Let the tasks of a batch run until the first of them ends, and return how long that takes, s.

    Of the w tasks of the batch those run that have iterations `left`, shape (w,), which is updated: 0 for a task that
    ends. `iteration_s` are their seconds per iteration while just these tasks run, shape (w,).
    """
    step_s = np.inf
    for task in range(len(left)):
        if left[task] > 0.0:
            step_s = min(step_s, left[task] * iteration_s[task])

    for task in range(len(left)):
        # Equal tasks end together, whatever the rounding.
        if left[task] * iteration_s[task] <= step_s * (1.0 + 1e-12):
            left[task] = 0.0
        else:
            left[task] -= step_s / iteration_s[task]
    return step_s


@njit(cache=True)
def _run_all_until_next_end(
    rows: IntArray,
    left: FloatArray,
    iteration_s: FloatArray,
    power_w: FloatArray,
    time_s: FloatArray,
    end_s: FloatArray,
    energy_j: FloatArray,
) -> None:
    # Update the state of the batches `rows`; times and powers are those of these rows, all else of all batches.
    width = left.shape[1]
    was_running = np.empty(width, dtype=np.bool_)
    for place in range(len(rows)):
        row = rows[place]
        for task in range(width):
            was_running[task] = left[row, task] > 0.0

        step_s = run_until_next_end(left[row], iteration_s[place])
        energy_j[row] += power_w[place] * step_s
        end_s[row] += step_s
        for task in range(width):
            if was_running[task] and left[row, task] == 0.0:
                time_s[row, task] = end_s[row]
