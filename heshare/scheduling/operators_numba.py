"""Elitism selection and priority mutation of stage 1 (Section III-B 2b and 2c), compiled; one scheme after the other.

GPUs of a type have equal times and energies, so these are stored by type, shape (n, kinds). A pass over a type's SPT
order visits the queues of all GPUs of that type in order; nothing is sorted. The tasks that a pass needs are first
written to a list without branches, because a processor cannot predict on which GPU a task is.
"""

import numpy as np

from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled

SoloCosts = tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]
"""Time (n, kinds) in s, energy (n, kinds) in J, SPT order (kinds, n), kind and begin in s of each GPU (k,)."""


@compiled
def _kinds_of(scheme: IntArray, kind_of: IntArray, result: IntArray) -> None:
    for task in range(len(scheme)):
        result[task] = kind_of[scheme[task]]


@compiled
def _of_kind(order: IntArray, kinds: IntArray, kind: int, result: IntArray) -> int:
    # Write the tasks on GPUs of a type in SPT order to the begin of `result`, and return their number.
    count = 0
    for task in order:
        result[count] = task
        count += kinds[task] == kind
    return count


@compiled
def segment_costs(schemes: IntArray, solo: SoloCosts) -> FloatArray:
    """Return the energy in J and the sum of JCTs in s of each GPU's subset, shape (p, k, 2) (Eqs. 7 and 9)."""
    time_s, energy_j, order, kind_of, begin_s = solo
    p, n = schemes.shape
    costs = np.zeros((p, len(kind_of), 2))
    left, kinds, tasks = np.empty(len(kind_of), np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(p):
        scheme = schemes[row]
        _kinds_of(scheme, kind_of, kinds)
        left[:] = 0
        for task in range(n):
            left[scheme[task]] += 1
        for kind in range(len(order)):
            for task in tasks[: _of_kind(order[kind], kinds, kind, tasks)]:
                gpu = scheme[task]
                costs[row, gpu, 0] += energy_j[task, kind]
                costs[row, gpu, 1] += time_s[task, kind] * left[gpu] + begin_s[gpu]
                left[gpu] -= 1
    return costs


@compiled
def segment_scores(schemes: IntArray, costs: FloatArray, best: FloatArray, pairs: IntArray) -> FloatArray:
    """Return the values by which elitism selection compares subsets: [energy, JCT], less is better, shape (p, k, 2).

    The costs of each subset over the least energy and time that its tasks need on any GPU, `best` of shape (2, n); a
    GPU without tasks gets the mean level of its scheme, so that it is neither good nor bad. Only for schemes in a pair.
    """
    p, k, _ = costs.shape
    scores, wanted, least = np.empty((p, k, 2)), np.zeros(p, dtype=np.bool_), np.empty((2, k))
    for parent in pairs.ravel():
        wanted[parent] = True
    for row in range(p):
        if not wanted[row]:
            continue
        least[:] = 0.0
        for task in range(schemes.shape[1]):
            gpu = schemes[row, task]
            least[0, gpu] += best[0, task]
            least[1, gpu] += best[1, task]
        for goal in range(2):
            total, total_least = 0.0, 0.0
            for gpu in range(k):
                total += costs[row, gpu, goal]
                total_least += least[goal, gpu]
            for gpu in range(k):
                if least[goal, gpu] > 0:
                    scores[row, gpu, goal] = costs[row, gpu, goal] / least[goal, gpu]
                else:
                    scores[row, gpu, goal] = total / total_least
    return scores


@compiled
def elitism_selection(
    schemes: IntArray, pairs: IntArray, scores: FloatArray, weights: FloatArray, solo: SoloCosts, best: FloatArray
) -> IntArray:
    """Multi-objective elitism selection (Section III-B 2b), a crossover: a child inherits each GPU's better subset.

    Each child has its own targeted objective, a random weight between energy and JCT. It decides when one parent's
    subset is better in energy and the other's in JCT. A task that both inherited subsets contain (a conflict) goes
    with the better subset. A task that neither contains (an omission) goes to the better of its two parents' GPUs.

    Args:
        schemes: the population, shape (p, n).
        pairs: the parents of c children, shape (2, c).
        scores: `segment_scores` of the population, shape (p, k, 2).
        weights: the weight of energy in each child's targeted objective, shape (c,).
        solo: times and energies by type.
        best: [best_j, best_s], shape (2, n).

    Returns:
        One child of each pair, shape (c, n).
    """
    time_s, energy_j, _, kind_of, _ = solo
    n, k = schemes.shape[1], len(kind_of)
    children = np.empty((pairs.shape[1], n), dtype=np.int64)
    first_score = np.empty(k)
    for child in range(pairs.shape[1]):
        first, second, weight = pairs[0, child], pairs[1, child], weights[child]
        for gpu in range(k):
            first_score[gpu] = weight * _share(scores[first, gpu, 0], scores[second, gpu, 0])
            first_score[gpu] += (1 - weight) * _share(scores[first, gpu, 1], scores[second, gpu, 1])
        for task in range(n):
            first_gpu, second_gpu = schemes[first, task], schemes[second, task]
            at_first, at_second = first_score[first_gpu], 1 - first_score[second_gpu]
            first_inherited, second_inherited = at_first <= 0.5, at_second < 0.5
            if first_inherited != second_inherited:
                take_first = first_inherited
            elif first_inherited:
                take_first = at_first <= at_second
            else:
                kind, other_kind = kind_of[first_gpu], kind_of[second_gpu]
                excess = weight * (energy_j[task, kind] - energy_j[task, other_kind]) / best[0, task]
                excess += (1 - weight) * (time_s[task, kind] - time_s[task, other_kind]) / best[1, task]
                take_first = excess <= 0
            children[child, task] = first_gpu if take_first else second_gpu
    return children


@compiled
def _share(value: float, other: float) -> float:
    return value / (value + other) if value + other > 0 else 0.5


@compiled
def load_aware_targets(schemes: IntArray, moved: BoolArray, solo: SoloCosts, by_kind: IntArray) -> IntArray:
    """Return the target GPUs of task migration (Section III-B 2c): of least energy, and of least degradation.

    Degradation is what the task adds to the sum of JCTs: its JCT there and the delay of the tasks behind it. It also
    decides between GPUs of equal energy.

    Args:
        schemes: shape (p, n).
        moved: which tasks migrate, shape (p, n).
        solo: times and energies by type.
        by_kind: the GPUs sorted by type, ascending within a type, shape (k,).

    Returns:
        The targets for energy and for JCT, -1 where a task does not move, shape (2, p, n).
    """
    time_s, energy_j, order, kind_of, begin_s = solo
    p, n = schemes.shape
    targets, limit_j = np.full((2, p, n), -1), np.empty(n)
    for task in range(n):
        limit_j[task] = energy_j[task].min() * (1 + 1e-9)
    kinds, tasks, least_s = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((2, n))
    for row in range(p):
        scheme, is_moved = schemes[row], moved[row]
        _kinds_of(scheme, kind_of, kinds)
        begin, position, done_s, wait_s, more = _queues(scheme, kinds, tasks, solo)
        least_s[:] = np.inf
        first = 0
        for kind in range(len(order)):
            last = first
            while last < len(by_kind) and kind_of[by_kind[last]] == kind:
                last += 1
            gpus, count = by_kind[first:last], 0
            for task in order[kind]:
                tasks[count] = task
                count += is_moved[task] | (kinds[task] == kind)
            for task in tasks[:count]:
                source = scheme[task]
                if is_moved[task] and time_s[task, kind] < np.inf:
                    more[source] -= 1.0  # the task does not delay itself
                    added_s, gpu = _least_added(time_s[task, kind], gpus, wait_s, more)
                    more[source] += 1.0
                    for goal in range(2):
                        allowed = goal == 1 or energy_j[task, kind] <= limit_j[task]
                        tied = added_s == least_s[goal, task] and gpu < targets[goal, row, task]
                        if allowed and (added_s < least_s[goal, task] or tied):
                            least_s[goal, task], targets[goal, row, task] = added_s, gpu
                if kinds[task] == kind:
                    position[source] += 1
                    more[source] -= 1.0
                    wait_s[source] = done_s[position[source]] - done_s[begin[source]] + begin_s[source]
            first = last
    return targets


@compiled
def _queues(
    scheme: IntArray, kinds: IntArray, tasks: IntArray, solo: SoloCosts
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    # The queues of a scheme before the first task of each. The times add up over all queues: a task's wait is
    # the difference to the sum at the begin of its queue. The begin of each GPU's queue in the sorted tasks, (k + 1,),
    # the same to be moved on, (k,), the sum of times before each task, s, (n + 1,), each GPU's wait, s, (k,), and one
    # more than the tasks that wait there, (k,).
    time_s, _, order, kind_of, begin_s = solo
    n, k = len(scheme), len(kind_of)
    begin, more = np.zeros(k + 1, dtype=np.int64), np.empty(k)
    for task in range(n):
        begin[scheme[task] + 1] += 1
    for gpu in range(k):
        more[gpu] = 1.0 + begin[gpu + 1]
        begin[gpu + 1] += begin[gpu]
    position, done_s = begin[:k].copy(), np.empty(n + 1)
    for kind in range(len(order)):
        for task in tasks[: _of_kind(order[kind], kinds, kind, tasks)]:
            gpu = scheme[task]
            position[gpu] += 1
            done_s[position[gpu]] = time_s[task, kind]
    done_s[0] = 0.0
    for index in range(n):
        done_s[index + 1] += done_s[index]
    return begin, begin[:k].copy(), done_s, begin_s.copy(), more


@compiled
def _least_added(own_s: float, gpus: IntArray, wait_s: FloatArray, more: FloatArray) -> tuple[float, int]:
    # The least that a task adds to the sum of JCTs on one of some GPUs of a type, s, and that GPU.
    least_s, best = np.inf, -1
    for gpu in gpus:
        added_s = wait_s[gpu] + own_s * more[gpu]
        if added_s < least_s:
            least_s, best = added_s, gpu
    return least_s, best


@compiled
def migrate(
    schemes: IntArray,
    moved: BoolArray,
    target: IntArray,
    usage: FloatArray,
    solo: SoloCosts,
    overload: float,
    after: IntArray,
) -> None:
    """Task migration with task recovery (Section III-B 2c): overloaded targets send similar tasks back.

    A GPU is overloaded if its busy time exceeds `overload` times the mean over all GPUs; without recovery that is
    infinite. For each task that arrives there, the tasks of the GPU with the most similar resource usage (the least
    sum of absolute differences of `operators.resource_usage`) move to the GPU that the task came from, until they free
    as much time as it takes. Writes the schemes after migration to the first p rows of `after`; `target` is set where
    a task moves, shape (p, n).
    """
    time_s, _, _, kind_of, _ = solo
    p, n = schemes.shape
    k = len(kind_of)
    busy_s, begin, members = np.empty(k), np.empty(k + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
    for row in range(p):
        total_s, listed = 0.0, False
        busy_s[:] = 0.0
        for task in range(n):
            gpu = target[row, task] if moved[row, task] else schemes[row, task]
            after[row, task] = gpu
            busy_s[gpu] += time_s[task, kind_of[gpu]]
        for gpu in range(k):
            total_s += busy_s[gpu]
        limit_s = overload * (total_s / k)
        for task in range(n):
            if moved[row, task]:
                gpu = target[row, task]
                if gpu != schemes[row, task] and busy_s[gpu] > limit_s:
                    if not listed:
                        _list_members(schemes[row], moved[row], begin, members)
                        listed = True
                    candidates = members[begin[gpu] : begin[gpu + 1]]
                    _recover(after[row], candidates, schemes[row, task], task, gpu, usage[kind_of[gpu]], solo)


@compiled
def _list_members(scheme: IntArray, moved: BoolArray, begin: IntArray, members: IntArray) -> None:
    # Write the tasks of each GPU that do not move, ascending, and where each GPU's begin, shape (k + 1,).
    begin[:] = 0
    for task in range(len(scheme)):
        begin[scheme[task]] += 0 if moved[task] else 1
    total = 0
    for gpu in range(len(begin)):
        total += begin[gpu]
        begin[gpu] = total
    for task in range(len(scheme) - 1, -1, -1):
        if not moved[task]:
            begin[scheme[task]] -= 1
            members[begin[scheme[task]]] = task


@compiled
def _recover(
    after: IntArray, members: IntArray, source: int, arrival: int, gpu: int, usage: FloatArray, solo: SoloCosts
) -> None:
    # Move the members of `gpu` that are most similar to the arriving task to its source, until they free its time.
    time_s, _, _, kind_of, _ = solo
    kind, other_kind = kind_of[gpu], kind_of[source]
    difference = np.empty(len(members))
    for place in range(len(members)):
        task = members[place]
        difference[place] = np.inf
        if time_s[task, other_kind] < np.inf:
            difference[place] = abs(usage[arrival, 0] - usage[task, 0]) + abs(usage[arrival, 1] - usage[task, 1])
            difference[place] += abs(usage[arrival, 2] - usage[task, 2])
    freed_s = 0.0
    # Usually one or two tasks leave, so searching the nearest of the rest each time is faster than sorting.
    for _ in range(len(members)):
        if not freed_s < time_s[arrival, kind]:
            break
        nearest = 0
        for place in range(1, len(members)):
            if difference[place] < difference[nearest]:
                nearest = place
        if not difference[nearest] < np.inf:
            break
        after[members[nearest]] = source
        freed_s += time_s[members[nearest], kind]
        difference[nearest] = np.inf
