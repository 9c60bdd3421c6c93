"""Dynamic programs over sets of tasks, a set being the bits of a whole number: fronts of queues, assignments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heshare.scheduling.departing import compiled
from heshare.scheduling.enumeration import Possible
from heshare.scheduling.objectives import FloatArray, IntArray
from heshare.scheduling.sharing import NOBODY


@dataclass(frozen=True)
class QueueFronts:
    """The exact front of every set of tasks queueing on one type of GPU. Bit i of a set is SPT position i.

    Attributes:
        begin: set s has the points `begin[s]` to `begin[s + 1]`, none if it cannot run, shape (2**n + 1,).
        points: [energy in J, sum of JCTs in s], by energy, shape (l, 2).
        option: the option of the queue's first batch, -1 for the empty queue, shape (l,).
        rest: the point of the rest of the queue, -1 for the empty queue, shape (l,).
    """

    begin: IntArray
    points: FloatArray
    option: IntArray
    rest: IntArray

    def of(self, some: int) -> FloatArray:
        """The front of one set, shape (m, 2)."""
        return self.points[self.begin[some] : self.begin[some + 1]]

    def chain(self, point: int) -> list[int]:
        """The options of a point's batches, in order of execution."""
        found = []
        while self.option[point] >= 0:
            found.append(int(self.option[point]))
            point = int(self.rest[point])
        return found

    def least(self, weights: FloatArray) -> FloatArray:
        """The least weighted cost of every set, infinite if it cannot run: weights (f, 2) -> (2**n, f)."""
        result = np.full((len(self.begin) - 1, len(weights)), np.inf)
        some = np.flatnonzero(np.diff(self.begin))
        result[some] = np.minimum.reduceat(self.points @ weights.T, self.begin[some], axis=0)
        return result


def queue_fronts(one: Possible) -> QueueFronts:
    """The exact front of every set of tasks on one type of GPU.

    A queue is its first batch, some of its shortest tasks, before the queue of the others; all of these wait for it.
    """
    n = len(one.order)
    row_of = np.full(1 << n, -1, dtype=np.int64)
    row_of[np.where(one.sets == NOBODY, 0, 1 << np.maximum(one.sets, 0)).sum(axis=1)] = np.arange(len(one.sets))
    rows = one.options
    found = _queue_fronts(n, one.sets.shape[1], row_of, rows.begin, rows.energy_j, rows.spent_s, rows.end_s)
    return QueueFronts(*found)


@compiled
def _queue_fronts(
    n: int, width: int, row_of: IntArray, first: IntArray, energy_j: FloatArray, spent_s: FloatArray, end_s: FloatArray
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    begin = np.zeros((1 << n) + 1, dtype=np.int64)
    points, links = np.zeros((1024, 2)), np.full((1024, 2), -1)
    begin[1] = used = 1
    for some in range(1, 1 << n):
        size, left = 0, some
        while left:
            left &= left - 1
            size += 1
        count, rest = 0, some
        for _ in range(min(width, size)):
            rest &= rest - 1
            row = row_of[some ^ rest]
            count += (first[row + 1] - first[row]) * (begin[rest + 1] - begin[rest])
        tried, link = np.empty((count, 2)), np.empty((count, 2), dtype=np.int64)
        at, rest = 0, some
        for taken in range(1, min(width, size) + 1):
            rest &= rest - 1
            row = row_of[some ^ rest]
            for option in range(first[row], first[row + 1]):
                own_s = spent_s[option] + (size - taken) * end_s[option]
                for label in range(begin[rest], begin[rest + 1]):
                    tried[at, 0] = energy_j[option] + points[label, 0]
                    tried[at, 1] = own_s + points[label, 1]
                    link[at, 0], link[at, 1] = option, label
                    at += 1
        kept = lowest(tried)
        if used + len(kept) > len(points):
            points, links = longer(points, used + len(kept)), longer(links, used + len(kept))
        for index in kept:
            points[used], links[used] = tried[index], link[index]
            used += 1
        begin[some + 1] = used
    return begin, points[:used].copy(), links[:used, 0].copy(), links[:used, 1].copy()


@compiled
def lowest(points: FloatArray) -> IntArray:
    """Indices of the points that no other dominates, by energy, the first of equal ones, shape (m, 2) -> (r,)."""
    order = np.argsort(points[:, 1], kind="mergesort")
    order = order[np.argsort(points[order, 0], kind="mergesort")]
    kept, least = 0, np.inf
    for index in order:
        if points[index, 1] < least:
            least = points[index, 1]
            order[kept] = index
            kept += 1
    return order[:kept].copy()


@compiled
def longer(array: Any, least: int) -> Any:
    """A copy that is at least `least` long, with room behind."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result


def sets_by_task(order: IntArray) -> IntArray:
    """The set of SPT positions of every set of tasks, shape (n,) -> (2**n,)."""
    result = np.zeros(1, dtype=np.int64)
    rank = np.argsort(order)
    for task in range(len(order)):
        result = np.concatenate((result, result | (1 << int(rank[task]))))
    return result


@compiled
def completions(least: FloatArray, after: FloatArray) -> FloatArray:
    """The least cost of serving a set with one GPU and those after it, for every set and weight.

    Args:
        least: cost of the GPU's own queue of every set, shape (2**n, f).
        after: cost of serving a set with the GPUs after it, shape (2**n, f).
    """
    result: FloatArray = least + after[0]
    for whole in range(len(least)):
        own = whole
        while own:
            own = (own - 1) & whole
            for weight in range(least.shape[1]):
                value = least[own, weight] + after[whole ^ own, weight]
                if value < result[whole, weight]:
                    result[whole, weight] = value
    return result


@compiled
def expand(
    taken: IntArray, cost: FloatArray, ceiling: IntArray, least: FloatArray, after: FloatArray, corners: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Give one more GPU a set of tasks in every way that could still reach below the front.

    Args:
        taken: the tasks that earlier GPUs have, shape (p,).
        cost: weighted cost of their queues, shape (p, f).
        ceiling: the largest set allowed: of GPUs of one type, earlier ones take larger sets, shape (p,).
        least: cost of the GPU's own queue of every set, shape (2**n, f).
        after: cost of serving a set with the GPUs after it, shape (2**n, f).
        corners: weighted corners below the front's points, shape (c, f).

    Returns:
        Which of the p each result extends, the GPU's set, and the weighted cost so far, shape (r,), (r,), (r, f).
    """
    everything, fan = len(least) - 1, least.shape[1]
    parent, own_sets, costs = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty((1024, fan))
    used = 0
    for row in range(len(taken)):
        whole = everything ^ taken[row]
        own = whole
        while True:
            if own <= ceiling[row]:
                total = cost[row] + least[own]
                if below(total + after[whole ^ own], corners):
                    if used == len(parent):
                        parent, own_sets = longer(parent, used), longer(own_sets, used)
                        costs = longer(costs, used)
                    parent[used], own_sets[used], costs[used] = row, own, total
                    used += 1
            if own == 0:
                break
            own = (own - 1) & whole
    return parent[:used].copy(), own_sets[:used].copy(), costs[:used].copy()


@compiled
def below(bound: FloatArray, corners: FloatArray) -> bool:
    """Whether plans with these least weighted costs could lie below one of the corners in both objectives."""
    for corner in range(len(corners)):
        possible = True
        for weight in range(len(bound)):
            if bound[weight] >= corners[corner, weight]:
                possible = False
                break
        if possible:
            return True
    return False
