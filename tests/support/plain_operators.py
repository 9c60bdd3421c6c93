"""Plain numpy form of the genetic operators (Section III-B 2): the oracle of the compiled ones."""

from __future__ import annotations

from typing import cast

import numpy as np

from heshare.scheduling.objectives import Instance, SchemeQueues, scheme_queues, segment_costs, sum_by_gpu
from heshare.scheduling.operators import random_reset, resource_usage, uniform_crossover
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray


def segment_scores(schemes: IntArray, costs: FloatArray, instance: Instance, settings: Settings) -> FloatArray:
    """Return the values by which elitism selection compares subsets: [energy, JCT], less is better, shape (p, k, 2)."""
    if settings.segments == "totals":
        return costs
    bests = (instance.best_j, instance.best_s)
    least = np.stack([sum_by_gpu(schemes, np.broadcast_to(best, schemes.shape), instance.k) for best in bests], axis=2)
    level = costs.sum(axis=1, keepdims=True) / least.sum(axis=1, keepdims=True)
    scores: FloatArray = np.divide(costs, least, out=np.broadcast_to(level, costs.shape).copy(), where=least > 0)
    return scores


def elitism_selection(
    parents: tuple[IntArray, IntArray],
    scores: tuple[FloatArray, FloatArray],
    instance: Instance,
    rng: np.random.Generator,
) -> IntArray:
    """Multi-objective elitism selection (Section III-B 2b), a crossover: a child inherits each GPU's better subset."""
    first, second = parents
    p, n = first.shape
    energy_weight = rng.random((p, 1))
    sums = scores[0] + scores[1]
    share = np.divide(scores[0], sums, out=np.full_like(sums, 0.5), where=sums > 0)
    first_score = energy_weight * share[:, :, 0] + (1 - energy_weight) * share[:, :, 1]
    row, task = np.arange(p)[:, None], np.arange(n)
    at_first, at_second = first_score[row, first], 1 - first_score[row, second]
    first_inherited, second_inherited = at_first <= 0.5, at_second < 0.5
    excess = energy_weight * (instance.energy_j[task, first] - instance.energy_j[task, second]) / instance.best_j
    excess += (1 - energy_weight) * (instance.time_s[task, first] - instance.time_s[task, second]) / instance.best_s
    repaired = np.where(first_inherited & second_inherited, at_first <= at_second, excess <= 0)
    take_first = np.where(first_inherited ^ second_inherited, first_inherited, repaired)
    return np.where(take_first, first, second)


def added_jct(
    queues: SchemeQueues, scheme: IntArray, task: IntArray, source: IntArray, instance: Instance
) -> FloatArray:
    """Return what a task adds to the sum of JCTs on each GPU, s: its JCT there and the delay of the tasks behind it."""
    p, n = queues.key.shape
    # Keys of different schemes are made distinct, so that one search finds the position in every queue.
    keys_per_scheme = instance.k * n
    sorted_keys = (queues.key + keys_per_scheme * np.arange(p)[:, None]).ravel()
    key = np.arange(instance.k) * n + instance.rank[task] + keys_per_scheme * scheme[:, None]
    position = np.searchsorted(sorted_keys, key.ravel()).reshape(key.shape) - n * scheme[:, None]
    done_s = np.concatenate((np.zeros((p, 1)), np.cumsum(queues.time_s, axis=1)), axis=1)
    begin = np.concatenate((np.zeros((p, 1), dtype=np.int64), queues.end[:, :-1]), axis=1)
    wait_s = done_s[scheme[:, None], position] - done_s[scheme[:, None], begin[scheme]]
    behind = queues.end[scheme] - position - (np.arange(instance.k) == source[:, None])
    return cast(FloatArray, wait_s + instance.begin_s + instance.time_s[task] * (1 + behind))


def migration_targets(
    schemes: IntArray, moved: BoolArray, queues: SchemeQueues, instance: Instance, settings: Settings
) -> tuple[IntArray, IntArray]:
    """Return the target GPUs of task migration (Section III-B 2c): of least energy, and of least degradation."""
    scheme, task = np.nonzero(moved)
    energy_j = instance.energy_j[task]
    if settings.targets == "static":
        return energy_j.argmin(axis=1), instance.time_s[task].argmin(axis=1)
    added_s = added_jct(queues, scheme, task, schemes[moved], instance)
    least_energy = energy_j <= energy_j.min(axis=1, keepdims=True) * (1 + 1e-9)
    return np.where(least_energy, added_s, np.inf).argmin(axis=1), added_s.argmin(axis=1)


def migrate(
    schemes: IntArray, moved: BoolArray, target: IntArray, usage: FloatArray, instance: Instance, settings: Settings
) -> IntArray:
    """Task migration with task recovery (Section III-B 2c): overloaded targets send similar tasks back."""
    after = schemes.copy()
    after[moved] = target
    scheme, task = np.nonzero(moved)
    source = schemes[moved]
    if not settings.recovery:
        return after
    busy_s = sum_by_gpu(after, instance.time_s[np.arange(after.shape[1]), after], instance.k)
    # cumsum adds from left to right, as the compiled form does; sum adds in pairs and differs in the last bits.
    mean_s = np.cumsum(busy_s, axis=1)[:, -1:] / instance.k
    overloaded = (busy_s > settings.overload * mean_s)[scheme, target] & (source != target)
    scheme, task, source, gpu = scheme[overloaded], task[overloaded], source[overloaded], target[overloaded]
    if not len(task):
        return after
    can_leave = (schemes[scheme] == gpu[:, None]) & ~moved[scheme] & instance.fits[:, source].T
    kind = instance.kind_of[gpu]
    difference = np.abs(usage[kind, task][:, None] - usage[kind]).sum(axis=2)
    order = np.argsort(np.where(can_leave, difference, np.inf), axis=1, kind="stable")
    time_s = np.where(np.take_along_axis(can_leave, order, axis=1), instance.time_s[order, gpu[:, None]], 0.0)
    freed_s = np.concatenate((np.zeros((len(task), 1)), np.cumsum(time_s, axis=1)[:, :-1]), axis=1)
    leaves = (freed_s < instance.time_s[task, gpu][:, None]) & (time_s > 0)
    migration, position = np.nonzero(leaves)
    after[scheme[migration], order[migration, position]] = source[migration]
    return after


def priority_mutation(
    schemes: IntArray, usage: FloatArray, instance: Instance, settings: Settings, rng: np.random.Generator
) -> IntArray:
    """Priority mutation (Section III-B 2c): return two offspring of each scheme, for energy and for JCT, (2p, n)."""
    moved = rng.random(schemes.shape) < settings.mutation_rate
    queues = scheme_queues(schemes, instance)
    targets = migration_targets(schemes, moved, queues, instance, settings)
    return np.concatenate([migrate(schemes, moved, target, usage, instance, settings) for target in targets])


class PlainOperators:
    def __init__(self, instance: Instance, settings: Settings) -> None:
        self.instance, self.settings = instance, settings
        self.usage = resource_usage(instance)

    def segments(self, schemes: IntArray) -> FloatArray:
        return segment_costs(schemes, self.instance)

    def cross(self, schemes: IntArray, costs: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        if self.settings.crossover == "uniform":
            return uniform_crossover((schemes[pairs[0]], schemes[pairs[1]]), rng)
        return self._elitism(schemes, costs, pairs, rng)

    def mutate(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        if self.settings.mutation == "reset":
            twice = np.concatenate((children, children))
            return random_reset(twice, self.instance, self.settings.mutation_rate, rng)
        return self._priority(children, rng)

    def _elitism(self, schemes: IntArray, costs: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        scores = segment_scores(schemes, costs, self.instance, self.settings)
        first, second = pairs
        return elitism_selection((schemes[first], schemes[second]), (scores[first], scores[second]), self.instance, rng)

    def _priority(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        return priority_mutation(children, self.usage, self.instance, self.settings, rng)
