"""Plain numpy form of the genetic operators (Section III-B 2): the oracle of the compiled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from heshare.scheduling.objectives import Instance
from heshare.scheduling.operators import random_reset
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class SchemeQueues:
    """The GPU queues of p schemes: the n tasks of each scheme, sorted by GPU and then in SPT order.

    Attributes:
        key: `gpu * n + SPT position` of each task, ascending, shape (p, n).
        gpu: the GPU of each sorted task, shape (p, n).
        task: the index of each sorted task, shape (p, n).
        end: the position after each GPU's last task, shape (p, k).
        time_s: time alone of each sorted task, s, shape (p, n).
    """

    key: IntArray
    gpu: IntArray
    task: IntArray
    end: IntArray
    time_s: FloatArray


def spt_ranks(instance: Instance) -> IntArray:
    """Return the position of each task in the SPT order of each GPU, shape (n, k)."""
    return instance.solo.spt_rank[instance.kind_of].T


def scheme_queues(schemes: IntArray, instance: Instance) -> SchemeQueues:
    """Return the GPU queues T_1 .. T_K (Eqs. 1-3) of p schemes, GPU indices of shape (p, n)."""
    p, n = schemes.shape
    key = np.sort(schemes * n + spt_ranks(instance)[np.arange(n), schemes], axis=1)
    gpu, position = np.divmod(key, n)
    task = instance.order_of_kind[instance.kind_of[gpu], position]
    counts = np.bincount((gpu + instance.k * np.arange(p)[:, None]).ravel(), minlength=p * instance.k)
    end = np.cumsum(counts.reshape(p, instance.k), axis=1)
    return SchemeQueues(key, gpu, task, end, instance.time_s[task, gpu])


def segment_costs(schemes: IntArray, instance: Instance) -> FloatArray:
    """Return [energy in J (Eq. 6), sum of JCTs in s (Eq. 8)] of each GPU's subset of tasks, shape (p, k, 2)."""
    queues = scheme_queues(schemes, instance)
    weight = np.take_along_axis(queues.end, queues.gpu, axis=1) - np.arange(schemes.shape[1])
    energy_j = sum_by_gpu(queues.gpu, instance.energy_j[queues.task, queues.gpu], instance.k)
    jct_s = sum_by_gpu(queues.gpu, queues.time_s * weight + instance.begin_s[queues.gpu], instance.k)
    return np.stack((energy_j, jct_s), axis=2)


def sum_by_gpu(gpu: IntArray, value: FloatArray, k: int) -> FloatArray:
    """Return the sum of the values of each GPU, row by row; shapes (p, n), (p, n) -> (p, k)."""
    p = len(gpu)
    index = (gpu + k * np.arange(p)[:, None]).ravel()
    total: FloatArray = np.bincount(index, value.ravel(), p * k).astype(np.float64)
    return total.reshape(p, k)


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
    key = np.arange(instance.k) * n + spt_ranks(instance)[task] + keys_per_scheme * scheme[:, None]
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


def crossover(
    schemes: IntArray,
    costs: FloatArray,
    pairs: IntArray,
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
) -> IntArray:
    """Return one child of each pair of parents, shape (c, n), as `heshare.scheduling.operators.crossover`."""
    first, second = schemes[pairs[0]], schemes[pairs[1]]
    if settings.crossover == "uniform":
        return np.where(rng.random(first.shape) < 0.5, first, second)
    scores = segment_scores(schemes, costs, instance, settings)
    return elitism_selection((first, second), (scores[pairs[0]], scores[pairs[1]]), instance, rng)


def mutate(children: IntArray, instance: Instance, settings: Settings, rng: np.random.Generator) -> IntArray:
    """Return two offspring of each child, shape (2c, n), as `heshare.scheduling.operators.mutate`."""
    if settings.mutation == "reset":
        return random_reset(np.concatenate((children, children)), instance, settings.mutation_rate, rng)
    return priority_mutation(children, instance.usage, instance, settings, rng)
