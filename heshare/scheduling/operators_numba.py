"""The genetic operators of stage 1 (Section III-B 2), compiled: the same results as `operators`, bit for bit.

Every function does for one scheme after the other what its namesake in `operators` does for all at once. GPUs of a
type have equal times and energies, so these are stored by type, shape (n, kinds). A pass over a type's SPT order
visits the queues of all GPUs of that type in order; nothing is sorted.
"""

import numpy as np

from heshare.arrays import BoolArray, FloatArray, IntArray
from heshare.compiling import compiled, compiling
from heshare.scheduling.objectives import Instance
from heshare.scheduling.operators import NumpyOperators
from heshare.scheduling.settings import Settings

SoloCosts = tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]
"""Time (n, kinds) in s, energy (n, kinds) in J, SPT order (kinds, n), kind and begin in s of each GPU (k,)."""


class NumbaOperators(NumpyOperators):
    """The operators of one search, compiled.

    The time of a generation grows with tasks times GPU types, and with moved tasks times GPUs.
    """

    def __init__(self, instance: Instance, settings: Settings) -> None:
        super().__init__(instance, settings)
        first = instance.first_of_kind
        time_s, energy_j = instance.time_s[:, first].copy(), instance.energy_j[:, first].copy()
        self._solo: SoloCosts = (time_s, energy_j, instance.order_of_kind, instance.kind_of, instance.begin_s)
        self._best = np.stack((instance.best_j, instance.best_s))
        self._by_kind = np.argsort(instance.kind_of, kind="stable")
        self._static_targets = np.stack((instance.energy_j.argmin(axis=1), instance.time_s.argmin(axis=1)))

    def segments(self, schemes: IntArray) -> FloatArray:
        """Return [energy in J, sum of JCTs in s] of each GPU's subset, shape (p, k, 2)."""
        return segment_costs(schemes, self._solo)

    def _elitism(self, schemes: IntArray, costs: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        energy_weights = rng.random((pairs.shape[1],))
        scores = costs
        if self.settings.segments == "normalised":
            scores = segment_scores(schemes, costs, self._best)
        return elitism_selection(schemes, pairs, scores, energy_weights, self._solo, self._best)

    def _priority(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        moved = rng.random(children.shape) < self.settings.mutation_rate
        if self.settings.targets == "static":
            targets = np.repeat(self._static_targets[:, None], len(children), axis=1)
        else:
            targets = load_aware_targets(children, moved, self._solo, self._by_kind)
        if not self.settings.recovery:
            return np.where(moved, targets, children).reshape(-1, self.instance.n)
        overload = float(self.settings.overload)
        return np.concatenate(
            [migrate(children, moved, target, self.usage, self._solo, overload) for target in targets]
        )


def make_operators(instance: Instance, settings: Settings, use_numba: bool | None = None) -> NumpyOperators:
    """Return the compiled operators, or the numpy ones where numba does not compile (`NUMBA_DISABLE_JIT=1`).

    Args:
        instance: the task set on its cluster; GPUs of one type have equal columns.
        settings: of the search.
        use_numba: chooses one of the two; both give the same bytes.
    """
    numba = compiling() if use_numba is None else use_numba
    return NumbaOperators(instance, settings) if numba else NumpyOperators(instance, settings)


@compiled
def segment_costs(schemes: IntArray, solo: SoloCosts) -> FloatArray:
    """Compiled `objectives.segment_costs`: energy in J and sum of JCTs in s of each GPU's subset, (p, k, 2)."""
    time_s, energy_j, order, kind_of, begin_s = solo
    p, n = schemes.shape
    k, kinds = len(kind_of), len(order)
    costs = np.zeros((p, k, 2))
    for row in range(p):
        left = np.zeros(k, dtype=np.int64)
        for task in range(n):
            left[schemes[row, task]] += 1
        for kind in range(kinds):
            for task in order[kind]:
                gpu = schemes[row, task]
                if kind_of[gpu] == kind:
                    costs[row, gpu, 0] += energy_j[task, kind]
                    costs[row, gpu, 1] += time_s[task, kind] * left[gpu] + begin_s[gpu]
                    left[gpu] -= 1
    return costs


@compiled
def segment_scores(schemes: IntArray, costs: FloatArray, best: FloatArray) -> FloatArray:
    """Compiled `operators.segment_scores`, normalised; `best` is [best_j, best_s], shape (2, n)."""
    p, k, _ = costs.shape
    scores = np.empty((p, k, 2))
    for row in range(p):
        least, total, total_least = np.zeros((2, k)), np.zeros(2), np.zeros(2)
        for goal in range(2):
            for task in range(schemes.shape[1]):
                least[goal, schemes[row, task]] += best[goal, task]
            for gpu in range(k):
                total[goal] += costs[row, gpu, goal]
                total_least[goal] += least[goal, gpu]
            for gpu in range(k):
                if least[goal, gpu] > 0:
                    scores[row, gpu, goal] = costs[row, gpu, goal] / least[goal, gpu]
                else:
                    scores[row, gpu, goal] = total[goal] / total_least[goal]
    return scores


@compiled
def elitism_selection(
    schemes: IntArray, pairs: IntArray, scores: FloatArray, weights: FloatArray, solo: SoloCosts, best: FloatArray
) -> IntArray:
    """Compiled `operators.elitism_selection` (Section III-B 2b).

    Args:
        schemes: the population, shape (p, n).
        pairs: the parents of c children, shape (2, c).
        scores: `segment_scores` of the population, shape (p, k, 2).
        weights: the weight of energy in each child's targeted objective, shape (c,).
        solo: times and energies by type.
        best: [best_j, best_s], shape (2, n).
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
    """Compiled `operators.migration_targets`, load-aware: for energy and for JCT, -1 if not moved, (2, p, n).

    Args:
        schemes: shape (p, n).
        moved: which tasks migrate, shape (p, n).
        solo: times and energies by type.
        by_kind: the GPUs sorted by type, ascending within a type, shape (k,).
    """
    time_s, energy_j, order, kind_of, begin_s = solo
    p, n = schemes.shape
    targets = np.full((2, p, n), -1)
    limit_j = np.empty(n)
    for task in range(n):
        limit_j[task] = energy_j[task].min() * (1 + 1e-9)
    for row in range(p):
        begin, done_s = _queues(schemes[row], solo)
        position, least_s = begin.copy(), np.full((2, n), np.inf)
        first = 0
        for kind in range(len(order)):
            last = first
            while last < len(by_kind) and kind_of[by_kind[last]] == kind:
                last += 1
            for task in order[kind]:
                source = schemes[row, task]
                if moved[row, task] and time_s[task, kind] < np.inf:
                    added_s, gpu = _least_added(
                        time_s[task, kind], source, by_kind[first:last], (begin, position, done_s, begin_s)
                    )
                    for goal in range(2):
                        allowed = goal == 1 or energy_j[task, kind] <= limit_j[task]
                        tied = added_s == least_s[goal, task] and gpu < targets[goal, row, task]
                        if allowed and (added_s < least_s[goal, task] or tied):
                            least_s[goal, task], targets[goal, row, task] = added_s, gpu
                if kind_of[source] == kind:
                    position[source] += 1
            first = last
    return targets


@compiled
def _queues(scheme: IntArray, solo: SoloCosts) -> tuple[IntArray, FloatArray]:
    """Return the begin of each GPU's queue in the sorted tasks, (k + 1,), and the sum of times before each, (n + 1,).

    The times add up over all queues: a task's wait is the difference to the sum at the begin of its queue.
    """
    time_s, _, order, kind_of, _ = solo
    n, k = len(scheme), len(kind_of)
    begin = np.zeros(k + 1, dtype=np.int64)
    for task in range(n):
        begin[scheme[task] + 1] += 1
    for gpu in range(k):
        begin[gpu + 1] += begin[gpu]
    position, sorted_s = begin.copy(), np.empty(n)
    for kind in range(len(order)):
        for task in order[kind]:
            gpu = scheme[task]
            if kind_of[gpu] == kind:
                sorted_s[position[gpu]] = time_s[task, kind]
                position[gpu] += 1
    done_s = np.zeros(n + 1)
    for index in range(n):
        done_s[index + 1] = done_s[index] + sorted_s[index]
    return begin, done_s


@compiled
def _least_added(
    own_s: float, source: int, gpus: IntArray, queues: tuple[IntArray, IntArray, FloatArray, FloatArray]
) -> tuple[float, int]:
    """Return the least that a task adds to the sum of JCTs on one of some GPUs of a type, s, and that GPU."""
    (begin, position, done_s, begin_s), least_s, best = queues, np.inf, -1
    for gpu in gpus:
        behind = begin[gpu + 1] - position[gpu] - (1 if gpu == source else 0)
        added_s = done_s[position[gpu]] - done_s[begin[gpu]] + begin_s[gpu] + own_s * (1 + behind)
        if added_s < least_s:
            least_s, best = added_s, gpu
    return least_s, best


@compiled
def migrate(
    schemes: IntArray, moved: BoolArray, target: IntArray, usage: FloatArray, solo: SoloCosts, overload: float
) -> IntArray:
    """Compiled `operators.migrate` (Section III-B 2c); `target` is set where a task moves, shape (p, n)."""
    time_s, _, _, kind_of, _ = solo
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
                _recover(after[row], schemes[row], moved[row], task, gpu, usage[kind_of[gpu]], solo)
    return after


@compiled
def _recover(
    after: IntArray, scheme: IntArray, moved: BoolArray, arrival: int, gpu: int, usage: FloatArray, solo: SoloCosts
) -> None:
    """Move tasks of `gpu` that are most similar to the arriving task to its source, until they free its time."""
    time_s, _, _, kind_of, _ = solo
    source, kind = scheme[arrival], kind_of[gpu]
    tasks = np.empty(len(scheme), dtype=np.int64)
    difference = np.empty(len(scheme))
    count = 0
    for task in range(len(scheme)):
        if scheme[task] == gpu and not moved[task] and time_s[task, kind_of[source]] < np.inf:
            tasks[count] = task
            difference[count] = abs(usage[arrival, 0] - usage[task, 0]) + abs(usage[arrival, 1] - usage[task, 1])
            difference[count] += abs(usage[arrival, 2] - usage[task, 2])
            count += 1
    freed_s = 0.0
    # Usually one or two tasks leave, so searching the nearest of the rest each time is faster than sorting.
    for _ in range(count):
        if not freed_s < time_s[arrival, kind]:
            break
        nearest = 0
        for index in range(1, count):
            if difference[index] < difference[nearest]:
                nearest = index
        after[tasks[nearest]] = source
        freed_s += time_s[tasks[nearest], kind]
        difference[nearest] = np.inf
