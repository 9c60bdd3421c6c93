"""The resource configuration algorithm (Section III-C 2, Algorithm 1): batches, MPS percentages and SM clocks."""

from dataclasses import dataclass

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchExecutions, BatchModel
from heshare.scheduling.batching import (
    BatchSplit,
    SptQueues,
    distinct_queues,
    split_every_task,
    split_for_jct,
    split_for_memory,
)
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import Instance
from heshare.scheduling.pareto import non_dominated, non_dominated_indices, rounded_values, thin, thin_ordered
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.caches.row_table import distinct_rows
from heshare.shared.compiling import compiled

MOST_TRIALS = 1 << 17
"""Places of tasks in the batches that are predicted at once: more would need memory that grows with the task set."""
MOST_PLACED, LEAST_SCHEMES = 40_000, 20
"""Tasks in all schemes that are configured together, and schemes that are configured in any case."""


def configure(
    schemes: Schemes, instance: Instance, predictor: Predictor | BatchModel, settings: Settings = DEFAULTS
) -> tuple[tuple[Plan, ...], FloatArray]:
    """Algorithm 1: batches, MPS percentages and clocks for Pareto schemes (Eq. 16).

    Minimises energy and average JCT of each scheme over the MPS percentages and clocks of its batches. All schemes are
    configured at once (line 2), so that the predictor gets few, large calls. Queues that several schemes have in common
    are configured once. The predictor may be the instance's model of batches, to share it.

    Returns:
        PS' (line 23): the plans of the final front in order of energy, and their [energy in J, average JCT in s],
        shape (m, 2).
    """
    # All schemes of up to 200 tasks; of more, so many that time and memory grow no faster than the task set.
    chosen = thin(schemes.objectives, min(settings.solutions, max(LEAST_SCHEMES, MOST_PLACED // instance.n)))
    queues, queue_of_gpu = distinct_queues(schemes.gpus[chosen], instance)  # lines 3 and 4
    model = predictor if isinstance(predictor, BatchModel) else BatchModel(instance, predictor)
    split = _split(queues, model, settings)  # line 5
    mps_pct = mps_percentages(split, model, settings)  # lines 6-10
    clocks_mhz = clock_candidates(instance, settings)
    curves = clock_curves(split, mps_pct, clocks_mhz, model, settings)  # lines 11-13
    fronts = [combine_clocks(row, curves, settings) for row in queue_of_gpu]
    scheme = np.repeat(np.arange(len(chosen)), [len(points) for points, _ in fronts])
    configured = np.concatenate([points for points, _ in fronts]) / np.array([1.0, instance.n])
    clock_index = np.concatenate([indices for _, indices in fronts])
    # However a queue is split, all of its tasks wait until their GPU can begin.
    configured[:, 1] += (instance.begin_s[schemes.gpus[chosen]].sum(axis=1) / instance.n)[scheme]
    # PS' begins with PS (line 1), so schemes of stage 1 stay where no configuration dominates them (lines 14-19).
    objectives = np.concatenate((configured, schemes.objectives[chosen]))
    front = np.flatnonzero(non_dominated(objectives))
    front = front[thin(objectives[front], settings.front)]
    sequential = split_every_task(queues)
    shared, alone = PlanBuilder(split, mps_pct, instance), PlanBuilder(sequential, sequential.batches.mps_pct, instance)
    plans = []
    for index in front:
        if index < len(scheme):
            clock_mhz = clocks_mhz[instance.kind_of, clock_index[index]]
            plans.append(shared.plan(queue_of_gpu[scheme[index]], clock_mhz, objectives[index]))
        else:
            clock_mhz = np.full(instance.k, DEFAULT_CLOCK)
            plans.append(alone.plan(queue_of_gpu[index - len(scheme)], clock_mhz, objectives[index]))
    return tuple(plans), objectives[front]


def _split(queues: SptQueues, model: BatchModel, settings: Settings) -> BatchSplit:
    if settings.batching == "jct":
        return split_for_jct(queues, model)
    return split_for_memory(queues, model.instance) if settings.batching == "memory" else split_every_task(queues)


def mps_percentages(split: BatchSplit, model: BatchModel, settings: Settings) -> IntArray:
    """Return the MPS percentage of each task of each batch (Algorithm 1, lines 6-10), shape (b, w).

    Coordinate descent: from 100 % each, the tasks of a batch are set once each, in SPT order, to the percentage with
    the least `settings.mps_goal`, of equal ones to the largest. A task alone keeps 100 %: a limit can only slow it.
    """
    batches, behind = split.batches, split.behind
    if settings.mps_goal == "none":
        return batches.mps_pct.copy()
    keys = np.concatenate((batches.kind[:, None], batches.tasks), axis=1)
    if settings.mps_goal == "queue":
        keys = np.concatenate((behind[:, None], keys), axis=1)
    first, inverse = distinct_rows(keys)
    batches, behind = batches.take(first), behind[first]
    mps_pct = batches.mps_pct
    candidates = np.array(settings.mps_pcts[::-1])  # largest first, which wins ties
    size = batches.members.sum(axis=1)
    for position in range(batches.tasks.shape[1]):
        for rows in _blocks(np.flatnonzero(size > max(position, 1)), mps_pct.shape[1] * len(candidates)):
            trials = batches.take(np.repeat(rows, len(candidates)))
            trials.mps_pct[:, position] = np.tile(candidates, len(rows))
            score = _mps_score(model.execute(trials), position, np.repeat(behind[rows], len(candidates)), settings)
            mps_pct[rows, position] = candidates[_first_least(score.reshape(len(rows), len(candidates)))]
    return mps_pct[inverse]


def _blocks(rows: IntArray, places: int) -> list[IntArray]:
    """Return rows in blocks of at most `MOST_TRIALS` places of tasks, where each row has so many."""
    return np.array_split(rows, max(1, -(-len(rows) * places // MOST_TRIALS)))


def _mps_score(run: BatchExecutions, position: int, behind: IntArray, settings: Settings) -> FloatArray:
    if settings.mps_goal == "own":
        return run.time_s[:, position]
    if settings.mps_goal == "both":
        both: FloatArray = run.energy_j * run.time_s.sum(axis=1)
        return both
    return run.jct_s(behind if settings.mps_goal == "queue" else np.zeros_like(behind))


def _first_least(score: FloatArray) -> IntArray:
    # In each row the first index whose value is within 1e-9 of the least, shape (r, c) -> (r,).
    least = score.min(axis=1, keepdims=True) if score.size else np.zeros((len(score), 1))
    best: IntArray = (score <= least * (1 + 1e-9)).argmax(axis=1)
    return best


def clock_candidates(instance: Instance, settings: Settings) -> IntArray:
    """Return GPU_freqs of Algorithm 1: SM clocks of each GPU type, MHz, ascending, evenly spaced, shape (kinds, c).

    A GPU with fewer clocks repeats some of them. With `clock_scope="none"` the only candidate is the default clock.
    """
    if settings.clock_scope == "none":
        return np.full((len(instance.kinds), 1), DEFAULT_CLOCK)
    rows = []
    for gpu in instance.kinds:
        last = len(gpu.clocks_mhz) - 1
        index = np.linspace(0, last, settings.clocks) if settings.clocks > 1 else np.array([last])
        rows.append(np.array(gpu.clocks_mhz)[np.round(index).astype(np.int64)])
    return np.array(rows)


@dataclass(frozen=True, slots=True)
class ClockCurves:
    """Energy and JCTs of q queues at each of c candidate clocks.

    Attributes:
        energy_j: total energy of the queue's batches (Eq. 14), J, shape (q, c).
        jct_s: sum of its tasks' JCTs (Eq. 15 times their number), s, shape (q, c).
    """

    energy_j: FloatArray
    jct_s: FloatArray


def clock_curves(
    split: BatchSplit, mps_pct: IntArray, clocks_mhz: IntArray, model: BatchModel, settings: Settings
) -> ClockCurves:
    """Predict every batch at every candidate clock (Algorithm 1, lines 11-13) and add up the queues (Eqs. 14, 15).

    `mps_pct` has the shape of the batches, (b, w), `clocks_mhz` candidates of each type of GPU, shape (kinds, c). The
    setting `piecewise` says whether tasks speed up when others end.
    """
    batches, count, queues = split.batches, clocks_mhz.shape[1], int(split.queue[-1]) + 1
    first, inverse = distinct_rows(np.concatenate((batches.kind[:, None], batches.tasks, mps_pct), axis=1))
    found = np.empty((3, len(first), count))  # energy, J, length, s, and sum of the tasks' times, s
    for places in _blocks(np.arange(len(first)), count * mps_pct.shape[1]):
        rows = np.repeat(first[places], count)
        trials = Batches(
            batches.kind[rows], batches.tasks[rows], mps_pct[rows], clocks_mhz[batches.kind[first[places]]].ravel()
        )
        run = model.execute(trials, piecewise=settings.piecewise)
        found[:, places] = np.reshape((run.energy_j, run.end_s, run.time_s.sum(axis=1)), (3, len(places), count))
    energy_j, end_s, time_s = found[:, inverse]
    index = (split.queue[:, None] * count + np.arange(count)).ravel()
    jct_s = time_s + split.behind[:, None] * end_s
    total_j: FloatArray = np.bincount(index, energy_j.ravel(), queues * count).astype(np.float64)
    total_s: FloatArray = np.bincount(index, jct_s.ravel(), queues * count).astype(np.float64)
    return ClockCurves(total_j.reshape(queues, count), total_s.reshape(queues, count))


def combine_clocks(queue_of_gpu: IntArray, curves: ClockCurves, settings: Settings) -> tuple[FloatArray, IntArray]:
    """Return the Pareto front of one scheme over the clocks of its GPUs (Algorithm 1, lines 12-21).

    Energy and the sum of JCTs add up over GPUs. So the front of k GPUs is the non-dominated part of all sums of a point
    of the first k - 1 and a point of the last. With `clock_scope="plan"` all GPUs take the same step. `queue_of_gpu`
    has the queue of each GPU, `EMPTY` for none, shape (k,). Returned are [energy in J, sum of JCTs in s] of m plans,
    shape (m, 2), and the index of each GPU's clock, shape (m, k).
    """
    used = np.flatnonzero(queue_of_gpu != EMPTY)
    energy_j, jct_s = curves.energy_j[queue_of_gpu[used]], curves.jct_s[queue_of_gpu[used]]
    if settings.clock_scope == "plan":
        points = np.stack((energy_j, jct_s), axis=2).sum(axis=0)
        kept = np.flatnonzero(non_dominated(points))
        return points[kept], np.repeat(kept[:, None], len(queue_of_gpu), axis=1)
    points, steps = _sum_queues(energy_j, jct_s, settings.merge)
    clock_index = np.full((len(points), len(queue_of_gpu)), curves.energy_j.shape[1] - 1)
    clock_index[:, used] = steps
    return points, clock_index


@compiled
def _sum_queues(energy_j: FloatArray, jct_s: FloatArray, limit: int) -> tuple[FloatArray, IntArray]:
    """Return the front of all sums of a point of each queue, thinned to `limit` after each queue, and their points.

    `energy_j` and `jct_s` are of g queues at c clocks, (g, c); returned are points, (m, 2), and clocks, (m, g).
    """
    points, steps = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
    for queue in range(len(energy_j)):
        own = np.sort(non_dominated_indices(rounded_values(energy_j[queue]), rounded_values(jct_s[queue])))
        sums_j, sums_s = np.empty(len(points) * len(own)), np.empty(len(points) * len(own))
        for place in range(len(sums_j)):
            before, clock = place // len(own), own[place % len(own)]
            sums_j[place] = points[before, 0] + energy_j[queue, clock]
            sums_s[place] = points[before, 1] + jct_s[queue, clock]
        front = non_dominated_indices(rounded_values(sums_j), rounded_values(sums_s))
        front = thin_ordered(sums_j, sums_s, front[np.argsort(sums_j[front], kind="mergesort")], limit)
        points = np.column_stack((sums_j[front], sums_s[front]))
        steps = np.column_stack((steps[front // len(own)], own[front % len(own)]))
    return points, steps


class PlanBuilder:
    """Builds plans (Algorithm 1, line 15) of a split's queues, each queue once; `mps_pct` as the batches, (b, w)."""

    def __init__(self, split: BatchSplit, mps_pct: IntArray, instance: Instance) -> None:
        self._split, self._mps_pct, self._instance = split, mps_pct, instance
        self._built: dict[tuple[int, int], tuple[Batch, ...]] = {}

    def plan(self, queue_of_gpu: IntArray, clocks_mhz: IntArray, objectives: FloatArray) -> Plan:
        """Return the plan of each GPU's queue (or `EMPTY`) and clock, shape (k,); objectives are [J, s], (2,)."""
        both = zip(queue_of_gpu.tolist(), clocks_mhz.tolist(), strict=True)
        queues = tuple(() if queue == EMPTY else self._batches(queue, clock_mhz) for queue, clock_mhz in both)
        return Plan(self._instance.cluster, self._instance.tasks, queues, float(objectives[0]), float(objectives[1]))

    def _batches(self, queue: int, clock_mhz: int) -> tuple[Batch, ...]:
        found = self._built.get((queue, clock_mhz))
        if found is None:
            rows = np.flatnonzero(self._split.queue == queue).tolist()
            found = self._built[queue, clock_mhz] = tuple(self._batch(row, clock_mhz) for row in rows)
        return found

    def _batch(self, row: int, clock_mhz: int) -> Batch:
        tasks = self._split.batches.tasks[row]
        present = tasks != EMPTY
        ids = tuple(self._instance.tasks[index].id for index in tasks[present].tolist())
        return Batch(ids, tuple(self._mps_pct[row, present].tolist()), clock_mhz or None)
