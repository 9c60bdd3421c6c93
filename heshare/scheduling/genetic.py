"""The multi-objective task scheduling algorithm of stage 1 (Section III-B 2): a genetic algorithm with an archive.

The paper describes the operators (`heshare.scheduling.operators`), not the loop around them. The loop is that of
NSGA-II (Deb et al. 2002, DOI 10.1109/4235.996017), with an external archive whose last state is PS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from heshare.scheduling.objectives import Instance, segment_costs, sum_segments
from heshare.scheduling.operators import crossover, initialise, mutate
from heshare.scheduling.pareto import non_dominated_indices, round_significant, thin
from heshare.scheduling.selection import environmental_selection, tournament_winners
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.interruption import InterruptedWithResult

Progress = Callable[[int, int], object]
"""Called with (generations done, generations in all); the search stops early when it returns False."""


@dataclass(frozen=True, slots=True)
class Schemes:
    """The Pareto set PS of stage 1, the input of Algorithm 1: schemes that do not dominate each other.

    Attributes:
        gpus: the GPU of each task in each scheme, shape (m, n).
        objectives: [energy in J, average JCT in s] of their sequential execution, shape (m, 2), by energy.
        evaluations: number of schemes evaluated to find them.
    """

    gpus: IntArray
    objectives: FloatArray
    evaluations: int


@dataclass(frozen=True, slots=True)
class Population:
    """The individuals of one generation.

    Attributes:
        gpus: the GPU of each task in each of p schemes, shape (p, n).
        costs: energy and sum of JCTs of each GPU's subset, shape (p, k, 2).
        objectives: [energy in J, average JCT in s] of each scheme, shape (p, 2).
    """

    gpus: IntArray
    costs: FloatArray
    objectives: FloatArray

    @classmethod
    def evaluated(cls, gpus: IntArray, instance: Instance) -> Self:
        """Return schemes with their energy and JCTs (Eqs. 6 to 9)."""
        costs = segment_costs(gpus, instance.solo)
        return cls(gpus, costs, sum_segments(costs, instance.n))

    def joined(self, other: Population) -> Population:
        """Return the individuals of both."""
        return Population(
            np.concatenate((self.gpus, other.gpus)),
            np.concatenate((self.costs, other.costs)),
            np.concatenate((self.objectives, other.objectives)),
        )

    def take(self, rows: IntArray) -> Population:
        """Return the individuals of some rows."""
        return Population(self.gpus[rows], self.costs[rows], self.objectives[rows])


def search(
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    seeds: IntArray | None = None,
) -> Schemes:
    """Search the schemes with the least energy and average JCT (Eq. 10) by the genetic algorithm.

    Each generation evaluates `population` schemes, the initial one included. `progress` is called after each
    generation; `seeds` replace as many initial schemes, shape (m, n). Ctrl-C raises `InterruptedWithResult` with the
    schemes so far.
    """
    result = None
    try:
        for done, schemes in enumerate(evolve(instance, settings, rng, seeds=seeds), start=1):
            result = schemes
            if progress is not None and progress(done, settings.generations) is False:
                break
    except KeyboardInterrupt as stop:
        # A subclass, such as `InterruptedWithResult` of what `progress` calls, is not this search's to end.
        if result is None or type(stop) is not KeyboardInterrupt:
            raise
        raise InterruptedWithResult("the plans are those of the search so far", result) from None
    return cast(Schemes, result)


def evolve(
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    *,
    seeds: IntArray | None = None,
) -> Iterator[Schemes]:
    """Yield the Pareto set after each generation of `search`."""
    size = settings.population
    pairs = (size + 1) // 2

    # The first generation: multi-objective initialisation (2a).
    initial = initialise(instance, settings, rng)
    if seeds is not None:
        initial[: len(seeds)] = seeds[: len(initial)]
    population = Population.evaluated(initial, instance)
    archive = Archive.empty(instance.n).with_new(population.gpus, population.objectives, limit=settings.archive)
    population, rank, distance = survivors(population, size)  # all stay; it ranks them
    yield Schemes(archive.gpus, archive.objectives, size)

    for generation in range(2, settings.generations + 1):
        # Parents by binary tournaments, one child of each pair by elitism selection (2b), and of each child two
        # offspring by priority mutation (2c): one for energy and one for JCT.
        parents = tournament(rank, distance, 2 * pairs, rng).reshape(2, pairs)
        children = crossover(population.gpus, population.costs, parents, instance, settings, rng)
        offspring = Population.evaluated(mutate(children, instance, settings, rng)[:size], instance)

        # The non-dominated individuals so far stay in the archive, thinned to its limit; the best of parents and
        # offspring in the population.
        archive = archive.with_new(offspring.gpus, offspring.objectives, limit=settings.archive)
        population, rank, distance = survivors(population.joined(offspring), size)
        yield Schemes(archive.gpus, archive.objectives, generation * size)


def survivors(population: Population, count: int) -> tuple[Population, IntArray, FloatArray]:
    """Return the `count` individuals that stay, by front and crowding distance, and both of each, shape (count,)."""
    rounded = round_significant(population.objectives)
    kept, rank, distance = environmental_selection(population.objectives, rounded, count)
    return population.take(kept), rank, distance


def tournament(rank: IntArray, distance: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Return the indices of `count` winners of binary tournaments, by front, then crowding distance, shape (count,)."""
    return tournament_winners(rank, distance, rng.integers(len(rank), size=(2, count)))


@dataclass(frozen=True, slots=True)
class Archive:
    """External archive of a search: the schemes found so far that do not dominate each other, in order of energy.

    Attributes:
        gpus: the schemes, shape (m, n).
        objectives: [energy in J, average JCT in s] of each, shape (m, 2).
    """

    gpus: IntArray
    objectives: FloatArray

    @classmethod
    def empty(cls, n: int) -> Self:
        """Return an archive without schemes, for n tasks."""
        return cls(np.zeros((0, n), dtype=np.int64), np.zeros((0, 2)))

    def with_new(self, gpus: IntArray, objectives: FloatArray, *, limit: int) -> Archive:
        """Return the non-dominated schemes of the archive and the new ones, thinned along the front to `limit`.

        The new schemes have the shape (p, n), their objectives (p, 2).
        """
        both = np.concatenate((self.objectives, objectives))
        rounded = round_significant(both)
        kept = non_dominated_indices(rounded[:, 0].copy(), rounded[:, 1].copy())
        if kept.max(initial=0) < len(self.objectives):
            return self  # no new scheme stays, since equal ones give way to the old, which are in order and few enough

        kept = kept[thin(both[kept], limit)]
        return Archive(np.concatenate((self.gpus, gpus))[kept], both[kept])
