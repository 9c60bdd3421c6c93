"""The multi-objective task scheduling algorithm of stage 1 (Section III-B 2): a genetic algorithm with an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from heshare.scheduling.objectives import Instance, sum_segments
from heshare.scheduling.operators import GeneticOperators, initialise, tournament
from heshare.scheduling.pareto import non_dominated_indices, round_significant, thin
from heshare.scheduling.selection import Individuals, environmental_selection, joined
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.stopping import Stopped

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
    seeds: IntArray | None = None,
) -> Schemes:
    """Search the schemes with the least energy and average JCT (Eq. 10) by the genetic algorithm.

    Each generation evaluates `population` schemes, the initial one included. `progress` is called after each
    generation; `seeds` replace as many initial schemes, shape (m, n). Ctrl-C raises `Stopped` with the schemes so far.
    """
    result = None
    try:
        for done, schemes in enumerate(evolve(instance, settings, rng, seeds=seeds), start=1):
            result = schemes
            if progress is not None and progress(done, settings.generations) is False:
                break
    except KeyboardInterrupt as stop:
        if result is None or type(stop) is not KeyboardInterrupt:
            raise
        raise Stopped("the plans are those of the search so far", result) from None
    return cast(Schemes, result)


def evolve(
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    *,
    seeds: IntArray | None = None,
) -> Iterator[Schemes]:
    """Yield the Pareto set after each generation of `search`."""
    operators = GeneticOperators(instance, settings)
    initial = initialise(instance, settings, rng)
    if seeds is not None:
        initial[: len(seeds)] = seeds[: len(initial)]
    offspring = _evaluated(initial, operators)
    archive = Archive.empty(instance.n).with_new(offspring[0], *offspring[2:], limit=settings.archive)
    kept, rank, distance = environmental_selection(offspring[2], offspring[3], settings.population)
    population = joined(offspring, offspring, kept)
    yield Schemes(archive.gpus, archive.objectives, settings.population)
    for generation in range(2, settings.generations + 1):
        pairs = (settings.population + 1) // 2
        parents = tournament(rank, distance, 2 * pairs, rng).reshape(2, pairs)
        children = operators.cross(population[0], population[1], parents, rng)
        offspring = _evaluated(operators.mutate(children, rng)[: settings.population], operators)
        archive = archive.with_new(offspring[0], *offspring[2:], limit=settings.archive)
        objectives = np.concatenate((population[2], offspring[2]))
        rounded = np.concatenate((population[3], offspring[3]))
        kept, rank, distance = environmental_selection(objectives, rounded, settings.population)
        population = joined(population, offspring, kept)
        yield Schemes(archive.gpus, archive.objectives, generation * settings.population)


def _evaluated(gpus: IntArray, operators: GeneticOperators) -> Individuals:
    costs = operators.segments(gpus)
    objectives = sum_segments(costs, gpus.shape[1])
    return gpus, costs, objectives, round_significant(objectives)


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

        The new schemes have the shape (p, n), their objectives (p, 2), `rounded` by `round_significant` if available.
        """
        rounded = round_significant(objectives) if rounded is None else rounded
        rounded = np.concatenate((self.rounded, rounded))
        kept = non_dominated_indices(rounded[:, 0].copy(), rounded[:, 1].copy())
        if kept.max(initial=0) < len(self.rounded):
            return self  # no new scheme stays, and the old ones are in order and within the limit
        objectives = np.concatenate((self.objectives, objectives))
        kept = kept[thin(objectives[kept], limit)]
        return Archive(np.concatenate((self.gpus, gpus))[kept], objectives[kept], rounded[kept])
