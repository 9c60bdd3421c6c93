"""The operators of stage 1, compiled: the same operations in the same order as the numpy forms in `operators`.

Every function here does for one scheme after the other what its namesake does for all at once, to the bit, and the
tests hold the two equal. GPUs of a kind have equal columns, so that costs stand by kind, shape (n, kinds), and a
walk over a kind's SPT order, shape (kinds, n), passes every queue of that kind once: nothing is sorted, and a task's
place in all queues is found in one go.
"""

from __future__ import annotations

import numpy as np

from heshare.compiling import compiled
from heshare.scheduling.objectives import BoolArray, FloatArray, IntArray

Costs = tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]
"""Time (n, kinds) in s, energy (n, kinds) in J, SPT order (kinds, n), kind and begin in s of each GPU (k,)."""


@compiled
def segments(schemes: IntArray, costs: Costs) -> FloatArray:
    """Compiled form of `objectives.segments`: energy in J and sum of JCTs in s of each GPU's subset, (p, k, 2)."""
    time_s, energy_j, order, kind_of, begin_s = costs
    p, n = schemes.shape
    k, kinds = len(kind_of), len(order)
    parts = np.zeros((p, k, 2))
    for row in range(p):
        left = np.zeros(k, dtype=np.int64)
        for task in range(n):
            left[schemes[row, task]] += 1
        for kind in range(kinds):
            for task in order[kind]:
                gpu = schemes[row, task]
                if kind_of[gpu] == kind:
                    parts[row, gpu, 0] += energy_j[task, kind]
                    parts[row, gpu, 1] += time_s[task, kind] * left[gpu] + begin_s[gpu]
                    left[gpu] -= 1
    return parts


@compiled
def segment_scores(schemes: IntArray, parts: FloatArray, best: FloatArray) -> FloatArray:
    """Compiled form of the normalised `operators.segment_scores`; `best` is [best_j, best_s], shape (2, n)."""
    p, k, _ = parts.shape
    scores = np.empty((p, k, 2))
    for row in range(p):
        least, whole, needed = np.zeros((2, k)), np.zeros(2), np.zeros(2)
        for goal in range(2):
            for task in range(schemes.shape[1]):
                least[goal, schemes[row, task]] += best[goal, task]
            for gpu in range(k):
                whole[goal] += parts[row, gpu, goal]
                needed[goal] += least[goal, gpu]
            for gpu in range(k):
                if least[goal, gpu] > 0:
                    scores[row, gpu, goal] = parts[row, gpu, goal] / least[goal, gpu]
                else:
                    scores[row, gpu, goal] = whole[goal] / needed[goal]
    return scores


@compiled
def elitism_selection(
    schemes: IntArray, pairs: IntArray, scores: FloatArray, weights: FloatArray, costs: Costs, best: FloatArray
) -> IntArray:
    """Compiled form of `operators.elitism_selection`.

    Args:
        schemes: the population, shape (p, n).
        pairs: the parents of c children, shape (2, c).
        scores: `segment_scores` of the population, shape (p, k, 2).
        weights: the weight of energy in each child's targeted objective, shape (c,).
        costs: time and energy by kind.
        best: [best_j, best_s], shape (2, n).
    """
    time_s, energy_j, _, kind_of, _ = costs
    n, k = schemes.shape[1], len(kind_of)
    children = np.empty((pairs.shape[1], n), dtype=np.int64)
    first_score = np.empty(k)
    for child in range(pairs.shape[1]):
        one, other, weight = pairs[0, child], pairs[1, child], weights[child]
        for gpu in range(k):
            first_score[gpu] = weight * _share(scores[one, gpu, 0], scores[other, gpu, 0])
            first_score[gpu] += (1 - weight) * _share(scores[one, gpu, 1], scores[other, gpu, 1])
        for task in range(n):
            here, there = schemes[one, task], schemes[other, task]
            at_first, at_second = first_score[here], 1 - first_score[there]
            first_offers, second_offers = at_first <= 0.5, at_second < 0.5
            if first_offers != second_offers:
                take_first = first_offers
            elif first_offers:
                take_first = at_first <= at_second
            else:
                mine, yours = kind_of[here], kind_of[there]
                suits = weight * (energy_j[task, mine] - energy_j[task, yours]) / best[0, task]
                suits += (1 - weight) * (time_s[task, mine] - time_s[task, yours]) / best[1, task]
                take_first = suits <= 0
            children[child, task] = here if take_first else there
    return children


@compiled
def _share(one: float, other: float) -> float:
    return one / (one + other) if one + other > 0 else 0.5


@compiled
def _queues(scheme: IntArray, costs: Costs) -> tuple[IntArray, FloatArray]:
    """Where each GPU's queue begins, (k + 1,), and when each place is reached if all run in a row, s, (n + 1,)."""
    time_s, _, order, kind_of, _ = costs
    n, k = len(scheme), len(kind_of)
    begin = np.zeros(k + 1, dtype=np.int64)
    for task in range(n):
        begin[scheme[task] + 1] += 1
    for gpu in range(k):
        begin[gpu + 1] += begin[gpu]
    place, each_s = begin.copy(), np.empty(n)
    for kind in range(len(order)):
        for task in order[kind]:
            gpu = scheme[task]
            if kind_of[gpu] == kind:
                each_s[place[gpu]] = time_s[task, kind]
                place[gpu] += 1
    done_s = np.zeros(n + 1)
    for at in range(n):
        done_s[at + 1] = done_s[at] + each_s[at]
    return begin, done_s


@compiled
def load_aware_targets(schemes: IntArray, moved: BoolArray, costs: Costs, by_kind: IntArray) -> IntArray:
    """Compiled form of the load-aware `operators.targets`: for energy and for JCT, -1 where no task moves, (2, p, n).

    Args:
        schemes: shape (p, n).
        moved: which tasks would migrate, shape (p, n).
        costs: time and energy by kind.
        by_kind: the GPUs, kind by kind, ascending within a kind, shape (k,).
    """
    time_s, energy_j, order, kind_of, begin_s = costs
    p, n = schemes.shape
    goes = np.full((2, p, n), -1)
    limit_j = np.empty(n)
    for task in range(n):
        limit_j[task] = energy_j[task].min() * (1 + 1e-9)
    for row in range(p):
        begin, done_s = _queues(schemes[row], costs)
        place, least = begin.copy(), np.full((2, n), np.inf)
        first = 0
        for kind in range(len(order)):
            last = first
            while last < len(by_kind) and kind_of[by_kind[last]] == kind:
                last += 1
            for task in order[kind]:
                now = schemes[row, task]
                if moved[row, task] and time_s[task, kind] < np.inf:
                    added_s, gpu = _least_added(
                        time_s[task, kind], now, by_kind[first:last], (begin, place, done_s, begin_s)
                    )
                    for goal in range(2):
                        good = goal == 1 or energy_j[task, kind] <= limit_j[task]
                        tied = added_s == least[goal, task] and gpu < goes[goal, row, task]
                        if good and (added_s < least[goal, task] or tied):
                            least[goal, task], goes[goal, row, task] = added_s, gpu
                if kind_of[now] == kind:
                    place[now] += 1
            first = last
    return goes


@compiled
def _least_added(
    each_s: float, now: int, gpus: IntArray, line: tuple[IntArray, IntArray, FloatArray, FloatArray]
) -> tuple[float, int]:
    """By how much a task raises the sum of JCTs, s, on the GPU of a kind where that is least, and that GPU."""
    (begin, place, done_s, begin_s), least_s, best = line, np.inf, -1
    for gpu in gpus:
        behind = begin[gpu + 1] - place[gpu] - (1 if gpu == now else 0)
        added_s = done_s[place[gpu]] - done_s[begin[gpu]] + begin_s[gpu] + each_s * (1 + behind)
        if added_s < least_s:
            least_s, best = added_s, gpu
    return least_s, best


@compiled
def recover(
    schemes: IntArray, moved: BoolArray, target: IntArray, use: FloatArray, costs: Costs, overload: float
) -> IntArray:
    """Compiled form of `operators.recover`; `target` stands at the moved tasks, (p, n); `use` is `resource_use`."""
    time_s, _, _, kind_of, _ = costs
    p, n = schemes.shape
    k = len(kind_of)
    after = np.where(moved, target, schemes)
    for row in range(p):
        busy_s, total_s = np.zeros(k), 0.0
        for task in range(n):
            busy_s[after[row, task]] += time_s[task, kind_of[after[row, task]]]
        for gpu in range(k):
            total_s += busy_s[gpu]
        limit_s = overload * (total_s / k)
        for task in range(n):
            gpu, source = target[row, task], schemes[row, task]
            if moved[row, task] and gpu != source and busy_s[gpu] > limit_s:
                _send_back(after[row], schemes[row], moved[row], task, gpu, use[kind_of[gpu]], costs)
    return after


@compiled
def _send_back(
    after: IntArray, scheme: IntArray, moved: BoolArray, newcomer: int, gpu: int, use: FloatArray, costs: Costs
) -> None:
    """The tasks of `gpu` that are most like the newcomer go where it came from, until they free its time."""
    time_s, _, _, kind_of, _ = costs
    source, kind = scheme[newcomer], kind_of[gpu]
    tasks = np.empty(len(scheme), dtype=np.int64)
    distance = np.empty(len(scheme))
    count = 0
    for task in range(len(scheme)):
        if scheme[task] == gpu and not moved[task] and time_s[task, kind_of[source]] < np.inf:
            tasks[count] = task
            distance[count] = abs(use[newcomer, 0] - use[task, 0]) + abs(use[newcomer, 1] - use[task, 1])
            distance[count] += abs(use[newcomer, 2] - use[task, 2])
            count += 1
    freed_s = 0.0
    # Few go, as a rule one or two: the nearest of those that are left, again and again, is quicker than sorting.
    for _ in range(count):
        if not freed_s < time_s[newcomer, kind]:
            break
        nearest = 0
        for at in range(1, count):
            if distance[at] < distance[nearest]:
                nearest = at
        after[tasks[nearest]] = source
        freed_s += time_s[tasks[nearest], kind]
        distance[nearest] = np.inf
