"""The algorithms that Fig. 7 compares with: NSGA-II, SPEA2 and MOEA/D, by pymoo, on HeShare's own ground.

All search the same encoding (the GPU of each task) with the same evaluator, uniform crossover and random reset among
the GPUs that a task fits, so that memory is never exceeded. All keep the same external archive as HeShare's stage 1,
and `planner.configure` takes what they find through the same second stage. Objectives are scaled by the ends of two
greedy schemes: MOEA/D weighs them as they come, and joules would drown seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

from heshare.errors import InputError
from heshare.scheduling.archive import Archive
from heshare.scheduling.engines import engine
from heshare.scheduling.genetic import Schemes, evolve
from heshare.scheduling.objectives import FloatArray, Instance, IntArray, totals
from heshare.scheduling.operators import initialise, random_reset
from heshare.scheduling.settings import Settings

TITLES = {"nsga2": "NSGA-II", "spea2": "SPEA2", "moead": "MOEA/D", "moead-batched": "MOEA/D, batched"}
EVALUATIONS = 25_000
FAIR = Settings(initialisation="random")
"""How a rival starts by itself."""
Rate = float | Literal["1/n"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A search under way.

    Attributes:
        schemes: what it has found so far.
        seconds: wall time of the search itself until then, s; a rival's archive is kept afterwards, outside it.
    """

    schemes: Schemes
    seconds: float


def search(
    name: str,
    world: Instance,
    settings: Settings,
    rng: np.random.Generator,
    *,
    evaluations: int = EVALUATIONS,
    rate: Rate = 0.1,
) -> Schemes:
    """What a rival finds, as HeShare's stage 1 would return it.

    Args:
        name: one of `TITLES`; `moead` evaluates one child at a time as published, `moead-batched` a generation at once.
        world: the task set on its cluster.
        settings: `population`, `archive` and, unlike a rival's own, `initialisation`: `FAIR` has `random`, `rank`
            gives the rival HeShare's initial population.
        rng: the only source of chance.
        evaluations: schemes evaluated, the initial ones included; a multiple of the population.
        rate: chance that a gene mutates; `1/n` is one task of each scheme on average.

    Raises:
        InputError: there is no such rival.
    """
    return stages(name, world, settings, rng, (evaluations,), rate=rate)[-1].schemes


def stages(
    name: str,
    world: Instance,
    settings: Settings,
    rng: np.random.Generator,
    checkpoints: Sequence[int],
    *,
    rate: Rate = 0.1,
) -> list[Stage]:
    """`search`, with what was found after each of some numbers of evaluations; the last one ends it."""
    if name not in TITLES:
        raise InputError(
            column="rival", found=name, expected="one of " + ", ".join(TITLES), action="Choose one of them."
        )
    from pymoo.optimize import minimize  # slow to import, and only rivals need it

    record = _Record(world)
    algorithm = _algorithm(name, world, settings, 1 / world.n if rate == "1/n" else float(rate), rng)
    seed = int(rng.integers(2**31))
    record.begin()
    minimize(_problem(record), algorithm, ("n_eval", max(checkpoints)), seed=seed, copy_algorithm=False)
    return record.stages(checkpoints, settings)


def own_stages(
    world: Instance, settings: Settings, rng: np.random.Generator, checkpoints: Sequence[int]
) -> list[Stage]:
    """The same of HeShare's stage 1."""
    for _ in evolve(world, replace(settings, generations=2), np.random.default_rng(0)):
        pass  # loads what is compiled, before the clock starts
    found, began_s = [], perf_counter()
    for schemes in evolve(world, settings, rng):
        if schemes.evaluations in checkpoints:
            found.append(Stage(schemes, perf_counter() - began_s))
    return found


def scale(world: Instance) -> tuple[FloatArray, FloatArray]:
    """The best of each objective and the worst, [energy in J, average JCT in s], of two greedy schemes, (2,) each.

    Both place the shortest tasks first; one on the GPU of least energy that ends first, the other on any that does.
    """
    schemes = np.empty((2, world.n), dtype=np.int64)
    for row, energy in enumerate((True, False)):
        end_s = np.zeros(world.k)
        for task in np.argsort(world.best_s, kind="stable"):
            after_s = end_s + world.time_s[task]
            if energy:
                after_s = np.where(world.energy_j[task] <= world.best_j[task] * (1 + 1e-9), after_s, np.inf)
            gpu = int(after_s.argmin())
            schemes[row, task], end_s[gpu] = gpu, after_s[gpu]
    ends = totals(engine(world, Settings()).segments(schemes), world.n)
    best, worst = ends.min(axis=0), ends.max(axis=0)
    return best, np.where(worst > best, worst, best + np.abs(best))


class _Record:
    """Evaluates schemes, and remembers each with its objectives and when it was asked."""

    def __init__(self, world: Instance) -> None:
        self._steps, self.world = engine(world, Settings()), world
        self._steps.segments(np.zeros((1, world.n), dtype=np.int64))  # compiles it, before the clock starts
        self._best, worst = scale(world)
        self._span = worst - self._best
        self._gpus: list[IntArray] = []
        self._objectives: list[FloatArray] = []
        self._times_s: list[float] = []
        self._began_s = 0.0

    def begin(self) -> None:
        self._began_s = perf_counter()

    def evaluate(self, schemes: IntArray) -> FloatArray:
        """Scaled objectives of p schemes, shape (p, 2)."""
        found = totals(self._steps.segments(schemes), self.world.n)
        self._gpus.append(schemes.astype(np.int16))
        self._objectives.append(found)
        self._times_s.append(perf_counter() - self._began_s)
        return (found - self._best) / self._span

    def stages(self, checkpoints: Sequence[int], settings: Settings) -> list[Stage]:
        """The archive after each number of evaluations, filled a population at a time as HeShare fills its own."""
        sizes = np.array([len(one) for one in self._gpus])
        times_s = np.repeat(self._times_s, sizes)
        gpus, objectives = np.concatenate(self._gpus), np.concatenate(self._objectives)
        archive, found = Archive.empty(self.world.n), []
        for done in range(0, max(checkpoints), settings.population):
            last = done + settings.population
            new = gpus[done:last].astype(np.int64), objectives[done:last]
            archive = archive.with_new(*new, limit=settings.archive, non_dominated=self._steps.non_dominated)
            if last in checkpoints:
                seen = min(last, len(gpus))  # a rival ends early when it finds no scheme that it has not seen
                found.append(Stage(Schemes(archive.gpus, archive.objectives, seen), float(times_s[seen - 1])))
        return found


def _problem(record: _Record) -> Any:
    from pymoo.core.problem import Problem

    class Scheduling(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=record.world.n, n_obj=2, xl=0, xu=record.world.k - 1, vtype=int)

        def _evaluate(self, x: IntArray, out: dict[str, FloatArray], *args: Any, **kwargs: Any) -> None:
            out["F"] = record.evaluate(np.asarray(x, dtype=np.int64))

    return Scheduling()


def _algorithm(name: str, world: Instance, settings: Settings, rate: float, rng: np.random.Generator) -> Any:
    """The algorithm as pymoo has it: binary tournament in NSGA-II and SPEA2, neighbourhoods in MOEA/D."""
    from pymoo.algorithms.moo.moead import MOEAD, ParallelMOEAD
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.spea2 import SPEA2, SPEA2Survival
    from pymoo.core.mutation import Mutation
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.util.ref_dirs import get_reference_directions

    class Reset(Mutation):  # type: ignore[misc]
        def _do(self, problem: Any, X: IntArray, *args: Any, random_state: Any = None, **kwargs: Any) -> IntArray:  # noqa: N803
            return random_reset(X, world, rate, random_state)

    parts = {"sampling": initialise(world, settings, rng), "crossover": UniformCrossover(), "mutation": Reset(prob=1.0)}
    if name == "nsga2":
        return NSGA2(pop_size=settings.population, **parts)
    if name == "spea2":
        # A survival of its own: pymoo's default one is shared, and remembers the scale of earlier runs.
        return SPEA2(pop_size=settings.population, survival=SPEA2Survival(normalize=True), **parts)
    weights = get_reference_directions("das-dennis", 2, n_partitions=settings.population - 1)
    return (MOEAD if name == "moead" else ParallelMOEAD)(ref_dirs=weights, **parts)
