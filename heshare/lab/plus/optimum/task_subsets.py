"""Dynamic programs over subsets of tasks: all batches, the front of every queue, the least cost of every assignment.

A set of tasks is the bits of a whole number (Held and Karp 1962). On one type of GPU bit i is the task at SPT position
i, so the lowest bits of a set are the tasks that its queue runs first.

Front of every queue. The queue of a set S is its first batch, the l lowest bits B of S, before the queue of the others,
which all wait for it. With nd for removing dominated points (`heshare.lab.plus.fronts` shows why that may be done
early),

    F(empty) = {[0, 0]},    F(S) = nd of the union over l = 1 .. width, options o of B, of
                                   [E_o, sum_o + (|S| - l) end_o] + F(S without B)

takes one pass over the 2^n sets in ascending order, for all assignments at once.

Least cost of serving a set. For a weight w let q_g(S) = min over y in F_g(S) of y w be the least cost of a queue. GPU g
and those after it serve a set S at

    c_k(S) = q_k(S),    c_g(S) = min over subsets U of S of q_g(U) + c_{g+1}(S without U)

in 3^n steps for each GPU, since a set of size m has 2^m subsets. c_{g+1} bounds what any completion of a partial
assignment can cost, and `expand` drops the partial assignments whose bounds at all weights exceed the front so far.

Example: two tasks, positions 0 and 1, batches {0}, {0, 1}, {1} with one option each. One after the other costs 3 J and
1 + (1 + 2) s; together 2 J, but both take 3 s. Neither dominates the other.

>>> from heshare.lab.plus.costs import BatchOptions
>>> values = np.array([[1.0, 1.0, 1.0], [2.0, 6.0, 3.0], [2.0, 2.0, 2.0]])
>>> options = BatchOptions(np.arange(4), values, np.full(3, 1000), np.full((3, 2), 100))
>>> batches = FeasibleBatches(np.arange(2), subsets(2, 2), options)
>>> fronts = subset_fronts(batches)
>>> fronts.of(0b11).tolist()
[[2.0, 6.0], [3.0, 4.0]]

Source: dynamic programming over subsets: Held and Karp 1962, doi:10.1137/0110015.
"""

from itertools import combinations
from math import comb

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.fronts import FeasibleBatches, QueueFronts, label_queues
from heshare.scheduling.batch_model import EMPTY
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.caches.row_table import lengthened
from heshare.shared.compiling import compiled
from heshare.shared.errors import InputError

MAX_SETS = 1_000_000
"""The largest number of sets of tasks on one type of GPU that are listed."""


def feasible_batches(costs: BatchCosts) -> tuple[FeasibleBatches, ...]:
    """Return all batches of each type of GPU.

    Raises:
        InputError: more than `MAX_SETS` sets of tasks.
    """
    sets = subsets(costs.world.n, costs.choices.width)
    batches = []
    for kind, order in enumerate(costs.order):
        tasks = np.where(sets == EMPTY, EMPTY, order[sets])
        batches.append(FeasibleBatches(order, sets, costs.options(kind, tasks)))
    return tuple(batches)


def subsets(n: int, width: int) -> IntArray:
    """Return all sets of 1 to `width` of n positions, ascending, `EMPTY`-padded, sorted, shape (m, width).

    Raises:
        InputError: more than `MAX_SETS` sets.
    """
    count = sum(comb(n, size) for size in range(1, width + 1))
    if count > MAX_SETS:
        raise InputError(
            f"{count} sets of up to {width} of {n} tasks",
            f"at most {MAX_SETS}",
            "Compute the optimum of fewer tasks, or of smaller batches.",
            column="tasks",
        )
    table = np.concatenate([_padded(n, size, width) for size in range(1, min(n, width) + 1)])
    return table[np.lexsort(table.T[::-1])]


def _padded(n: int, size: int, width: int) -> IntArray:
    rows = np.array(list(combinations(range(n), size)), dtype=np.int64).reshape(-1, size)
    return np.pad(rows, ((0, 0), (0, width - size)), constant_values=EMPTY)


def sets_by_task(order: IntArray) -> IntArray:
    """Return the set of SPT positions of every set of tasks, shape (n,) -> (2**n,)."""
    result = np.zeros(1, dtype=np.int64)
    rank = np.argsort(order)
    for task in range(len(order)):
        result = np.concatenate((result, result | (1 << int(rank[task]))))
    return result


def subset_fronts(batches: FeasibleBatches) -> QueueFronts:
    """Return the exact front of every set of tasks on one type of GPU; bit i of a set is SPT position i."""
    sets, everything = batches.sets, np.arange(1 << len(batches.order))
    row_of = np.full(len(everything), -1, dtype=np.int64)
    row_of[np.where(sets == EMPTY, 0, 1 << np.maximum(sets, 0)).sum(axis=1)] = np.arange(len(sets))
    row, rest = np.empty((len(everything), sets.shape[1]), dtype=np.int64), everything
    left = np.empty_like(row)
    for taken in range(sets.shape[1]):
        # Removes the lowest bit: the next task in SPT order joins the first batch.
        without = rest & (rest - 1)
        row[:, taken], left[:, taken] = np.where(rest > 0, row_of[everything ^ without], -1), without
        rest = without
    length = np.bitwise_count(everything).astype(np.int64)
    unlimited = 1 << 62
    options = batches.options
    return QueueFronts(*label_queues(row, left, length, options.begin, options.values, unlimited, 0.0))


def least_costs(fronts: QueueFronts, weights: FloatArray) -> FloatArray:
    """Return the least weighted cost of every queue, infinite if it cannot run: weights (f, 2) -> (queues, f)."""
    result = np.full((len(fronts.begin) - 1, len(weights)), np.inf)
    runnable = np.flatnonzero(np.diff(fronts.begin))
    result[runnable] = np.minimum.reduceat(fronts.points @ weights.T, fronts.begin[runnable], axis=0)
    return result


@compiled
def completions(least: FloatArray, after: FloatArray) -> FloatArray:
    """Return the least cost of serving a set with one GPU and those after it, for every set and weight.

    `least` is the cost of the GPU's own queue of every set, `after` that of serving it with the GPUs after it, both of
    shape (2**n, f).
    """
    result: FloatArray = least + after[0]
    for tasks in range(len(least)):
        own = tasks
        while own:
            # The next smaller subset of `tasks`; after all of them comes the empty one.
            own = (own - 1) & tasks
            for weight in range(least.shape[1]):
                cost = least[own, weight] + after[tasks ^ own, weight]
                if cost < result[tasks, weight]:
                    result[tasks, weight] = cost
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
        The index that each result extends, the GPU's set, and the weighted cost so far, shape (r,), (r,), (r, f).
    """
    all_tasks, fan = len(least) - 1, least.shape[1]
    parent, own_sets, costs = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty((1024, fan))
    used = 0
    for row in range(len(taken)):
        free = all_tasks ^ taken[row]
        own = free
        while True:
            if own <= ceiling[row]:
                total = cost[row] + least[own]
                if _reaches_below(total + after[free ^ own], corners):
                    if used == len(parent):
                        parent, own_sets = lengthened(parent, used), lengthened(own_sets, used)
                        costs = lengthened(costs, used)
                    parent[used], own_sets[used], costs[used] = row, own, total
                    used += 1
            if own == 0:
                break
            own = (own - 1) & free
    return parent[:used].copy(), own_sets[:used].copy(), costs[:used].copy()


@compiled
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
