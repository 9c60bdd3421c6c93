"""The multi-objective task scheduling algorithm of stage 1 (Section III-B 2): a genetic algorithm with an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.scheduling.objectives import Instance, sum_segments
from heshare.scheduling.operators import NumpyOperators, environmental_selection, initialise, tournament
from heshare.scheduling.operators_numba import make_operators
from heshare.scheduling.pareto import non_dominated_indices, round_significant, thin
from heshare.scheduling.settings import Settings

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


def search(
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    use_numba: bool | None = None,
    seeds: IntArray | None = None,
) -> Schemes:
    """Search the schemes with the least energy and average JCT (Eq. 10) by the genetic algorithm.

    Each generation evaluates `population` schemes, the initial one included.

    Args:
        instance: the task set on its cluster.
        settings: population, generations and the variants of the operators.
        rng: the only source of randomness.
        progress: called after each generation.
        use_numba: chooses the compiled or the numpy operators, see `make_operators`; the bytes are the same.
        seeds: schemes that replace as many initial ones, shape (m, n).
    """
    for done, schemes in enumerate(evolve(instance, settings, rng, use_numba=use_numba, seeds=seeds), start=1):
        result = schemes
        if progress is not None and progress(done, settings.generations) is False:
            break
    return result


def evolve(
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    *,
    use_numba: bool | None = None,
    seeds: IntArray | None = None,
) -> Iterator[Schemes]:
    """Yield the Pareto set after each generation of `search`."""
    operators = make_operators(instance, settings, use_numba)
    initial = initialise(instance, settings, rng)
    if seeds is not None:
        initial[: len(seeds)] = seeds[: len(initial)]
    offspring = _Population.evaluate(initial, operators)
    archive = Archive.empty(instance.n)
    archive = archive.with_new(offspring.gpus, offspring.objectives, offspring.rounded, limit=settings.archive)
    population, rank, distance = offspring.select(settings.population)
    yield Schemes(archive.gpus, archive.objectives, settings.population)
    for generation in range(2, settings.generations + 1):
        pairs = (settings.population + 1) // 2
        parents = tournament(rank, distance, 2 * pairs, rng).reshape(2, pairs)
        children = operators.cross(population.gpus, population.costs, parents, rng)
        offspring = _Population.evaluate(operators.mutate(children, rng)[: settings.population], operators)
        archive = archive.with_new(offspring.gpus, offspring.objectives, offspring.rounded, limit=settings.archive)
        population, rank, distance = population.join(offspring).select(settings.population)
        yield Schemes(archive.gpus, archive.objectives, generation * settings.population)


@dataclass(frozen=True, slots=True)
class Archive:
    """External archive of a search: the schemes found so far that do not dominate each other, in order of energy.

    Attributes:
        gpus: the schemes, shape (m, n).
        objectives: [energy in J, average JCT in s] of each, shape (m, 2).
        rounded: the objectives after `round_significant`, shape (m, 2).
    """

    gpus: IntArray
    objectives: FloatArray
    rounded: FloatArray

    @classmethod
    def empty(cls, n: int) -> Self:
        """Return an archive without schemes, for n tasks."""
        return cls(np.zeros((0, n), dtype=np.int64), np.zeros((0, 2)), np.zeros((0, 2)))

    def with_new(
        self, gpus: IntArray, objectives: FloatArray, rounded: FloatArray | None = None, *, limit: int
    ) -> Archive:
        """Return the non-dominated schemes of the archive and the new ones, thinned along the front to `limit`.

        Args:
            gpus: the new schemes, shape (p, n).
            objectives: of the new schemes, shape (p, 2).
            rounded: the objectives after `round_significant`, if available.
            limit: the largest size.
        """
        rounded = np.concatenate((self.rounded, round_significant(objectives) if rounded is None else rounded))
        kept = np.sort(non_dominated_indices(rounded[:, 0], rounded[:, 1]))
        if len(kept) and kept[-1] < len(self.gpus):
            return self  # no new scheme stays, and the old ones are in order and within the limit
        objectives = np.concatenate((self.objectives, objectives))
        kept = kept[thin(objectives[kept], limit)]
        return Archive(np.concatenate((self.gpus, gpus))[kept], objectives[kept], rounded[kept])


@dataclass(frozen=True, slots=True)
class _Population:
    """Individuals: schemes (p, n), segment costs (p, k, 2), objectives and rounded objectives (p, 2)."""

    gpus: IntArray
    costs: FloatArray
    objectives: FloatArray
    rounded: FloatArray

    @classmethod
    def evaluate(cls, gpus: IntArray, operators: NumpyOperators) -> Self:
        costs = operators.segments(gpus)
        objectives = sum_segments(costs, gpus.shape[1])
        return cls(gpus, costs, objectives, round_significant(objectives))

    def join(self, other: _Population) -> _Population:
        return _Population(
            np.concatenate((self.gpus, other.gpus)),
            np.concatenate((self.costs, other.costs)),
            np.concatenate((self.objectives, other.objectives)),
            np.concatenate((self.rounded, other.rounded)),
        )

    def select(self, count: int) -> tuple[_Population, IntArray, FloatArray]:
        """Return the survivors, their fronts and their crowding distances."""
        kept, rank, distance = environmental_selection(self.objectives, self.rounded, count)
        survivors = _Population(self.gpus[kept], self.costs[kept], self.objectives[kept], self.rounded[kept])
        return survivors, rank, distance
