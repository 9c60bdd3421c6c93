"""The exact Pareto front of a small task set: every non-dominated plan of the given freedom, none left out.

Two facts make it possible. A queue's front obeys Bellman's principle, so one dynamic program over sets of tasks gives
the front of every queue on every type of GPU. And for a weight, the least cost of a set's queue is a number, so that
whole assignments of tasks to GPUs are struck out by a few sums: an assignment is merged point by point only if, for
every weight of a fan, it could still reach below the front found so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.errors import InputError
from heshare.prediction.predictor import Predictor
from heshare.scheduling.costs import DEFAULT, BatchCosts, Freedom
from heshare.scheduling.departing import compiled
from heshare.scheduling.enumeration import possible
from heshare.scheduling.objectives import FloatArray, IntArray, instance
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Plan
from heshare.scheduling.subsets import QueueFronts, completions, expand, lowest, queue_fronts, sets_by_task
from heshare.world.cluster import Cluster
from heshare.world.task import Task

LARGEST = 14
"""Tasks that an exact front may have: time grows as the number of GPUs to this power."""
FAN = 24
"""Weights by which assignments are struck out."""
SAME = 1e-10
"""A plan that improves neither objective by more than this, relatively, counts as equal."""


@dataclass(frozen=True)
class Found:
    """Points of a front and the queues that they are made of.

    Attributes:
        points: [energy in J, sum of JCTs in s], by energy, shape (m, 2).
        labels: the point of each GPU's own front, in its `QueueFronts`, shape (m, k).
    """

    points: FloatArray
    labels: IntArray

    def and_also(self, other: Found) -> Found:
        """The non-dominated points of both."""
        points, labels = np.concatenate((self.points, other.points)), np.concatenate((self.labels, other.labels))
        kept = lowest(points)
        return Found(points[kept], labels[kept])


def exact_front(tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, *, freedom: Freedom = DEFAULT) -> Front:
    """The exact Pareto front of a small task set, every plan included.

    Args:
        tasks: the task set, at most `LARGEST`.
        cluster: the GPUs.
        predictor: what is believed of time and power.
        freedom: what a batch may choose from.

    Raises:
        InputError: no task, one that fits no GPU, or too many tasks.
    """
    if len(tasks) > LARGEST:
        raise InputError(
            column="tasks",
            found=f"{len(tasks)} tasks",
            expected=f"at most {LARGEST} for an exact front",
            action="Take fewer tasks, or ask for the lower bound instead.",
        )
    before = predictor.calls
    costs = BatchCosts(instance(tasks, cluster, predictor), predictor, freedom)
    front = front_of(costs)
    return Front(front.plans, front.objectives, predictor.calls - before)


def front_of(costs: BatchCosts) -> Front:
    """As `exact_front`, of batches whose costs are known."""
    world, batches = costs.world, possible(costs)
    fronts = tuple(queue_fronts(one) for one in batches)
    kinds = world.kind_of.tolist()
    side_by_side = np.argsort(world.kind_of, kind="stable")
    found = search(fronts, [one.order for one in batches], world.kind_of[side_by_side].tolist())
    labels = found.labels[:, np.argsort(side_by_side)]
    objectives = found.points / np.array([1.0, world.n])
    plans = []
    for row, value in zip(labels.tolist(), objectives.tolist(), strict=True):
        queues = tuple(
            tuple(batches[kind].batch(option, world) for option in fronts[kind].chain(label))
            for kind, label in zip(kinds, row, strict=True)
        )
        plans.append(Plan(world.cluster, world.tasks, queues, *value))
    return Front(tuple(plans), objectives)


def search(fronts: Sequence[QueueFronts], orders: Sequence[IntArray], kinds: Sequence[int]) -> Found:
    """The exact front over all assignments of tasks to GPUs.

    Args:
        fronts: of every queue on each type of GPU.
        orders: SPT order of each type of GPU, shape (n,) each.
        kinds: the type of each of k GPUs, GPUs of one type side by side.
    """
    cluster = _Gpus(tuple(fronts), tuple(sets_by_task(order) for order in orders), tuple(kinds))
    ends = cluster.supported(np.eye(2))
    spread = ends.points[-1] - ends.points[0]
    if len(ends.points) == 1 or -spread[1] <= SAME * ends.points[0, 1]:
        return ends
    slopes = -spread[0] / spread[1] * np.geomspace(1 / 64, 64, FAN)
    weights = np.stack((np.ones(FAN), slopes), axis=1)
    found = ends.and_also(cluster.supported(weights))
    for sets in cluster.candidates(np.concatenate((np.eye(2), weights)), found.points):
        found = cluster.merged(sets, found)
    return found


@dataclass(frozen=True)
class _Gpus:
    """k GPUs with the fronts of their queues; a set's bit i is task i."""

    fronts: tuple[QueueFronts, ...]
    by_task: tuple[IntArray, ...]
    kinds: tuple[int, ...]

    def supported(self, weights: FloatArray) -> Found:
        """The fronts of the assignments that are best for some weights, shape (f, 2), together."""
        least, serve = self._least(weights)
        found, masks = Found(np.empty((0, 2)), np.empty((0, len(self.kinds)), np.int64)), np.arange(len(serve[0]))
        for weight in range(len(weights)):
            sets, left = [], len(masks) - 1
            for kind, after in zip(self.kinds[:-1], serve[1:], strict=True):
                own = masks[(masks & left) == masks]
                cost = least[kind][own, weight] + after[left ^ own, weight]
                sets.append(int(own[cost.argmin()]))
                left ^= sets[-1]
            found = self.merged([*sets, left], found)
        return found

    def candidates(self, weights: FloatArray, points: FloatArray) -> IntArray:
        """The assignments that could reach below a front, most promising first: each GPU's set, (r, k)."""
        least, serve = self._least(weights)
        inner = np.stack((points[1:, 0], points[:-1, 1]), axis=1)
        corners = inner @ weights.T * (1 - SAME)
        whole = len(serve[0]) - 1
        sets, cost = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(weights)))
        for gpu, kind in enumerate(self.kinds[:-1]):
            taken = sets.sum(axis=1)
            ceiling = sets[:, -1] if gpu and self.kinds[gpu - 1] == kind else np.full(len(sets), whole)
            parent, own, cost = expand(taken, cost, ceiling, least[kind], serve[gpu + 1], corners)
            sets = np.concatenate((sets[parent], own[:, None]), axis=1)
        left = whole ^ sets.sum(axis=1)
        if len(self.kinds) > 1 and self.kinds[-1] == self.kinds[-2]:
            kept = left <= sets[:, -1]
            sets, left, cost = sets[kept], left[kept], cost[kept]
        total = cost + least[self.kinds[-1]][left]
        order = np.argsort((total / serve[0][whole]).min(axis=1), kind="stable")
        found: IntArray = np.concatenate((sets, left[:, None]), axis=1)[order]
        return found

    def merged(self, sets: Iterable[int], found: Found) -> Found:
        """A front and what an assignment adds to it: sums of one point of each GPU's own front."""
        ranges = [self._labels(kind, some) for kind, some in zip(self.kinds, sets, strict=True)]
        ideals = np.array([[*front.points[label].min(axis=0)] for front, label in ranges])
        points, labels = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
        for gpu, (front, label) in enumerate(ranges):
            points, left, right = _sums(points, front.points[label], ideals[gpu + 1 :].sum(axis=0), found.points)
            labels = np.concatenate((labels[left], label[right][:, None]), axis=1)
        return found.and_also(Found(points, labels)) if len(points) else found

    def _labels(self, kind: int, some: int) -> tuple[QueueFronts, IntArray]:
        front, own = self.fronts[kind], int(self.by_task[kind][some])
        return front, np.arange(front.begin[own], front.begin[own + 1])

    def _least(self, weights: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """Least weighted cost of every set: on each type of GPU, and served by each GPU and those after it."""
        least = [front.least(weights)[sets] for front, sets in zip(self.fronts, self.by_task, strict=True)]
        serve = [least[self.kinds[-1]]]
        for kind in self.kinds[-2::-1]:
            serve.insert(0, completions(least[kind], serve[0]))
        return least, serve


@compiled
def _sums(
    left: FloatArray, right: FloatArray, ideal: FloatArray, known: FloatArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """The lowest sums of a point of each of two fronts that could still, with `ideal` added, improve on known points.

    Args:
        left: points, shape (a, 2).
        right: points, shape (b, 2).
        ideal: the least that the GPUs to come add to each objective, shape (2,).
        known: a front by energy, shape (m, 2).

    Returns:
        The sums, shape (r, 2), and the indices of the points that they are made of, (r,) each.
    """
    points, pair = np.empty((len(left) * len(right), 2)), np.empty((len(left) * len(right), 2), dtype=np.int64)
    used = 0
    for i in range(len(left)):
        for j in range(len(right)):
            energy_j, jct_s = left[i, 0] + right[j, 0], left[i, 1] + right[j, 1]
            cheaper = np.searchsorted(known[:, 0], (energy_j + ideal[0]) * (1 + SAME), side="right")
            if cheaper == 0 or known[cheaper - 1, 1] > (jct_s + ideal[1]) * (1 + SAME):
                points[used, 0], points[used, 1] = energy_j, jct_s
                pair[used, 0], pair[used, 1] = i, j
                used += 1
    kept = lowest(points[:used])
    return points[kept], pair[kept, 0], pair[kept, 1]
