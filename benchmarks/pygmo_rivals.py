"""HeShare and HeShare+ against the compiled algorithms of pygmo at equal wall time: NSGA-II, MOEA/D, NSPSO and MACO.

All evaluate whole populations by the compiled evaluator of stage 1, start at random, keep the same archive, and their
schemes are configured by the same stage 2. A gene is the number of a GPU among those that its task fits. NSGA-II and
MACO search whole numbers, MOEA/D and NSPSO numbers that are rounded, since they know no others. In
`hv_plus_vs_pygmo_queues` all search with HeShare+'s evaluation of a queue (`queue_evaluation`). `speed_vs_pygmo_...` is
the schemes that HeShare's search evaluates in this time over those of the algorithm. Needs `pip install pygmo`; without
it there are no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from bench_rows import Row, sample_row
from queue_evaluation import QueueRecord, front_of_schemes, weights_of_front
from search import improved, predictor, ratios, rng, volumes, world

from heshare.lab.plus.batch_table import BatchTable
from heshare.paper.studies.pymoo_searches import RANDOM_START, SearchRecord, genetic_checkpoints
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import Schemes, evolve
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray

BUDGET_S = 1.0
GENERATIONS = 5
"""Generations between two looks at the clock."""


class Placement:
    """A problem of pygmo: the GPU of each task, with whole or with rounded numbers."""

    def __init__(self, record: SearchRecord, whole: bool) -> None:
        self._record, self._whole = record, whole
        fits = record.instance.fits
        self._fitting = [np.flatnonzero(row) for row in fits]
        self._counts = fits.sum(axis=1)
        self._table: IntArray = np.array([np.resize(gpus, fits.shape[1]) for gpus in self._fitting])

    def __deepcopy__(self, memo: dict[int, Any]) -> Placement:
        return self  # pygmo copies its problems; all are to write to one record

    def get_nobj(self) -> int:
        """Return the number of objectives: energy and average JCT."""
        return 2

    def get_nix(self) -> int:
        """Return the number of whole variables."""
        return len(self._counts) if self._whole else 0

    def get_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest genes, shape (n,) each."""
        edge = 0.0 if self._whole else 0.5
        return np.full(len(self._counts), -edge), self._counts - 1 + edge

    def fitness(self, x: FloatArray) -> FloatArray:
        """Return the scaled objectives of one scheme, shape (2,)."""
        return self.batch_fitness(x)

    def batch_fitness(self, x: FloatArray) -> FloatArray:
        """Return the scaled objectives of p schemes in one row, shape (2 p,)."""
        genes = np.clip(np.rint(x.reshape(-1, len(self._counts))), 0, self._counts - 1).astype(np.int64)
        return self._record.evaluate(self._table[np.arange(len(self._counts)), genes]).ravel()


def algorithms(pygmo: Any) -> dict[str, tuple[Callable[[int], Any], bool]]:
    """Return how to make each algorithm of a seed, and whether it searches whole numbers."""
    gen = {"gen": GENERATIONS}
    return {
        "nsga2": (lambda seed: pygmo.nsga2(**gen, cr=0.95, m=1 / 60, seed=seed), True),
        "maco": (lambda seed: pygmo.maco(**gen, ker=RANDOM_START.population, memory=True, seed=seed), True),
        "moead": (lambda seed: pygmo.moead_gen(**gen, weight_generation="grid", seed=seed), False),
        "nspso": (lambda seed: pygmo.nspso(**gen, memory=True, seed=seed), False),
    }


def search(name: str, record: SearchRecord, seed: int, pygmo: Any) -> Schemes:
    """Return the Pareto set that an algorithm finds within the budget; its schemes are evaluated by `record`."""
    make, whole = algorithms(pygmo)[name]
    own = make(seed)
    own.set_bfe(pygmo.bfe(pygmo.member_bfe()))
    algorithm = pygmo.algorithm(own)
    problem = pygmo.problem(Placement(record, whole))

    record.begin()
    began_s = perf_counter()
    population = pygmo.population(problem, size=RANDOM_START.population, seed=seed, b=pygmo.bfe(pygmo.member_bfe()))
    while perf_counter() - began_s < BUDGET_S:
        population = algorithm.evolve(population)

    count = record.evaluations - record.evaluations % RANDOM_START.population
    return record.at_checkpoints([count], RANDOM_START)[-1].schemes


def heshare(seed: int) -> Schemes:
    """Return the Pareto set that HeShare's search finds within the budget."""
    endless = Settings(generations=10**9)
    end_s = perf_counter() + BUDGET_S
    return next(schemes for schemes in evolve(world(seed), endless, rng(seed)) if perf_counter() >= end_s)


def results(seeds: int = 10) -> list[Row]:
    """Return hypervolumes of HeShare+ and HeShare over those of the algorithms, and the ratios of their speeds."""
    try:
        import pygmo
    except ImportError:
        return []
    genetic_checkpoints(world(0), Settings(), rng(0), (1_000,))  # loads compiled code
    names = list(algorithms(pygmo))
    by_seed = [of_seed(seed, pygmo) for seed in range(seeds)]
    volumes_of = [found for found, _ in by_seed]
    counts = [count for _, count in by_seed]

    best = [row["plus"] / max(row[name] for name in names) for row in volumes_of]
    best_queues = [row["plus"] / max(row[f"{name} queues"] for name in names) for row in volumes_of]
    return [
        sample_row("hv_plus_vs_pygmo", best),
        sample_row("hv_plus_vs_pygmo_queues", best_queues),
        *(sample_row(f"hv_plus_vs_pygmo_{name}", ratios(volumes_of, "plus", name)) for name in names),
        sample_row("hv_faithful_vs_pygmo_nsga2", ratios(volumes_of, "heshare", "nsga2")),
        *(sample_row(f"speed_vs_pygmo_{name}", ratios(counts, "heshare", name)) for name in ("nsga2", "moead")),
    ]


def of_seed(seed: int, pygmo: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Return the hypervolumes of all searches of one task set, and the schemes that each has evaluated."""
    instance = world(seed)
    table = BatchTable(instance, predictor())
    weights = weights_of_front(table, rng(seed))
    schemes = {name: search(name, SearchRecord(instance), seed, pygmo) for name in algorithms(pygmo)}
    schemes["heshare"] = heshare(seed)

    fronts = {name: configure(own, instance, predictor())[1] for name, own in schemes.items()}
    for name in algorithms(pygmo):
        own = search(name, QueueRecord(table, weights), seed, pygmo)
        fronts[f"{name} queues"] = front_of_schemes(own, table)
    fronts["plus"] = improved(instance, seed, BUDGET_S)
    return volumes(fronts, seed), {name: float(own.evaluations) for name, own in schemes.items()}


if __name__ == "__main__":
    for row in results():
        print(row)
