"""The exact Pareto front of a small task set: every non-dominated plan of the choices in `heshare.lab.plus.costs`.

An assignment gives the sets S_1, ..., S_k of tasks to k GPUs, and its front is the Minkowski sum F_1(S_1) + ... +
F_k(S_k) of the exact fronts of its queues, which `heshare.lab.plus.optimum.task_subsets` has for every set. The front
of all plans is the non-dominated part of the union of these sums over all k^n assignments. Most of them are ruled out
first:

- Let the front so far have the points (E_1, T_1), (E_2, T_2), ... by energy. A new point lies below it only if it is
  below one of the corners (E_{i+1}, T_i) in both objectives, or beyond its ends.
- For weights v = (v_E, v_T) >= 0 a point y below a corner x has y v < x v. The sum over g of q_g(S_g), with the least
  cost q_g(S) = min over y in F_g(S) of y v, is a lower bound of y v for all plans of the assignment.
- So an assignment whose bound reaches x v at some of the weights, for each corner x, has no point of the front below a
  corner. Partial assignments are bounded likewise, with the least cost of serving the remaining tasks.

The ends of the front are plans of least energy and of least JCT, so no point lies beyond them. The first front consists
of the fronts of the assignments that are optimal for 24 weights and both ends; a fan of weights rules out more than one
weight does. Remaining assignments are merged in the order of their bounds; sums that cannot improve are dropped early.

Example: tasks of 2 and 5 s on two GPUs of 110 W. One task on each GPU is best in both objectives: 110 W x 7 s = 770 J
and an average JCT of 7 / 2 s.

>>> from heshare.testing.toy import toy_instance
>>> front_of(BatchCosts(*toy_instance([2.0, 5.0], gpus=2))).objectives.round(6).tolist()
[[770.0, 3.5]]

Sources: subsets: Held and Karp 1962, doi:10.1137/0110015. Bound sets of fronts and weighted sums: Ehrgott 2005,
doi:10.1007/3-540-27659-9, Chapters 2, 3 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.fronts import QueueFronts, front_of_queues
from heshare.lab.plus.optimum.task_subsets import (
    completions,
    expand,
    feasible_batches,
    least_costs,
    sets_by_task,
    subset_fronts,
)
from heshare.lab.plus.search_settings import DEFAULT_CHOICES, BatchChoices
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated_indices
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import compiled
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
        labels: the point of each GPU's own front, in its `QueueFronts`, shape (m, k).
    """

    points: FloatArray
    labels: IntArray

    def merged(self, other: FrontPoints) -> FrontPoints:
        """Return the non-dominated points of both."""
        points, labels = np.concatenate((self.points, other.points)), np.concatenate((self.labels, other.labels))
        kept = non_dominated_indices(points[:, 0], points[:, 1])
        return FrontPoints(points[kept], labels[kept])


def exact_front(
    tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, *, choices: BatchChoices = DEFAULT_CHOICES
) -> Front:
    """Return the exact Pareto front of a small task set, with every non-dominated plan of the kept choices.

    Vectors of MPS percentages that are never the best at the top clock are left out (`heshare.lab.plus.rates`). There
    may be `MAX_TASKS` tasks; `choices` are the clocks and MPS percentages that a batch may have.

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
    costs = BatchCosts(make_instance(tasks, cluster, predictor), predictor, choices)
    return replace(front_of(costs), predictor_rows=predictor.calls - before)


def front_of(costs: BatchCosts) -> Front:
    """Return the exact front of the batches of given costs."""
    world, batches = costs.world, feasible_batches(costs)
    fronts = tuple(subset_fronts(of_kind) for of_kind in batches)
    kinds = world.kind_of.tolist()
    by_kind = np.argsort(world.kind_of, kind="stable")
    front = front_over_assignments(fronts, [of_kind.order for of_kind in batches], world.kind_of[by_kind].tolist())
    labels = front.labels[:, np.argsort(by_kind)]
    objectives = front.points / np.array([1.0, world.n])
    queues = [
        tuple(
            tuple(batches[kind].batch(option, world) for option in fronts[kind].options(label))
            for kind, label in zip(kinds, row, strict=True)
        )
        for row in labels.tolist()
    ]
    return front_of_queues(world, queues, objectives)


def front_over_assignments(
    fronts: Sequence[QueueFronts], orders: Sequence[IntArray], kinds: Sequence[int]
) -> FrontPoints:
    """Return the exact front over all assignments of tasks to GPUs.

    `fronts` are of every queue on each type of GPU, `orders` its SPT order, shape (n,) each; `kinds` has the type of
    each of k GPUs, GPUs of one type side by side.
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
            sets, rest = [], len(masks) - 1
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
        sets, cost = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(weights)))
        for gpu, kind in enumerate(self.kinds[:-1]):
            taken = sets.sum(axis=1)
            # GPUs of one type are alike: of all permutations only the one with descending sets is listed.
            ceiling = sets[:, -1] if gpu and self.kinds[gpu - 1] == kind else np.full(len(sets), all_tasks)
            parent, own, cost = expand(taken, cost, ceiling, least[kind], serve[gpu + 1], corners)
            sets = np.concatenate((sets[parent], own[:, None]), axis=1)
        rest = all_tasks ^ sets.sum(axis=1)
        if len(self.kinds) > 1 and self.kinds[-1] == self.kinds[-2]:
            kept = rest <= sets[:, -1]
            sets, rest, cost = sets[kept], rest[kept], cost[kept]
        bound = cost + least[self.kinds[-1]][rest]
        order = np.argsort((bound / serve[0][all_tasks]).min(axis=1), kind="stable")
        result: IntArray = np.concatenate((sets, rest[:, None]), axis=1)[order]
        return result

    def add(self, sets: Iterable[int], front: FrontPoints) -> FrontPoints:
        """Return a front with the points that an assignment adds to it: sums of one point of each GPU's own front."""
        queues = [(self.fronts[kind], int(self.by_task[kind][own])) for kind, own in zip(self.kinds, sets, strict=True)]
        ideals = np.array([fronts.of(queue).min(axis=0) for fronts, queue in queues])
        points, labels = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
        for gpu, (fronts, queue) in enumerate(queues):
            remaining = ideals[gpu + 1 :].sum(axis=0)
            points, left, right = _improving_sums(points, fronts.of(queue), remaining, front.points)
            labels = np.concatenate((labels[left], (fronts.begin[queue] + right)[:, None]), axis=1)
        return front.merged(FrontPoints(points, labels)) if len(points) else front

    def _least_costs(self, weights: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the least weighted cost of every set on each type of GPU, and by each GPU with those after it."""
        least = [least_costs(front, weights)[sets] for front, sets in zip(self.fronts, self.by_task, strict=True)]
        serve = [least[self.kinds[-1]]]
        for kind in self.kinds[-2::-1]:
            serve.insert(0, completions(least[kind], serve[0]))
        return least, serve


@compiled
def _improving_sums(
    left: FloatArray, right: FloatArray, ideal: FloatArray, front: FloatArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the non-dominated sums of a point of each of two fronts that could, with `ideal` added, improve a front.

    The points are of shapes (a, 2) and (b, 2), `ideal` is the least that the GPUs to come add to each objective, shape
    (2,), and `front` is that so far, by energy, shape (m, 2). With the sums, shape (r, 2), come the indices of the
    points that they are made of, (r,) each.
    """
    points, pair = np.empty((len(left) * len(right), 2)), np.empty((len(left) * len(right), 2), dtype=np.int64)
    used = 0
    for i in range(len(left)):
        for j in range(len(right)):
            energy_j, jct_s = left[i, 0] + right[j, 0], left[i, 1] + right[j, 1]
            # Of the front's points with no more energy, the last one has the least JCT.
            cheaper = np.searchsorted(front[:, 0], (energy_j + ideal[0]) * (1 + TOLERANCE), side="right")
            if cheaper == 0 or front[cheaper - 1, 1] > (jct_s + ideal[1]) * (1 + TOLERANCE):
                points[used, 0], points[used, 1] = energy_j, jct_s
                pair[used, 0], pair[used, 1] = i, j
                used += 1
    kept = non_dominated_indices(points[:used, 0], points[:used, 1])
    return points[kept], pair[kept, 0], pair[kept, 1]
