"""The multi-objective task scheduling algorithm of stage 1 (Section III-B 2): the loop around its operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heshare.scheduling import operators
from heshare.scheduling.objectives import FloatArray, Instance, IntArray, segments, totals
from heshare.scheduling.pareto import non_dominated, thin
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
    """Individuals with what selection needs: schemes (p, n), segments (p, k, 2), objectives, front, crowding."""

    gpus: IntArray
    parts: FloatArray
    objectives: FloatArray
    rank: IntArray
    distance: FloatArray


def search(world: Instance, settings: Settings, rng: np.random.Generator, progress: Progress | None = None) -> Schemes:
    """Run the genetic algorithm; every generation evaluates `population` schemes, the initial ones included.

    Args:
        world: the task set on its cluster.
        settings: population, generations and the reading of the operators.
        rng: the only source of chance.
        progress: called with (generations done, generations in all); the search stops early when it returns False.
    """
    alike = operators.resource_distance(world)
    population = _select(_evaluated(operators.initialise(world, settings, rng), world), settings.population)
    archive = _archived(None, population, settings.archive)
    done = 1
    while done < settings.generations and (progress is None or progress(done, settings.generations) is not False):
        offspring = _evaluated(_offspring(population, alike, world, settings, rng), world)
        archive = _archived(archive, offspring, settings.archive)
        population = _select(_joined(population, offspring), settings.population)
        done += 1
    if progress is not None:
        progress(done, settings.generations)
    return Schemes(*archive, evaluations=done * settings.population)


def _evaluated(gpus: IntArray, world: Instance) -> _Population:
    parts = segments(gpus, world)
    nothing = np.zeros(len(gpus))
    return _Population(gpus, parts, totals(parts, world.n), nothing.astype(np.int64), nothing)


def _joined(one: _Population, other: _Population) -> _Population:
    return _Population(
        np.concatenate((one.gpus, other.gpus)),
        np.concatenate((one.parts, other.parts)),
        np.concatenate((one.objectives, other.objectives)),
        np.concatenate((one.rank, other.rank)),
        np.concatenate((one.distance, other.distance)),
    )


def _select(population: _Population, count: int) -> _Population:
    kept, rank, distance = operators.environmental_selection(population.objectives, count)
    return _Population(population.gpus[kept], population.parts[kept], population.objectives[kept], rank, distance)


def _offspring(
    population: _Population, alike: FloatArray, world: Instance, settings: Settings, rng: np.random.Generator
) -> IntArray:
    """Tournament, elitism selection, priority mutation: `population` new schemes from half as many children."""
    pairs = (settings.population + 1) // 2
    one, other = operators.tournament(population.rank, population.distance, 2 * pairs, rng).reshape(2, pairs)
    scores = operators.segment_scores(population.gpus, population.parts, world, settings)
    child = operators.elitism_selection(
        (population.gpus[one], population.gpus[other]), (scores[one], scores[other]), world, rng
    )
    return operators.priority_mutation(child, alike, world, settings, rng)[: settings.population]


def _archived(archive: tuple[IntArray, FloatArray] | None, new: _Population, limit: int) -> tuple[IntArray, FloatArray]:
    """The archive with the new schemes that no other dominates, thinned to `limit`, in order of energy."""
    gpus, objectives = (new.gpus, new.objectives)
    if archive is not None:
        gpus, objectives = np.concatenate((archive[0], gpus)), np.concatenate((archive[1], objectives))
    kept = np.flatnonzero(non_dominated(objectives))
    kept = kept[thin(objectives[kept], limit)]
    return gpus[kept], objectives[kept]
