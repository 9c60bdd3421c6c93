"""The exact Pareto front of a small task set: every non-dominated plan that `heshare.lab.plus.batch_table` allows.

`docs/bound.md` has the recursions, the bounds and their sources.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heshare.lab.plus.batch_table import DEFAULT_CHOICES, BatchChoices, BatchTable, FeasibleBatches
from heshare.lab.plus.fronts import QueueFronts, front_of_queues, label_queues
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated_indices
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.task import Task

MAX_TASKS = 14
"""The largest number of tasks of an exact front: time grows as the number of GPUs to this power."""
WEIGHTS = 24
"""Weights at which assignments are bounded."""
TOLERANCE = 1e-10
"""A plan that improves neither objective by more than this share counts as equal."""


@dataclass(frozen=True)
class FrontPoints:
    """Points of a front and the queues that they are made of.

    Attributes:
        points: [energy in J, sum of JCTs in s], by energy, shape (m, 2).
        labels: the point of each GPU's front, in its `QueueFronts`, shape (m, k).
    """

    points: FloatArray
    labels: IntArray

    def merged(self, other: "FrontPoints") -> "FrontPoints":
        """Return the non-dominated points of both."""
        points = np.concatenate((self.points, other.points))
        labels = np.concatenate((self.labels, other.labels))
        kept = non_dominated_indices(points[:, 0], points[:, 1])
        return FrontPoints(points[kept], labels[kept])


def exact_front(
    tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, *, choices: BatchChoices = DEFAULT_CHOICES
) -> Front:
    """Return the exact Pareto front of a small task set, with every non-dominated plan of the choices of `BatchTable`.

    Vectors of MPS percentages that are never the best at the top clock are left out (`docs/bound.md`).
    There may be `MAX_TASKS` tasks; `choices` are the clocks and MPS percentages that a batch may have.

    Raises:
        InputError: no task, one that fits no GPU, or too many tasks.
    """
    if len(tasks) > MAX_TASKS:
        raise InputError(
            f"{len(tasks)} tasks",
            f"at most {MAX_TASKS} for an exact front",
            "Take fewer tasks, or compute the lower bound instead.",
            column="tasks",
        )
    before = predictor.calls
    table = BatchTable(make_instance(tasks, cluster, predictor), predictor, choices)
    return replace(front_of(table), predictor_rows=predictor.calls - before)


def front_of(table: BatchTable) -> Front:
    """Return the exact front of the batches of a table.

    Example:
        Tasks of 2 and 5 s on two GPUs of 110 W. One task on each GPU is best in both objectives: 110 W x 7 s = 770 J
        and an average JCT of 7 / 2 s.

        >>> from heshare.testing.toy import toy_instance
        >>> front_of(BatchTable(*toy_instance([2.0, 5.0], gpus=2))).objectives.round(6).tolist()
        [[770.0, 3.5]]
    """
    instance = table.instance
    batches = table.feasible_batches()
    fronts = tuple(subset_fronts(of_kind) for of_kind in batches)
    orders = [of_kind.order for of_kind in batches]
    by_kind = np.argsort(instance.kind_of, kind="stable")
    front = front_over_assignments(fronts, orders, instance.kind_of[by_kind].tolist())

    labels = front.labels[:, np.argsort(by_kind)]
    plans = []
    for row in labels.tolist():
        queues = []
        for kind, label in zip(instance.kind_of.tolist(), row, strict=True):
            options = fronts[kind].options(label)
            queues.append(tuple(batches[kind].batch(option, instance) for option in options))
        plans.append(tuple(queues))
    return front_of_queues(instance, plans, front.points / np.array([1.0, instance.n]))


def front_over_assignments(
    fronts: Sequence[QueueFronts], orders: Sequence[IntArray], kinds: Sequence[int]
) -> FrontPoints:
    """Return the exact front over all assignments of tasks to GPUs.

    `fronts` are of every queue on each type of GPU, `orders` its SPT order, shape (n,) each; `kinds` has the type of
    each of k GPUs, GPUs of one type in consecutive positions.
    """
    assignments = _Assignments(tuple(fronts), tuple(sets_by_task(order) for order in orders), tuple(kinds))
    ends = assignments.optimal_fronts(np.eye(2))
    energy_change_j, jct_change_s = ends.points[-1] - ends.points[0]
    if len(ends.points) == 1 or -jct_change_s <= TOLERANCE * ends.points[0, 1]:
        return ends
    slopes = -energy_change_j / jct_change_s * np.geomspace(1 / 64, 64, WEIGHTS)
    weights = np.stack((np.ones(WEIGHTS), slopes), axis=1)
    front = ends.merged(assignments.optimal_fronts(weights))
    for sets in assignments.candidates(np.concatenate((np.eye(2), weights)), front.points):
        front = assignments.add(sets, front)
    return front


@dataclass(frozen=True)
class _Assignments:
    """All assignments of n tasks to k GPUs, with the fronts of their queues; a set's bit i is task i."""

    fronts: tuple[QueueFronts, ...]
    by_task: tuple[IntArray, ...]
    kinds: tuple[int, ...]

    def optimal_fronts(self, weights: FloatArray) -> FrontPoints:
        """Return the fronts of the assignments that are optimal for some weights, shape (f, 2), together."""
        least, serve = self._least_costs(weights)
        masks = np.arange(len(serve[0]))
        front = FrontPoints(np.empty((0, 2)), np.empty((0, len(self.kinds)), np.int64))
        for weight in range(len(weights)):
            sets = []
            rest = len(masks) - 1
            for kind, after in zip(self.kinds[:-1], serve[1:], strict=True):
                own = masks[(masks & rest) == masks]
                cost = least[kind][own, weight] + after[rest ^ own, weight]
                sets.append(int(own[cost.argmin()]))
                rest ^= sets[-1]
            front = self.add([*sets, rest], front)
        return front

    def candidates(self, weights: FloatArray, points: FloatArray) -> IntArray:
        """Return the assignments that could reach below a front, least bound first: each GPU's set, shape (r, k)."""
        least, serve = self._least_costs(weights)
        corners = np.stack((points[1:, 0], points[:-1, 1]), axis=1) @ weights.T * (1 - TOLERANCE)
        all_tasks = len(serve[0]) - 1

        sets = np.zeros((1, 0), dtype=np.int64)
        cost = np.zeros((1, len(weights)))
        for gpu, kind in enumerate(self.kinds[:-1]):
            taken = sets.sum(axis=1)
            # GPUs of one type are alike: of all permutations only the one with descending sets is listed.
            ceiling = sets[:, -1] if gpu and self.kinds[gpu - 1] == kind else np.full(len(sets), all_tasks)
            parent, own, cost = expand(taken, cost, ceiling, least[kind], serve[gpu + 1], corners)
            sets = np.concatenate((sets[parent], own[:, None]), axis=1)

        rest = all_tasks ^ sets.sum(axis=1)
        if len(self.kinds) > 1 and self.kinds[-1] == self.kinds[-2]:
            kept = rest <= sets[:, -1]
            sets = sets[kept]
            rest = rest[kept]
            cost = cost[kept]

        bound = cost + least[self.kinds[-1]][rest]
        order = np.argsort((bound / serve[0][all_tasks]).min(axis=1), kind="stable")
        result: IntArray = np.concatenate((sets, rest[:, None]), axis=1)[order]
        return result

    def add(self, sets: Iterable[int], front: FrontPoints) -> FrontPoints:
        """Return a front with the points that an assignment adds to it: sums of one point of each GPU's front."""
        queues = [(self.fronts[kind], int(self.by_task[kind][own])) for kind, own in zip(self.kinds, sets, strict=True)]
        ideals = np.array([fronts.of(queue).min(axis=0) for fronts, queue in queues])
        points = np.zeros((1, 2))
        labels = np.zeros((1, 0), dtype=np.int64)
        for gpu, (fronts, queue) in enumerate(queues):
            remaining = ideals[gpu + 1 :].sum(axis=0)
            points, pairs = _improving_sums(points, fronts.of(queue), remaining, front.points)
            labels = np.concatenate((labels[pairs[:, 0]], fronts.begin[queue] + pairs[:, 1:]), axis=1)
        return front.merged(FrontPoints(points, labels)) if len(points) else front

    def _least_costs(self, weights: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the least weighted cost of every set on each type of GPU, and by each GPU with those after it."""
        least = [least_costs(front, weights)[sets] for front, sets in zip(self.fronts, self.by_task, strict=True)]
        serve = [least[self.kinds[-1]]]
        for kind in self.kinds[-2::-1]:
            serve.insert(0, completions(least[kind], serve[0]))
        return least, serve


@njit(cache=True)
def _improving_sums(
    left: FloatArray, right: FloatArray, ideal: FloatArray, front: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Return the non-dominated sums of a point of each of two fronts that could, with `ideal` added, improve a front.

    The points are of shapes (a, 2) and (b, 2), `ideal` is the least that the remaining GPUs add to each objective,
    shape (2,), and `front` is that so far, by energy, shape (m, 2). Returned are the sums, shape (r, 2), and the
    indices of their two points, shape (r, 2).
    """
    energy_j = np.empty(len(left) * len(right))
    jct_s = np.empty(len(energy_j))
    pair = np.empty((len(energy_j), 2), dtype=np.int64)
    used = 0
    for i in range(len(left)):
        for j in range(len(right)):
            sum_j = left[i, 0] + right[j, 0]
            sum_s = left[i, 1] + right[j, 1]
            # Of the front's points with no more energy, the last one has the least JCT.
            cheaper = np.searchsorted(front[:, 0], (sum_j + ideal[0]) * (1 + TOLERANCE), side="right")
            if cheaper == 0 or front[cheaper - 1, 1] > (sum_s + ideal[1]) * (1 + TOLERANCE):
                energy_j[used] = sum_j
                jct_s[used] = sum_s
                pair[used, 0] = i
                pair[used, 1] = j
                used += 1

    kept = non_dominated_indices(energy_j[:used], jct_s[:used])
    points = np.empty((len(kept), 2))
    pairs = np.empty((len(kept), 2), dtype=np.int64)
    for place in range(len(kept)):
        points[place, 0] = energy_j[kept[place]]
        points[place, 1] = jct_s[kept[place]]
        pairs[place, 0] = pair[kept[place], 0]
        pairs[place, 1] = pair[kept[place], 1]
    return points, pairs


def sets_by_task(order: IntArray) -> IntArray:
    """Return the set of SPT positions of every set of tasks, shape (n,) -> (2**n,)."""
    result = np.zeros(1, dtype=np.int64)
    rank = np.argsort(order)
    for task in range(len(order)):
        result = np.concatenate((result, result | (1 << int(rank[task]))))
    return result


def subset_fronts(batches: FeasibleBatches) -> QueueFronts:
    """Return the exact front of every set of tasks on one type of GPU; bit i of a set is SPT position i."""
    sets = batches.sets
    everything = np.arange(1 << len(batches.order))
    row_of = np.full(len(everything), -1, dtype=np.int64)
    row_of[np.where(sets == EMPTY, 0, 1 << np.maximum(sets, 0)).sum(axis=1)] = np.arange(len(sets))

    row = np.empty((len(everything), sets.shape[1]), dtype=np.int64)
    left = np.empty_like(row)
    rest = everything
    for taken in range(sets.shape[1]):
        # Removes the lowest bit: the next task in SPT order joins the first batch.
        without = rest & (rest - 1)
        row[:, taken] = np.where(rest > 0, row_of[everything ^ without], -1)
        left[:, taken] = without
        rest = without

    length = np.bitwise_count(everything).astype(np.int64)
    unlimited = 1 << 62
    options = batches.options
    begin, points, links = label_queues(row, left, length, options.begin, options.values, unlimited, 0.0)
    return QueueFronts(begin, points, links[:, 0], links[:, 1])


def least_costs(fronts: QueueFronts, weights: FloatArray) -> FloatArray:
    """Return the least weighted cost of every queue, infinite if it cannot run: weights (f, 2) -> (queues, f)."""
    result = np.full((len(fronts.begin) - 1, len(weights)), np.inf)
    runnable = np.flatnonzero(np.diff(fronts.begin))
    result[runnable] = np.minimum.reduceat(fronts.points @ weights.T, fronts.begin[runnable], axis=0)
    return result


@njit(cache=True)
def completions(least: FloatArray, after: FloatArray) -> FloatArray:
    """Return the least cost of running a set on one GPU and those after it, for every set and weight.

    `least` is the cost of the GPU's queue of every set, `after` that of running it on the GPUs after it, both of
    shape (2**n, f).
    """
    result = np.empty(least.shape)
    for tasks in range(len(least)):
        for weight in range(least.shape[1]):
            result[tasks, weight] = least[tasks, weight] + after[0, weight]
        own = tasks
        while own:
            # The next smaller subset of `tasks`; after all of them comes the empty one.
            own = (own - 1) & tasks
            for weight in range(least.shape[1]):
                cost = least[own, weight] + after[tasks ^ own, weight]
                if cost < result[tasks, weight]:
                    result[tasks, weight] = cost
    return result


@njit(cache=True)
def expand(
    taken: IntArray, cost: FloatArray, ceiling: IntArray, least: FloatArray, after: FloatArray, corners: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Assign a set of tasks to one more GPU in every way that could still reach below the front.

    Args:
        taken: the tasks that earlier GPUs have, shape (p,).
        cost: weighted cost of their queues, shape (p, f).
        ceiling: the largest set allowed: of GPUs of one type, earlier ones take larger sets, shape (p,).
        least: cost of the GPU's queue of every set, shape (2**n, f).
        after: cost of running a set on the GPUs after it, shape (2**n, f).
        corners: weighted corners below the front's points, shape (c, f).

    Returns:
        The index that each result extends, the GPU's set, and the weighted cost so far, shape (r,), (r,), (r, f).
    """
    all_tasks = len(least) - 1
    fan = least.shape[1]
    parent = np.empty(0, dtype=np.int64)
    own_sets = np.empty(0, dtype=np.int64)
    costs = np.empty((0, fan))
    total = np.empty(fan)
    bound = np.empty(fan)
    used = 0

    # Counted first, then listed.
    for listing in range(2):
        if listing:
            parent = np.empty(used, dtype=np.int64)
            own_sets = np.empty(used, dtype=np.int64)
            costs = np.empty((used, fan))
        used = 0
        for row in range(len(taken)):
            free = all_tasks ^ taken[row]
            own = free
            while True:
                if own <= ceiling[row]:
                    for weight in range(fan):
                        total[weight] = cost[row, weight] + least[own, weight]
                        bound[weight] = total[weight] + after[free ^ own, weight]
                    if _reaches_below(bound, corners):
                        if listing:
                            parent[used] = row
                            own_sets[used] = own
                            for weight in range(fan):
                                costs[used, weight] = total[weight]
                        used += 1
                if own == 0:
                    break
                own = (own - 1) & free
    return parent, own_sets, costs


@njit(cache=True)
def _reaches_below(bound: FloatArray, corners: FloatArray) -> bool:
    """Return whether plans with these least weighted costs could lie below one of the corners in both objectives."""
    for corner in range(len(corners)):
        possible = True
        for weight in range(len(bound)):
            if bound[weight] >= corners[corner, weight]:
                possible = False
                break
        if possible:
            return True
    return False
