"""The genetic operators of stage 1 (Section III-B 2), over a whole population.

The paper's three are multi-objective initialisation (2a, `initialise`), multi-objective elitism selection (2b) and
priority mutation with task recovery (2c); the compiled functions of the latter two are in `operators_numba`. A scheme
is a row of GPU indices, one for each task.
"""

from typing import cast

import numpy as np

from heshare.scheduling.objectives import Instance
from heshare.scheduling.operators_numba import (
    SoloCosts,
    elitism_selection,
    load_aware_targets,
    migrate,
    segment_costs,
    segment_scores,
)
from heshare.scheduling.pareto import round_significant
from heshare.scheduling.selection import tournament_winners
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray


def average_ranks(instance: Instance) -> FloatArray:
    """Return the mean of each GPU's ranks by energy and by time for each task, shape (n, k); infinite if no fit."""
    by_energy = _least_ranks(round_significant(instance.energy_j))
    by_time = _least_ranks(round_significant(instance.time_s + instance.begin_s))
    return np.where(instance.fits, (by_energy + by_time) / 2, np.inf)


def _least_ranks(values: FloatArray) -> IntArray:
    # Ranks in each row, (n, k), from 1 on; equal values have their lowest one (scipy is slow to import).
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    ranks = np.tile(np.arange(1, values.shape[1] + 1), (len(values), 1))
    ranks[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = 0
    np.put_along_axis(ranks, order, np.maximum.accumulate(ranks, axis=1), axis=1)
    return ranks


def random_schemes(allowed: BoolArray, count: int, rng: np.random.Generator) -> IntArray:
    """Return `count` schemes, each task on a GPU drawn uniformly from its allowed ones, (n, k) -> (count, n)."""
    # One scheme at a time: the random numbers of all at once would not fit into memory on a large cluster.
    return np.array([np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1) for _ in range(count)])


def initialise(instance: Instance, settings: Settings, rng: np.random.Generator) -> IntArray:
    """Return the initial population, by default by multi-objective initialisation (Section III-B 2a).

    Each task goes to a GPU with the least average rank; equal ranks are drawn for each individual. The rule alone gives
    nearly equal individuals, so all but the first are then mutated at random, each at its own rate. Schemes have the
    shape (population, n).
    """
    if settings.initialisation == "random":
        return random_schemes(instance.fits, settings.population, rng)
    rank, count = average_ranks(instance), settings.population
    best_ranked = random_schemes(rank == rank.min(axis=1, keepdims=True), count, rng)
    rate = settings.seed_mutation * rng.random((count, 1))
    rate[0] = 0.0
    mutated = rng.random(best_ranked.shape) < rate
    return np.where(mutated, random_schemes(instance.fits, count, rng), best_ranked)


def tournament(rank: IntArray, distance: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Return the indices of `count` winners of binary tournaments, by front, then crowding distance, shape (count,)."""
    return tournament_winners(rank, distance, rng.integers(len(rank), size=(2, count)))


def uniform_crossover(parents: tuple[IntArray, IntArray], rng: np.random.Generator) -> IntArray:
    """Return one child of each pair: each task's GPU from either parent with equal chance, shape (p, n)."""
    return cast(IntArray, np.where(rng.random(parents[0].shape) < 0.5, *parents))


def random_reset(schemes: IntArray, instance: Instance, rate: float, rng: np.random.Generator) -> IntArray:
    """Move each task with chance `rate` to a GPU drawn uniformly from those that it fits, shape (p, n)."""
    options, count = instance.options
    drawn = (rng.random(schemes.shape) * count).astype(np.int64)
    moved = rng.random(schemes.shape) < rate
    return cast(IntArray, np.where(moved, options[np.arange(instance.n), drawn], schemes))


def resource_usage(instance: Instance) -> FloatArray:
    """Return log time, power over TDP, and memory over capacity of each task on each type of GPU, (kinds, n, 3)."""
    fits = instance.fits[:, instance.first_of_kind]
    time_s = np.where(fits, instance.time_s[:, instance.first_of_kind], 1.0)
    power_w = np.where(fits, instance.energy_j[:, instance.first_of_kind], 0.0) / time_s
    tdp_w = np.array([gpu.tdp_w for gpu in instance.kinds])
    size_mib = np.array([gpu.memory_mib for gpu in instance.kinds])
    usage = np.stack((np.log(time_s), power_w / tdp_w, instance.needs_mib[:, None] / size_mib), axis=2)
    return np.ascontiguousarray(usage.transpose(1, 0, 2))


class GeneticOperators:
    """The operators of one search.

    The time of a generation grows with tasks times GPU types, and with moved tasks times GPUs: migration compares all
    GPUs for each task (Section III-B 2c), so with tasks for each GPU fixed it is quadratic, as in the paper. GPUs of
    one type have equal columns in the instance.
    """

    def __init__(self, instance: Instance, settings: Settings) -> None:
        self.instance, self.settings = instance, settings
        self.usage = resource_usage(instance)
        first = instance.first_of_kind
        time_s, energy_j = instance.time_s[:, first].copy(), instance.energy_j[:, first].copy()
        self._solo: SoloCosts = (time_s, energy_j, instance.order_of_kind, instance.kind_of, instance.begin_s)
        self._best = np.stack((instance.best_j, instance.best_s))
        self._by_kind = np.argsort(instance.kind_of, kind="stable")
        self._static_targets = np.stack((instance.energy_j.argmin(axis=1), instance.time_s.argmin(axis=1)))

    def segments(self, schemes: IntArray) -> FloatArray:
        """Return [energy in J, sum of JCTs in s] of each GPU's subset, shape (p, k, 2)."""
        return segment_costs(schemes, self._solo)

    def cross(self, schemes: IntArray, costs: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        """Return one child of each pair of parents, `pairs` of shape (2, c) -> (c, n)."""
        if self.settings.crossover == "uniform":
            return uniform_crossover((schemes[pairs[0]], schemes[pairs[1]]), rng)
        energy_weights = rng.random((pairs.shape[1],))
        scores = costs
        if self.settings.segments == "normalised":
            scores = segment_scores(schemes, costs, self._best, pairs)
        return elitism_selection(schemes, pairs, scores, energy_weights, self._solo, self._best)

    def mutate(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        """Return two offspring of each of c children, for energy and for JCT, shape (2c, n)."""
        if self.settings.mutation == "reset":
            twice = np.concatenate((children, children))
            return random_reset(twice, self.instance, self.settings.mutation_rate, rng)
        moved = rng.random(children.shape) < self.settings.mutation_rate
        if self.settings.targets == "static":
            targets = np.repeat(self._static_targets[:, None], len(children), axis=1)
        else:
            targets = load_aware_targets(children, moved, self._solo, self._by_kind)
        overload = float(self.settings.overload) if self.settings.recovery else np.inf
        both = np.empty((2 * len(children), self.instance.n), dtype=np.int64)
        for goal, target in enumerate(targets):
            migrate(children, moved, target, self.usage, self._solo, overload, both[goal * len(children) :])
        return both
