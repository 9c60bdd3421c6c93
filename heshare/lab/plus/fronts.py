"""Fronts of queues and of clusters: exact batching with labels, Minkowski sums of fronts, and the archive of both.

Front of a queue. The recursion of `heshare.lab.plus.local_search` without a weight: F_j is the set of non-dominated
labels [E, T] of the tasks from position j of m on,

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

>>> first, second = np.array([[1.0, 6.0], [2.0, 2.0]]), np.array([[3.0, 3.0], [6.0, 2.0]])
>>> [values.tolist() for values in sum_fronts([first, second], limit=10)]
[[[4.0, 9.0], [5.0, 5.0], [8.0, 4.0]], [[0, 0], [1, 0], [1, 1]]]

Sources: labels: Martins 1984, doi:10.1016/0377-2217(84)90077-8, and Ehrgott 2005, doi:10.1007/3-540-27659-9, Chapter 9.
Minkowski sums of fronts: Karathanasis, Kontogiannis and Zaroliagis 2025, doi:10.4230/LIPIcs.ESA.2025.59.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.plus.costs import BatchCosts, BatchOptions
from heshare.lab.plus.search_settings import SearchSettings
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import Instance
from heshare.scheduling.pareto import non_dominated, non_dominated_indices, thin
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.caches.row_table import lengthened
from heshare.shared.compiling import compiled

Queue = tuple[int, tuple[int, ...]]
"""A type of GPU and its tasks in SPT order."""

_SAME = 1e-12
"""Points nearer than this share of their coordinates are one, so that rounding makes no points."""
_NO_POINT = -1


@dataclass(frozen=True, slots=True)
class FeasibleBatches:
    """Batches that one type of GPU could run, and their options.

    Attributes:
        order: tasks in the type's SPT order, shape (n,); a task's place here is its position.
        sets: positions of each batch's tasks, ascending, `EMPTY` beyond its size, shape (m, w).
        options: the options of each; none for a set that the GPU cannot run.
    """

    order: IntArray
    sets: IntArray
    options: BatchOptions

    def batch(self, option: int, world: Instance) -> Batch:
        """Return the batch of a plan that corresponds to an option."""
        row = int(np.searchsorted(self.options.begin, option, side="right")) - 1
        positions = self.sets[row][self.sets[row] != EMPTY]
        ids = tuple(world.tasks[task].id for task in self.order[positions].tolist())
        mps_pct = tuple(self.options.mps_pct[option, : len(ids)].tolist())
        return Batch(ids, mps_pct, int(self.options.sm_mhz[option]))


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
    as `suffix_sets` lists them. A suffix keeps about `limit` points; a queue whose fronts are smaller has its exact
    front.
    """
    suffix, taken = np.arange(length + 1)[:, None], np.arange(width)
    row = np.where(taken < suffix, (length - suffix) * width + taken, -1)
    return QueueFronts(
        *label_queues(row, suffix - taken - 1, suffix[:, 0], options.begin, options.values, limit, _SAME)
    )


def suffix_sets(length: int, width: int) -> IntArray:
    """Return the positions of 1, 2 .. width tasks from every position of a queue, shape (length * width, width).

    A set that would reach beyond the end has fewer tasks; the labels never refer to it.
    """
    position = np.arange(length)[:, None, None] + np.arange(width)
    within = np.arange(width) <= np.arange(width)[:, None]
    return np.where(within & (position < length), position, EMPTY).reshape(-1, width)


@compiled
def label_queues(
    row: IntArray, rest: IntArray, length: IntArray, begin: IntArray, values: FloatArray, limit: int, tolerance: float
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Return the arrays of `QueueFronts` of q queues, of which the first is the empty one.

    Args:
        row: the set of the first 1, 2 .. w tasks of each queue, -1 beyond its length, shape (q, w).
        rest: the queue without them, which is listed before, shape (q, w).
        length: tasks of each queue, shape (q,).
        begin: the first option of each set, and the number of options, shape (m + 1,).
        values: E_B in J, sum of execution times in s, tau_B in s of each option, shape (o, 3).
        limit: about how many points a queue keeps.
        tolerance: a point must be better in JCT by more than this share of it.
    """
    spans = np.zeros(len(row) + 1, dtype=np.int64)
    points, links = np.zeros((1024, 2)), np.full((1024, 2), -1)
    spans[1] = used = 1
    for queue in range(1, len(row)):
        batches = min(row.shape[1], length[queue])
        count = 0
        for i in range(batches):
            options = begin[row[queue, i] + 1] - begin[row[queue, i]]
            count += options * (spans[rest[queue, i] + 1] - spans[rest[queue, i]])
        energy_j, jct_s, link = np.empty(count), np.empty(count), np.empty((count, 2), dtype=np.int64)
        filled = 0
        for i in range(batches):
            behind = rest[queue, i]
            for option in range(begin[row[queue, i]], begin[row[queue, i] + 1]):
                own_s = values[option, 1] + length[behind] * values[option, 2]
                for label in range(spans[behind], spans[behind + 1]):
                    energy_j[filled] = values[option, 0] + points[label, 0]
                    jct_s[filled] = own_s + points[label, 1]
                    link[filled, 0], link[filled, 1] = option, label
                    filled += 1
        kept = thinned_front(energy_j, jct_s, limit, tolerance)
        if used + len(kept) > len(points):
            points, links = lengthened(points, used + len(kept)), lengthened(links, used + len(kept))
        for index in kept:
            points[used, 0], points[used, 1] = energy_j[index], jct_s[index]
            links[used] = link[index]
            used += 1
        spans[queue + 1] = used
    return spans, points[:used].copy(), links[:used, 0].copy(), links[:used, 1].copy()


@compiled
def thinned_front(energy_j: FloatArray, jct_s: FloatArray, limit: int, tolerance: float = _SAME) -> IntArray:
    """Return the indices of the non-dominated of m points by energy, at most about `limit` of them."""
    front = non_dominated_indices(energy_j, jct_s, tolerance)
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
def _sum_of_two(left: FloatArray, right: FloatArray, limit: int) -> tuple[FloatArray, IntArray]:
    """Return the front of all sums of a point of one front and a point of another, and the number of each sum."""
    count = len(right)
    energy_j, jct_s = np.empty(len(left) * count), np.empty(len(left) * count)
    for i in range(len(left)):
        for j in range(count):
            energy_j[i * count + j] = left[i, 0] + right[j, 0]
            jct_s[i * count + j] = left[i, 1] + right[j, 1]
    kept = thinned_front(energy_j, jct_s, limit)
    return np.column_stack((energy_j[kept], jct_s[kept])), kept


def sum_fronts(fronts: Sequence[FloatArray], limit: int) -> tuple[FloatArray, IntArray]:
    """Return the Minkowski sum of fronts, exact as long as partial sums stay within the limit.

    The halves are summed first, so that the work grows with the number of fronts and no faster. Fronts are [energy in
    J, sum of JCTs in s] by energy, shape (m, 2) each; a partial sum keeps about `limit` points. Returned are the points
    of the sum, shape (f, 2), and the chosen point of each front, shape (f, q).
    """
    if not fronts:
        return np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
    if len(fronts) == 1:
        energy_j, jct_s = fronts[0].T.copy()
        kept = thinned_front(energy_j, jct_s, limit)
        return fronts[0][kept], kept[:, None]
    half = len(fronts) // 2
    left, from_left = sum_fronts(fronts[:half], limit)
    right, from_right = sum_fronts(fronts[half:], limit)
    points, pair = _sum_of_two(left, right, limit)
    return points, np.concatenate((from_left[pair // len(right)], from_right[pair % len(right)]), axis=1)


class FrontArchive:
    """The assignments found by a search and the front of all their plans; the front of each queue is computed once.

    Attributes:
        points: [energy in J, sum of JCTs in s] of the front so far, by energy, shape (m, 2).
    """

    def __init__(self, costs: BatchCosts, settings: SearchSettings) -> None:
        self._costs, self._front_plans = costs, settings.front_plans
        self._labels, self._sum_points = settings.front_limits(costs.world.k)
        self._stored: dict[Queue, tuple[QueueFronts, FeasibleBatches]] = {}
        self._seen: set[tuple[Queue, ...]] = set()
        self.points = np.zeros((0, 2))
        self._sources: list[tuple[tuple[Queue, ...], IntArray]] = []
        self._batches_at: dict[tuple[Queue, int], tuple[Batch, ...]] = {}

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
        return np.asarray(self.points / np.array([1.0, self._costs.world.n]))

    def weight_range(self) -> tuple[float, float]:
        """Return the smallest and the largest slope of the front, which is a weight on the sum of JCTs, J / s."""
        points = self.points
        if len(points) < 2:
            return 1.0, 1.0
        # Neighbours that almost coincide have extreme slopes; a few points spread over the front have not.
        chosen = thin(points, 12)
        slopes = -np.diff(points[chosen, 0]) / np.diff(points[chosen, 1])
        return float(slopes.min()), float(slopes.max())

    def front(self) -> Front:
        """Return the front, thinned to at most `settings.front_plans` plans."""
        objectives = self.objectives()
        kept = np.flatnonzero(non_dominated(objectives))
        kept = kept[thin(objectives[kept], self._front_plans)]
        queues = [self.queues(point) for point in kept.tolist()]
        return front_of_queues(self._costs.world, queues, objectives[kept])

    def queues(self, point: int) -> tuple[tuple[Batch, ...], ...]:
        """Return the batches of each GPU at one point."""
        queues, points = self._sources[point]
        return tuple(self._batches(queue, int(at)) for queue, at in zip(queues, points, strict=True))

    def _queues_of(self, scheme: IntArray) -> tuple[Queue, ...]:
        costs = self._costs
        kind_of = costs.world.kind_of
        order = np.lexsort((costs.rank[kind_of[scheme], np.arange(len(scheme))], scheme))
        parts = np.split(order, np.searchsorted(scheme[order], np.arange(1, len(kind_of))))
        return tuple((kind, tuple(part.tolist())) for kind, part in zip(kind_of.tolist(), parts, strict=True))

    def _store_fronts(self, queues: list[Queue]) -> None:
        """Compute the fronts of queues; the options of all queues of a type are computed at once."""
        width = self._costs.choices.width
        for kind in sorted({kind for kind, _ in queues}):
            of_kind = [(np.array(tasks), suffix_sets(len(tasks), width)) for at, tasks in queues if at == kind]
            tasks_of_sets = [np.where(sets == EMPTY, EMPTY, order[sets]) for order, sets in of_kind]
            options, row = self._costs.options(kind, np.concatenate(tasks_of_sets)), 0
            for order, sets in of_kind:
                part = options.part(row, row + len(sets))
                row += len(sets)
                front = suffix_fronts(len(order), width, part, self._labels)
                self._stored[kind, tuple(order.tolist())] = front, FeasibleBatches(order, sets, part)

    def _add_points(self, queues: tuple[Queue, ...]) -> None:
        used = [gpu for gpu, queue in enumerate(queues) if queue[1]]
        fronts = [self._stored[queues[gpu]][0].of(len(queues[gpu][1])) for gpu in used]
        sums, chosen = sum_fronts(fronts, self._sum_points)
        sums[:, 1] += sum(float(self._costs.world.begin_s[gpu]) * len(queues[gpu][1]) for gpu in used)
        points = np.full((len(sums), len(queues)), _NO_POINT)
        points[:, used] = chosen
        joined = np.concatenate((self.points, sums))
        # No limit here: the archive keeps every non-dominated point.
        kept = thinned_front(joined[:, 0].copy(), joined[:, 1].copy(), len(joined))
        old = len(self.points)
        self._sources = [self._sources[at] if at < old else (queues, points[at - old]) for at in kept.tolist()]
        self.points = joined[kept]

    def _batches(self, queue: Queue, point: int) -> tuple[Batch, ...]:
        if point == _NO_POINT:
            return ()
        if (queue, point) not in self._batches_at:
            fronts, feasible = self._stored[queue]
            options = fronts.options(int(fronts.begin[-2]) + point)
            self._batches_at[queue, point] = tuple(feasible.batch(option, self._costs.world) for option in options)
        return self._batches_at[queue, point]


def front_of_queues(world: Instance, queues: Iterable[tuple[tuple[Batch, ...], ...]], objectives: FloatArray) -> Front:
    """Return the front of m plans, from the batches of each GPU and the objectives of each plan, shape (m, 2)."""
    plans = [
        Plan(world.cluster, world.tasks, of_gpus, energy_j, jct_s)
        for of_gpus, (energy_j, jct_s) in zip(queues, objectives.tolist(), strict=True)
    ]
    return Front(tuple(plans), objectives)
