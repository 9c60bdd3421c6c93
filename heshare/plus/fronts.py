"""Fronts of queues and of clusters: exact batching with labels, Minkowski sums of fronts, and the archive of both.

Front of a queue. The recursion of `heshare.plus.local_search` without a weight: F_j is the set of non-dominated labels
[E, T] of the tasks from position j of m on,

    F_m = {[0, 0]},    F_j = nd of the union over l = 1 .. width, options o of j .. j + l - 1, of
                             [E_o, sum_o + (m - j - l) end_o] + F_{j + l}

where nd removes dominated points. This is exact (label setting, Martins 1984): a dominated label y' of F_{j + l}, with
y <= y', cannot be part of a non-dominated point, since x + y <= x + y' for every x that is put before it.

Front of a cluster. An assignment's objectives are sums over its queues, so its front is a Minkowski sum,

    F = nd(F_1 + ... + F_k),    A + B = {a + b : a in A, b in B},    nd(A + B) = nd(nd(A) + nd(B))

The last equation holds for the same reason, and is why every partial sum may drop its dominated points at once. Sums of
two are made pairwise, as in a tournament. The number of points may still grow as the product of the fronts' sizes, so
partial fronts are thinned to a limit: half of it for the lower convex hull, which has the best plan of every weight,
the rest evenly along the front. Within the limit the front is exact; beyond it, it is a part of the exact front of the
points that were kept.

Example: two fronts of two points each. Of the four sums (4, 9), (7, 8), (5, 5) and (8, 4), the second is dominated by
the third, which is the sum of point 1 of the first front and point 0 of the second.

>>> first, second = (np.array([1.0, 2.0]), np.array([6.0, 2.0])), (np.array([3.0, 6.0]), np.array([3.0, 2.0]))
>>> [values.tolist() for values in sum_fronts([first, second], limit=10)]
[[4.0, 5.0, 8.0], [9.0, 5.0, 4.0], [[0, 0], [1, 0], [1, 1]]]

Sources: labels: Martins 1984, doi:10.1016/0377-2217(84)90077-8, and Ehrgott 2005, doi:10.1007/3-540-27659-9, Chapter 9.
Minkowski sums of fronts: Karathanasis, Kontogiannis and Zaroliagis 2025, doi:10.4230/LIPIcs.ESA.2025.59.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.compiling import compiled
from heshare.plus.costs import BatchCosts, BatchOptions
from heshare.plus.search_settings import SearchSettings
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.pareto import non_dominated, non_dominated_indices, thin
from heshare.scheduling.plan import Batch, Plan

Queue = tuple[int, tuple[int, ...]]
"""A type of GPU and its tasks in SPT order."""
QueueBatches = dict[tuple[Queue, int], tuple[Batch, ...]]
"""The batches of points of queues' fronts, by queue and point."""

_SAME = 1e-12
"""Points nearer than this share of their coordinates are one, so that rounding makes no points."""
_NO_POINT = -1


@dataclass(frozen=True, slots=True)
class QueueFront:
    """The front of one queue, with the labels from which its batches are read.

    Attributes:
        energy_j: energy, J, ascending, shape (f,).
        jct_s: sum of JCTs, s, shape (f,).
        option: the option of each label's first batch, -1 at the end, shape (labels,).
        size: tasks in that batch, 0 at the end, shape (labels,).
        rest: the label of the tasks behind it, -1 at the end, shape (labels,).
        first: the labels of the whole queue, shape (f,).
    """

    energy_j: FloatArray
    jct_s: FloatArray
    option: IntArray
    size: IntArray
    rest: IntArray
    first: IntArray

    def batches(self, point: int) -> list[tuple[int, int]]:
        """Return size and option of each batch in order of execution, for one point of the front."""
        label, result = int(self.first[point]), []
        while self.size[label]:
            result.append((int(self.size[label]), int(self.option[label])))
            label = int(self.rest[label])
        return result


def queue_front(
    length: int, width: int, begin: IntArray, energy_j: FloatArray, sum_s: FloatArray, end_s: FloatArray, limit: int
) -> QueueFront:
    """Return the front of one queue over all ways to cut it into batches and to configure them.

    Args:
        length: tasks in the queue.
        width: the largest number of tasks of a batch.
        begin: the set of `size` tasks from position j has options from `begin[j * width + size - 1]` on.
        energy_j: E_B of each option, J.
        sum_s: sum of execution times of each option, s.
        end_s: tau_B of each option, s.
        limit: about how many labels a position keeps; a queue whose fronts are smaller has its exact front.
    """
    return QueueFront(*_label_queue(length, width, begin, energy_j, sum_s, end_s, limit))


@compiled
def _label_queue(
    length: int, width: int, begin: IntArray, energy_j: FloatArray, sum_s: FloatArray, end_s: FloatArray, limit: int
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
        used = 0
        for taken in range(1, min(width, length - j) + 1):
            behind = length - j - taken
            for first in range(begin[j * width + taken - 1], begin[j * width + taken]):
                for label in range(spans[j + taken, 0], spans[j + taken, 1]):
                    new_j[used] = energy_j[first] + total_j[label]
                    new_s[used] = sum_s[first] + behind * end_s[first] + total_s[label]
                    new_option[used], new_size[used], new_rest[used] = first, taken, label
                    used += 1
        kept = thinned_front(new_j, new_s, limit)
        spans[j, 0] = len(total_j)
        total_j, total_s = np.append(total_j, new_j[kept]), np.append(total_s, new_s[kept])
        option, size = np.append(option, new_option[kept]), np.append(size, new_size[kept])
        rest = np.append(rest, new_rest[kept])
        spans[j, 1] = len(total_j)
    whole = np.arange(spans[0, 0], spans[0, 1])
    return total_j[whole], total_s[whole], option, size, rest, whole


@compiled
def thinned_front(energy_j: FloatArray, jct_s: FloatArray, limit: int) -> IntArray:
    """Return the indices of the non-dominated of m points by energy, at most about `limit` of them."""
    front = non_dominated_indices(energy_j, jct_s, _SAME)
    if len(front) <= limit:
        return front
    return _thinned(front, energy_j, jct_s, limit)


@compiled
def _thinned(front: IntArray, energy_j: FloatArray, jct_s: FloatArray, limit: int) -> IntArray:
    """Return the lower convex hull of a front (at most half the limit) and points evenly spaced between its ends."""
    count = len(front)
    # The hull by a monotone chain: a point stays while the turn from its neighbours is to the left.
    hull, top = np.empty(count, dtype=np.int64), 0
    for i in range(count):
        while top > 1:
            a, b, c = front[hull[top - 2]], front[hull[top - 1]], front[i]
            turn = (energy_j[b] - energy_j[a]) * (jct_s[c] - jct_s[a])
            if turn - (energy_j[c] - energy_j[a]) * (jct_s[b] - jct_s[a]) > 0:
                break
            top -= 1
        hull[top] = i
        top += 1
    chosen = np.zeros(count, dtype=np.bool_)
    step, place = max(1.0, 2.0 * top / limit), 0.0
    while place < top:
        chosen[hull[int(place)]] = True
        place += step
    chosen[0] = chosen[count - 1] = True
    # The length along the front in both objectives, each over its range, is 2 from end to end.
    range_j = energy_j[front[count - 1]] - energy_j[front[0]]
    range_s = jct_s[front[0]] - jct_s[front[count - 1]]
    along, mark, gap = 0.0, 0.0, 2.0 / (limit - limit // 2)
    for i in range(1, count):
        step_j, step_s = energy_j[front[i]] - energy_j[front[i - 1]], jct_s[front[i - 1]] - jct_s[front[i]]
        along += step_j / range_j + step_s / range_s
        if along >= mark:
            chosen[i] = True
            mark = along + gap
    return front[chosen]


@compiled
def sum_two_fronts(
    left_j: FloatArray, left_s: FloatArray, right_j: FloatArray, right_s: FloatArray, limit: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Return the front of all sums of a point of one front and a point of another.

    Returns:
        Energy and sum of JCTs of each sum that stays, and the index of either summand, each of shape (f,).
    """
    count = len(right_j)
    all_j, all_s = np.empty(len(left_j) * count), np.empty(len(left_j) * count)
    for i in range(len(left_j)):
        for j in range(count):
            all_j[i * count + j] = left_j[i] + right_j[j]
            all_s[i * count + j] = left_s[i] + right_s[j]
    kept = thinned_front(all_j, all_s, limit)
    return all_j[kept], all_s[kept], kept // count, kept % count


def sum_fronts(fronts: list[tuple[FloatArray, FloatArray]], limit: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the Minkowski sum of fronts, exact as long as partial sums stay within the limit.

    The halves are summed first, so that the work grows with the number of fronts and no faster.

    Returns:
        Energy in J and sum of JCTs in s, each of shape (f,), and the chosen point of each front, shape (f, q).
    """
    if not fronts:
        return np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    if len(fronts) == 1:
        energy_j, jct_s = fronts[0]
        kept = thinned_front(energy_j, jct_s, limit)
        return energy_j[kept], jct_s[kept], kept[:, None]
    half = len(fronts) // 2
    left_j, left_s, left = sum_fronts(fronts[:half], limit)
    right_j, right_s, right = sum_fronts(fronts[half:], limit)
    energy_j, jct_s, left_point, right_point = sum_two_fronts(left_j, left_s, right_j, right_s, limit)
    return energy_j, jct_s, np.concatenate((left[left_point], right[right_point]), axis=1)


@dataclass(frozen=True, slots=True)
class _StoredQueue:
    """The front of a queue, and the options that its labels name."""

    front: QueueFront
    options: BatchOptions


class FrontArchive:
    """The assignments found by a search and the front of all their plans; the front of each queue is computed once.

    Args:
        costs: the options of batches.
        settings: the limits of labels, sums and the front.
    """

    def __init__(self, costs: BatchCosts, settings: SearchSettings) -> None:
        self._costs, self._front_plans = costs, settings.front_plans
        self._labels, self._sum_points = settings.front_limits(costs.world.k)
        self._stored: dict[Queue, _StoredQueue] = {}
        self._seen: set[tuple[Queue, ...]] = set()
        self._points = np.zeros((0, 2))
        self._sources: list[tuple[tuple[Queue, ...], IntArray]] = []

    def add(self, schemes: Iterable[IntArray]) -> None:
        """Add the fronts of schemes, GPU of each task, shape (n,), and keep the points that are not dominated."""
        new = []
        for scheme in schemes:
            queues = self._queues_of(scheme)
            # GPUs of a type are alike unless they begin at different times, so permutations are the same assignment.
            signature = queues if self._costs.world.begin_s.any() else tuple(sorted(queues))
            if signature not in self._seen:
                self._seen.add(signature)
                new.append(queues)
        self._store_fronts(sorted({queue for queues in new for queue in queues if queue[1]} - self._stored.keys()))
        for queues in new:
            self._add_points(queues)

    def objectives(self) -> FloatArray:
        """Return [energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return np.asarray(self._points / np.array([1.0, self._costs.world.n]))

    def totals(self) -> tuple[FloatArray, FloatArray]:
        """Return energy in J and sum of JCTs in s of the front so far, by energy, each of shape (m,)."""
        return self._points[:, 0].copy(), self._points[:, 1].copy()

    def weight_range(self) -> tuple[float, float]:
        """Return the smallest and the largest slope of the front, which is a weight on the sum of JCTs, J / s."""
        points = self._points
        if len(points) < 2:
            return 1.0, 1.0
        # Neighbours that almost coincide have extreme slopes; a few points spread over the front have not.
        chosen = thin(points, 12)
        slopes = -np.diff(points[chosen, 0]) / np.diff(points[chosen, 1])
        return float(slopes.min()), float(slopes.max())

    def plans(self) -> tuple[tuple[Plan, ...], FloatArray]:
        """Return the plans of the front by energy, at most `front_plans`, and their objectives, shape (m, 2)."""
        objectives = self.objectives()
        kept = np.flatnonzero(non_dominated(objectives))
        kept = kept[thin(objectives[kept], self._front_plans)]
        batches: QueueBatches = {}
        plans, world = [], self._costs.world
        for point in kept.tolist():
            queues = self.queues(point, batches)
            energy_j, jct_s = float(objectives[point, 0]), float(objectives[point, 1])
            plans.append(Plan(world.cluster, world.tasks, queues, energy_j, jct_s))
        return tuple(plans), objectives[kept]

    def queues(self, point: int, batches: QueueBatches) -> tuple[tuple[Batch, ...], ...]:
        """Return the batches of each GPU at one point; queues in `batches` are taken from there, new ones are added."""
        queues, points = self._sources[point]
        return tuple(self._batches(queue, int(at), batches) for queue, at in zip(queues, points, strict=True))

    def _queues_of(self, scheme: IntArray) -> tuple[Queue, ...]:
        """Return the queue of each GPU."""
        costs = self._costs
        kind_of = costs.world.kind_of
        order = np.lexsort((costs.rank[kind_of[scheme], np.arange(len(scheme))], scheme))
        parts = np.split(order, np.searchsorted(scheme[order], np.arange(1, len(kind_of))))
        return tuple((kind, tuple(part.tolist())) for kind, part in zip(kind_of.tolist(), parts, strict=True))

    def _store_fronts(self, queues: list[Queue]) -> None:
        """Compute the fronts of queues; the options of all queues of a type are computed at once."""
        width = self._costs.choices.width
        for kind in sorted({kind for kind, _ in queues}):
            of_kind = [queue for queue in queues if queue[0] == kind]
            options = self._costs.options(kind, np.concatenate([_intervals(tasks, width) for _, tasks in of_kind]))
            row = 0
            for queue in of_kind:
                length = len(queue[1])
                part = _part(options, row, row + length * width)
                row += length * width
                front = queue_front(length, width, part.begin, part.energy_j, part.sum_s, part.end_s, self._labels)
                self._stored[queue] = _StoredQueue(front, part)

    def _add_points(self, queues: tuple[Queue, ...]) -> None:
        """Add the front of an assignment to the points."""
        used = [gpu for gpu, queue in enumerate(queues) if queue[1]]
        fronts = [self._stored[queues[gpu]].front for gpu in used]
        energy_j, jct_s, chosen = sum_fronts([(front.energy_j, front.jct_s) for front in fronts], self._sum_points)
        jct_s = jct_s + sum(float(self._costs.world.begin_s[gpu]) * len(queues[gpu][1]) for gpu in used)
        points = np.full((len(energy_j), len(queues)), _NO_POINT)
        points[:, used] = chosen
        joined = np.concatenate((self._points, np.stack((energy_j, jct_s), axis=1)))
        # No limit here: the archive keeps every non-dominated point.
        kept = thinned_front(joined[:, 0].copy(), joined[:, 1].copy(), len(joined))
        old = len(self._points)
        self._sources = [self._sources[at] if at < old else (queues, points[at - old]) for at in kept.tolist()]
        self._points = joined[kept]

    def _batches(self, queue: Queue, point: int, batches: QueueBatches) -> tuple[Batch, ...]:
        """Return the batches of one point of a queue's front."""
        if point == _NO_POINT:
            return ()
        if (queue, point) not in batches:
            stored, position, result = self._stored[queue], 0, []
            for size, option in stored.front.batches(point):
                ids = tuple(self._costs.world.tasks[task].id for task in queue[1][position : position + size])
                mps_pct = tuple(stored.options.mps_pct[option, :size].tolist())
                result.append(Batch(ids, mps_pct, int(stored.options.sm_mhz[option])))
                position += size
            batches[queue, point] = tuple(result)
        return batches[queue, point]


def _intervals(tasks: tuple[int, ...], width: int) -> IntArray:
    """Return the sets of 1, 2 .. width tasks from every position of a queue, shape (m * width, width).

    A set that would reach beyond the end has fewer tasks; the labels never refer to it.
    """
    padded = np.array([*tasks, *[EMPTY] * width])
    position = np.arange(len(tasks))[:, None] + np.arange(width)
    within = np.arange(width)[None, None] <= np.arange(width)[None, :, None]
    rows: IntArray = np.where(within, padded[position][:, None], EMPTY)
    return rows.reshape(-1, width)


def _part(options: BatchOptions, start: int, stop: int) -> BatchOptions:
    """Return the options of some consecutive sets."""
    begin = options.begin[start : stop + 1]
    rows = slice(begin[0], begin[-1])
    return BatchOptions(
        begin - begin[0],
        options.energy_j[rows],
        options.sum_s[rows],
        options.end_s[rows],
        options.sm_mhz[rows],
        options.mps_pct[rows],
    )
