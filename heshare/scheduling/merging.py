"""Fronts of queues and of whole clusters: exact batching with labels, and sums of fronts (Minkowski)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heshare.scheduling.departing import FloatArray, IntArray, compiled

_SAME = 1e-12
"""Points nearer than this share of their coordinates are one: rounding is not a choice."""


@compiled
def kept_of(energy_j: FloatArray, jct_s: FloatArray, limit: int) -> IntArray:
    """Indices of the non-dominated of m points by energy, at most about `limit` of them.

    When there are more, the lower convex hull stays whole as far as the limit goes, since it holds the best plan of
    every weight; the rest is thinned evenly along the front.
    """
    order = np.argsort(energy_j, kind="mergesort")
    # Equal energies come in the order of time.
    for i in range(1, len(order)):
        at = i
        while at > 0 and energy_j[order[at - 1]] == energy_j[order[at]] and jct_s[order[at - 1]] > jct_s[order[at]]:
            order[at - 1], order[at] = order[at], order[at - 1]
            at -= 1
    front = np.empty(len(order), dtype=np.int64)
    count, least_s = 0, np.inf
    for i in order:
        if jct_s[i] < least_s * (1 - _SAME) or count == 0:
            front[count] = i
            count += 1
            least_s = jct_s[i]
    front = front[:count]
    if count <= limit:
        return front
    return _thinned(front, energy_j, jct_s, limit)


@compiled
def _thinned(front: IntArray, energy_j: FloatArray, jct_s: FloatArray, limit: int) -> IntArray:
    """The hull of a front (at most half the limit) and points evenly spaced between its ends."""
    count = len(front)
    stack, top = np.empty(count, dtype=np.int64), 0
    for i in range(count):
        while top > 1:
            a, b, c = front[stack[top - 2]], front[stack[top - 1]], front[i]
            left = (energy_j[b] - energy_j[a]) * (jct_s[c] - jct_s[a])
            if left - (energy_j[c] - energy_j[a]) * (jct_s[b] - jct_s[a]) > 0:
                break
            top -= 1
        stack[top] = i
        top += 1
    chosen = np.zeros(count, dtype=np.bool_)
    step = max(1.0, 2.0 * top / limit)
    at = 0.0
    while at < top:
        chosen[stack[int(at)]] = True
        at += step
    chosen[0] = chosen[count - 1] = True
    wide = energy_j[front[count - 1]] - energy_j[front[0]]
    high = jct_s[front[0]] - jct_s[front[count - 1]]
    along, mark, gap = 0.0, 0.0, 2.0 / (limit - limit // 2)
    for i in range(1, count):
        along += (energy_j[front[i]] - energy_j[front[i - 1]]) / wide + (jct_s[front[i - 1]] - jct_s[front[i]]) / high
        if along >= mark:
            chosen[i] = True
            mark = along + gap
    return front[chosen]


@dataclass(frozen=True, slots=True)
class QueueFront:
    """The ways to run one queue of which none is better in both objectives.

    Attributes:
        energy_j: energy, J, ascending, shape (f,).
        jct_s: sum of JCTs, s, shape (f,).
        option: for each label of each position, the option of its first batch; -1 at the end, shape (labels,).
        size: tasks in that batch, shape (labels,).
        rest: the label of what follows, -1 at the end, shape (labels,).
        first: labels of the whole queue, shape (f,).
    """

    energy_j: FloatArray
    jct_s: FloatArray
    option: IntArray
    size: IntArray
    rest: IntArray
    first: IntArray

    def batches(self, point: int) -> list[tuple[int, int]]:
        """Size and option of each batch in order of execution, for one point of the front."""
        label, result = int(self.first[point]), []
        while self.size[label]:
            result.append((int(self.size[label]), int(self.option[label])))
            label = int(self.rest[label])
        return result


def queue_front(
    length: int, width: int, begin: IntArray, energy_j: FloatArray, spent_s: FloatArray, end_s: FloatArray, limit: int
) -> QueueFront:
    """The front of one queue over all ways to cut and configure it.

    Args:
        length: tasks in the queue.
        width: the most tasks of a batch.
        begin: menus: the set of `size` tasks from position j has options from `begin[j * width + size - 1]` on.
        energy_j: E_B of each option, J.
        spent_s: sum of times of each option, s.
        end_s: tau_B of each option, s.
        limit: about how many labels a position keeps; a queue whose fronts are smaller has its exact front.
    """
    return QueueFront(*_labels(length, width, begin, energy_j, spent_s, end_s, limit))


@compiled
def _labels(
    length: int, width: int, begin: IntArray, energy_j: FloatArray, spent_s: FloatArray, end_s: FloatArray, limit: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray, IntArray]:
    total_j, total_s = np.zeros(1), np.zeros(1)
    option, size, rest = np.full(1, -1), np.zeros(1, dtype=np.int64), np.full(1, -1)
    spans = np.zeros((length + 1, 2), dtype=np.int64)
    spans[length, 1] = 1
    for j in range(length - 1, -1, -1):
        count = 0
        for taken in range(1, min(width, length - j) + 1):
            options = begin[j * width + taken] - begin[j * width + taken - 1]
            count += options * (spans[j + taken, 1] - spans[j + taken, 0])
        new_j, new_s = np.empty(count), np.empty(count)
        new_option, new_size = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        new_rest = np.empty(count, dtype=np.int64)
        at = 0
        for taken in range(1, min(width, length - j) + 1):
            behind = length - j - taken
            for which in range(begin[j * width + taken - 1], begin[j * width + taken]):
                for label in range(spans[j + taken, 0], spans[j + taken, 1]):
                    new_j[at] = energy_j[which] + total_j[label]
                    new_s[at] = spent_s[which] + behind * end_s[which] + total_s[label]
                    new_option[at], new_size[at], new_rest[at] = which, taken, label
                    at += 1
        kept = kept_of(new_j, new_s, limit)
        spans[j, 0] = len(total_j)
        total_j, total_s = np.append(total_j, new_j[kept]), np.append(total_s, new_s[kept])
        option, size = np.append(option, new_option[kept]), np.append(size, new_size[kept])
        rest = np.append(rest, new_rest[kept])
        spans[j, 1] = len(total_j)
    first = np.arange(spans[0, 0], spans[0, 1])
    return total_j[first], total_s[first], option, size, rest, first


@compiled
def add_fronts(
    energy_j: FloatArray, jct_s: FloatArray, more_j: FloatArray, more_s: FloatArray, limit: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """The front of all sums of a point of one front and a point of another.

    Returns:
        Energy and sum of JCTs of each sum that stays, and the index of either summand, each of shape (f,).
    """
    count = len(more_j)
    all_j, all_s = np.empty(len(energy_j) * count), np.empty(len(energy_j) * count)
    for i in range(len(energy_j)):
        for j in range(count):
            all_j[i * count + j] = energy_j[i] + more_j[j]
            all_s[i * count + j] = jct_s[i] + more_s[j]
    kept = kept_of(all_j, all_s, limit)
    return all_j[kept], all_s[kept], kept // count, kept % count


def merge(fronts: list[tuple[FloatArray, FloatArray]], limit: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """The front of a cluster from the fronts of its queues, exact as long as partial fronts stay within the limit.

    Sums are made pairwise, as in a tournament, so that the work grows with the number of queues and not faster.

    Returns:
        Energy in J and sum of JCTs in s, each of shape (f,), and the chosen point of each queue, shape (f, q).
    """
    if not fronts:
        return np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    if len(fronts) == 1:
        energy_j, jct_s = fronts[0]
        kept = kept_of(energy_j, jct_s, limit)
        return energy_j[kept], jct_s[kept], kept[:, None]
    half = len(fronts) // 2
    left_j, left_s, left = merge(fronts[:half], limit)
    right_j, right_s, right = merge(fronts[half:], limit)
    energy_j, jct_s, one, other = add_fronts(left_j, left_s, right_j, right_s, limit)
    return energy_j, jct_s, np.concatenate((left[one], right[other]), axis=1)
