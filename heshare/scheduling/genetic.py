"""The multi-objective task scheduling algorithm of stage 1 (Section III-B 2): the loop around its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from heshare.scheduling.archive import Archive
from heshare.scheduling.engines import Readable, engine
from heshare.scheduling.objectives import FloatArray, Instance, IntArray, totals
from heshare.scheduling.operators import initialise, tournament
from heshare.scheduling.pareto import significant
from heshare.scheduling.settings import Settings

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Schemes:
    """Stage 1's Pareto set PS: schemes of which none is better in both objectives.

    Attributes:
        gpus: the GPU of each task in each scheme, shape (m, n).
        objectives: [energy in J, average JCT in s] of their sequential execution, shape (m, 2), by energy.
        evaluations: schemes evaluated to find them.
    """

    gpus: IntArray
    objectives: FloatArray
    evaluations: int


@dataclass(frozen=True, slots=True)
class _Population:
    """Individuals with what selection needs: schemes (p, n), segments (p, k, 2), objectives, raw and rounded (p, 2)."""

    gpus: IntArray
    parts: FloatArray
    objectives: FloatArray
    rounded: FloatArray

    def take(self, rows: IntArray) -> _Population:
        return _Population(self.gpus[rows], self.parts[rows], self.objectives[rows], self.rounded[rows])


def search(
    world: Instance,
    settings: Settings,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    compiled: bool | None = None,
    seeds: IntArray | None = None,
) -> Schemes:
    """Run the genetic algorithm; every generation evaluates `population` schemes, the initial ones included.

    Args:
        world: the task set on its cluster.
        settings: population, generations and the reading of the operators.
        rng: the only source of chance.
        progress: called with (generations done, generations in all); the search stops early when it returns False.
        compiled: which form of the operators runs, see `engines.engine`; the bytes are the same.
        seeds: schemes to begin with in place of as many initial ones, shape (m, n).
    """
    for done, schemes in enumerate(evolve(world, settings, rng, compiled=compiled, seeds=seeds), start=1):
        found = schemes
        if progress is not None and progress(done, settings.generations) is False:
            break
    return found


def evolve(
    world: Instance,
    settings: Settings,
    rng: np.random.Generator,
    *,
    compiled: bool | None = None,
    seeds: IntArray | None = None,
) -> Iterator[Schemes]:
    """`search`, one generation at a time: what is found so far, after each."""
    steps = engine(world, settings, compiled)
    initial = initialise(world, settings, rng)
    if seeds is not None:
        initial[: len(seeds)] = seeds[: len(initial)]
    offspring = _evaluated(initial, steps)
    archive = _archived(Archive.empty(world.n), offspring, settings.archive, steps)
    population, rank, distance = _selected(offspring, settings.population, steps)
    yield Schemes(archive.gpus, archive.objectives, settings.population)
    for done in range(2, settings.generations + 1):
        pairs = (settings.population + 1) // 2
        parents = tournament(rank, distance, 2 * pairs, rng).reshape(2, pairs)
        children = steps.cross(population.gpus, population.parts, parents, rng)
        offspring = _evaluated(steps.mutate(children, rng)[: settings.population], steps)
        archive = _archived(archive, offspring, settings.archive, steps)
        population, rank, distance = _selected(_joined(population, offspring), settings.population, steps)
        yield Schemes(archive.gpus, archive.objectives, done * settings.population)


def _evaluated(gpus: IntArray, steps: Readable) -> _Population:
    parts = steps.segments(gpus)
    objectives = totals(parts, gpus.shape[1])
    return _Population(gpus, parts, objectives, significant(objectives))


def _joined(one: _Population, other: _Population) -> _Population:
    return _Population(
        np.concatenate((one.gpus, other.gpus)),
        np.concatenate((one.parts, other.parts)),
        np.concatenate((one.objectives, other.objectives)),
        np.concatenate((one.rounded, other.rounded)),
    )


def _selected(population: _Population, count: int, steps: Readable) -> tuple[_Population, IntArray, FloatArray]:
    kept, rank, distance = steps.select(population.objectives, population.rounded, count)
    return population.take(kept), rank, distance


def _archived(archive: Archive, new: _Population, limit: int, steps: Readable) -> Archive:
    return archive.with_new(new.gpus, new.objectives, new.rounded, limit=limit, non_dominated=steps.non_dominated)
