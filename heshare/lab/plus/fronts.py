"""Fronts of queues and of clusters: exact batching with labels, and Minkowski sums of fronts.

`docs/bound.md` has the equations and their sources.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.plus.batch_table import BatchOptions
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import Instance
from heshare.scheduling.pareto import non_dominated_indices
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit

_SAME = 1e-12
"""Points nearer than this share of their coordinates are one, so that rounding makes no points."""


@dataclass(frozen=True, slots=True)
class QueueFronts:
    """The fronts of queues on one type of GPU: a point is an option of the first batch and a point of a shorter queue.

    Attributes:
        begin: queue q has the points `begin[q]` to `begin[q + 1]`, none if it cannot run, shape (q + 1,).
        points: [energy in J, sum of JCTs in s], by energy in each queue, shape (l, 2).
        option: the option of the queue's first batch, -1 for the empty queue, shape (l,).
        rest: the point of the rest of the queue, -1 for the empty queue, shape (l,).
    """

    begin: IntArray
    points: FloatArray
    option: IntArray
    rest: IntArray

    def of(self, queue: int) -> FloatArray:
        """Return the front of one queue, shape (m, 2)."""
        return self.points[self.begin[queue] : self.begin[queue + 1]]

    def options(self, point: int) -> list[int]:
        """Return the options of a point's batches, in order of execution."""
        result = []
        while self.option[point] >= 0:
            result.append(int(self.option[point]))
            point = int(self.rest[point])
        return result


def suffix_fronts(length: int, width: int, options: BatchOptions, limit: int) -> QueueFronts:
    """Return the front of each suffix of a queue, over all ways to cut it into batches and to configure them.

    Suffix i has the last i of `length` tasks. `options` are of the sets of 1, 2 .. `width` tasks from every position,
    in the order of `suffix_sets`. A suffix has at most about `limit` points; below that its front is exact.
    """
    suffix = np.arange(length + 1)[:, None]
    taken = np.arange(width)
    row = np.where(taken < suffix, (length - suffix) * width + taken, -1)
    begin, points, links = label_queues(
        row, suffix - taken - 1, suffix[:, 0].copy(), options.begin, options.values, limit, _SAME
    )
    return QueueFronts(begin, points, links[:, 0], links[:, 1])


def suffix_sets(length: int, width: int) -> IntArray:
    """Return the positions of 1, 2 .. width tasks from every position of a queue, shape (length * width, width).

    A set that would extend beyond the end has fewer tasks; no label refers to it.
    """
    position = np.arange(length)[:, None, None] + np.arange(width)
    within = np.arange(width) <= np.arange(width)[:, None]
    return np.where(within & (position < length), position, EMPTY).reshape(-1, width)


@njit(cache=True)
def label_queues(
    row: IntArray, rest: IntArray, length: IntArray, begin: IntArray, values: FloatArray, limit: int, tolerance: float
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the front of each of q queues, of which the first is the empty one.

    Args:
        row: the set of the first 1, 2 .. w tasks of each queue, -1 beyond its length, shape (q, w).
        rest: the queue without them, which has a lower index, shape (q, w).
        length: tasks of each queue, shape (q,).
        begin: the first option of each set, and the number of options, shape (m + 1,).
        values: E_B in J, sum of execution times in s, tau_B in s of each option, shape (o, 3).
        limit: about the largest number of points of a queue.
        tolerance: a point must be better in JCT by more than this share of it.

    Returns:
        `begin` of `QueueFronts`, its `points`, and `option` and `rest` of each point, shape (l, 2).
    """
    spans = np.zeros(len(row) + 1, dtype=np.int64)
    points = np.zeros((1024, 2))
    links = np.full((1024, 2), -1)
    used = 1
    spans[1] = used
    for queue in range(1, len(row)):
        batches = min(row.shape[1], length[queue])
        count = 0
        for i in range(batches):
            options = begin[row[queue, i] + 1] - begin[row[queue, i]]
            count += options * (spans[rest[queue, i] + 1] - spans[rest[queue, i]])

        # Every option of the first batch, before every point of the rest.
        energy_j = np.empty(count)
        jct_s = np.empty(count)
        link = np.empty((count, 2), dtype=np.int64)
        filled = 0
        for i in range(batches):
            behind = rest[queue, i]
            for option in range(begin[row[queue, i]], begin[row[queue, i] + 1]):
                own_s = values[option, 1] + length[behind] * values[option, 2]
                for label in range(spans[behind], spans[behind + 1]):
                    energy_j[filled] = values[option, 0] + points[label, 0]
                    jct_s[filled] = own_s + points[label, 1]
                    link[filled, 0] = option
                    link[filled, 1] = label
                    filled += 1

        kept = thinned_front(energy_j, jct_s, limit, tolerance)
        if used + len(kept) > len(points):
            room = 2 * (used + len(kept))
            more_points = np.empty((room, 2))
            more_links = np.empty((room, 2), dtype=np.int64)
            for point in range(used):
                for column in range(2):
                    more_points[point, column] = points[point, column]
                    more_links[point, column] = links[point, column]
            points = more_points
            links = more_links
        for index in kept:
            points[used, 0] = energy_j[index]
            points[used, 1] = jct_s[index]
            links[used, 0] = link[index, 0]
            links[used, 1] = link[index, 1]
            used += 1
        spans[queue + 1] = used
    return spans, points[:used].copy(), links[:used].copy()


@njit(cache=True)
def thinned_front(energy_j: FloatArray, jct_s: FloatArray, limit: int, tolerance: float) -> IntArray:
    """Return the indices of the non-dominated of m points by energy, at most about `limit` of them.

    A point must be better in JCT than the one before by more than the share `tolerance` of it. Of too many points the
    lower convex hull is selected, at most half the limit, and points evenly spaced along the front, with both ends.
    """
    front = non_dominated_indices(energy_j, jct_s)
    count = 0
    lowest_s = np.inf
    for point in front:
        if jct_s[point] < lowest_s * (1 - tolerance):
            lowest_s = jct_s[point]
            front[count] = point
            count += 1
    if count <= limit:
        return front[:count]

    # The hull by a monotone chain: a point remains while the turn from its neighbours is to the left.
    hull = np.empty(count, dtype=np.int64)
    top = 0
    for i in range(count):
        while top > 1:
            a = front[hull[top - 2]]
            b = front[hull[top - 1]]
            c = front[i]
            turn = (energy_j[b] - energy_j[a]) * (jct_s[c] - jct_s[a])
            if turn - (energy_j[c] - energy_j[a]) * (jct_s[b] - jct_s[a]) > 0:
                break
            top -= 1
        hull[top] = i
        top += 1
    chosen = np.zeros(count, dtype=np.bool_)
    step = max(1.0, 2.0 * top / limit)
    place = 0.0
    while place < top:
        chosen[hull[int(place)]] = True
        place += step
    chosen[0] = True
    chosen[count - 1] = True

    # The length along the front in both objectives, each over its range, is 2 from end to end.
    range_j = energy_j[front[count - 1]] - energy_j[front[0]]
    range_s = jct_s[front[0]] - jct_s[front[count - 1]]
    gap = 2.0 / (limit - limit // 2)
    along = 0.0
    mark = gap
    for i in range(1, count):
        step_j = energy_j[front[i]] - energy_j[front[i - 1]]
        step_s = jct_s[front[i - 1]] - jct_s[front[i]]
        along += step_j / range_j + step_s / range_s
        if along >= mark:
            chosen[i] = True
            mark = along + gap

    kept = 0
    for i in range(count):
        if chosen[i]:
            front[kept] = front[i]
            kept += 1
    return front[:kept]


@njit(cache=True)
def _sum_of_two(left: FloatArray, right: FloatArray, limit: int) -> tuple[FloatArray, IntArray]:
    """Return the front of all sums of a point of one front and a point of another, and the number of each sum."""
    count = len(right)
    energy_j = np.empty(len(left) * count)
    jct_s = np.empty(len(left) * count)
    for i in range(len(left)):
        for j in range(count):
            energy_j[i * count + j] = left[i, 0] + right[j, 0]
            jct_s[i * count + j] = left[i, 1] + right[j, 1]
    kept = thinned_front(energy_j, jct_s, limit, _SAME)
    points = np.empty((len(kept), 2))
    for place in range(len(kept)):
        points[place, 0] = energy_j[kept[place]]
        points[place, 1] = jct_s[kept[place]]
    return points, kept


def sum_fronts(fronts: Sequence[FloatArray], limit: int) -> tuple[FloatArray, IntArray]:
    """Return the Minkowski sum of fronts, exact as long as partial sums stay within the limit.

    Sums are formed pairwise, so the work is linear in the number of fronts. Fronts are [energy in
    J, sum of JCTs in s] by energy, shape (m, 2) each; a partial sum has at most about `limit` points. Returned are the
    points of the sum, shape (f, 2), and the chosen point of each front, shape (f, q).

    Example:
        Of the four sums (4, 9), (7, 8), (5, 5) and (8, 4) of two fronts, the third one dominates the second. It is the
        sum of point 1 of the first front and point 0 of the second.

        >>> first, second = np.array([[1.0, 6.0], [2.0, 2.0]]), np.array([[3.0, 3.0], [6.0, 2.0]])
        >>> [values.tolist() for values in sum_fronts([first, second], limit=10)]
        [[[4.0, 9.0], [5.0, 5.0], [8.0, 4.0]], [[0, 0], [1, 0], [1, 1]]]
    """
    if not fronts:
        return np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
    if len(fronts) == 1:
        energy_j, jct_s = fronts[0].T.copy()
        kept = thinned_front(energy_j, jct_s, limit, _SAME)
        return fronts[0][kept], kept[:, None]
    half = len(fronts) // 2
    left, from_left = sum_fronts(fronts[:half], limit)
    right, from_right = sum_fronts(fronts[half:], limit)
    points, pair = _sum_of_two(left, right, limit)
    return points, np.concatenate((from_left[pair // len(right)], from_right[pair % len(right)]), axis=1)


def merged_front(points: FloatArray) -> IntArray:
    """Return the indices of all non-dominated of m points by energy, shape (m, 2); of near ones the first."""
    return thinned_front(points[:, 0].copy(), points[:, 1].copy(), len(points), _SAME)


def front_of_queues(
    instance: Instance, queues: Iterable[tuple[tuple[Batch, ...], ...]], objectives: FloatArray
) -> Front:
    """Return the front of m plans, from the batches of each GPU and the objectives of each plan, shape (m, 2)."""
    plans = [
        Plan(instance.cluster, instance.tasks, of_gpus, energy_j, jct_s)
        for of_gpus, (energy_j, jct_s) in zip(queues, objectives.tolist(), strict=True)
    ]
    return Front(tuple(plans), objectives)
