"""HeShare+ against the compiled algorithms of pygmo at equal wall time: NSGA-II, MOEA/D, NSPSO and MACO.

All evaluate whole populations by the compiled evaluator of stage 1, start at random, keep the same archive, and their
schemes are configured by the same stage 2. A gene is the number of a GPU among those that its task fits. NSGA-II and
MACO search whole numbers, MOEA/D and NSPSO numbers that are rounded, since they know no others. Needs `pip install
pygmo`; without it there are no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from bench_rows import Row, sample_row
from search import improved, predictor, volumes, world

from heshare.paper.studies.pymoo_searches import RANDOM_START, SearchRecord
from heshare.scheduling.configuration import configure
from heshare.scheduling.objectives import Instance
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


def front_of(name: str, instance: Instance, seed: int, pygmo: Any) -> tuple[FloatArray, int]:
    """Return the final front of an algorithm within the budget, and how many schemes it evaluated."""
    make, whole = algorithms(pygmo)[name]
    record = SearchRecord(instance)
    own = make(seed)
    own.set_bfe(pygmo.bfe(pygmo.member_bfe()))
    algorithm, problem = pygmo.algorithm(own), pygmo.problem(Placement(record, whole))
    record.begin()
    began_s = perf_counter()
    population = pygmo.population(problem, size=RANDOM_START.population, seed=seed, b=pygmo.bfe(pygmo.member_bfe()))
    while perf_counter() - began_s < BUDGET_S:
        population = algorithm.evolve(population)
    count = record.evaluations - record.evaluations % RANDOM_START.population
    schemes = record.at_checkpoints([count], RANDOM_START)[-1].schemes
    return configure(schemes, instance, predictor())[1], record.evaluations


def results(seeds: int = 10) -> list[Row]:
    """Return HeShare+'s hypervolume over that of each algorithm, and over the best of them on each task set."""
    try:
        import pygmo
    except ImportError:
        return []
    rows = []
    for seed in range(seeds):
        instance = world(seed)
        found = {name: front_of(name, instance, seed, pygmo)[0] for name in algorithms(pygmo)}
        found["plus"] = improved(instance, seed, BUDGET_S)
        rows.append(volumes(found, seed))
    ratios = {name: [row["plus"] / row[name] for row in rows] for name in algorithms(pygmo)}
    best = [row["plus"] / max(value for name, value in row.items() if name != "plus") for row in rows]
    return [
        sample_row("hv_plus_vs_pygmo", best),
        *(sample_row(f"hv_plus_vs_pygmo_{name}", values) for name, values in ratios.items()),
    ]


if __name__ == "__main__":
    for row in results():
        print(row)
