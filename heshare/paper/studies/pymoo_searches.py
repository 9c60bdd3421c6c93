"""NSGA-II, SPEA2 and MOEA/D by pymoo with checkpoints: the searches that Fig. 7 compares with stage 1.

All have the encoding, evaluation, archive and stage 2 of HeShare, uniform crossover, and random reset to GPUs that the
task fits. Objectives are scaled by two greedy schemes, because MOEA/D weights raw objectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

from heshare.lab.pymoo_problem import scheduling_problem
from heshare.scheduling.genetic import Archive, Schemes, evolve
from heshare.scheduling.objectives import Instance, evaluate_schemes
from heshare.scheduling.operators import initialise, random_reset
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.errors import require

TITLES = {"nsga2": "NSGA-II", "spea2": "SPEA2", "moead": "MOEA/D", "moead-batched": "MOEA/D, batched"}
EVALUATIONS = 25_000
RANDOM_START = Settings(initialisation="random")
"""Settings of a pymoo search that begins with random schemes, as published."""
Rate = float | Literal["1/n"]


@dataclass(frozen=True, slots=True)
class SearchCheckpoint:
    """Result of a search after some evaluations.

    `schemes` is the Pareto set so far, `seconds` the wall time until then, without filling the archive of a pymoo
    search.
    """

    schemes: Schemes
    seconds: float


def search_checkpoints(
    name: str,
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    checkpoints: Sequence[int],
    *,
    rate: Rate = 0.1,
    record: SearchRecord | None = None,
) -> list[SearchCheckpoint]:
    """Return the Pareto set of a pymoo search after each of some numbers of evaluations; the last one ends it.

    Of the searches in `TITLES`, `moead` evaluates one child at a time as published, `moead-batched` a generation at
    once. Of the settings `population`, `archive` and `initialisation` count: `RANDOM_START` has `random`; `rank` gives
    the search HeShare's initial population. `checkpoints` count evaluated schemes, the initial ones included, and are
    multiples of the population. `rate` is the chance that a gene mutates; `1/n` is one task of each scheme on average.
    Another `record` replaces the evaluation of stage 1.

    Raises:
        InputError: an unknown search.
    """
    require("search", name, name in TITLES, "one of " + ", ".join(TITLES), "Choose one of them.")
    from pymoo.optimize import minimize  # slow to import

    record = record or SearchRecord(instance)
    algorithm = _algorithm(name, instance, settings, 1 / instance.n if rate == "1/n" else float(rate), rng)
    seed = int(rng.integers(2**31))
    record.begin()
    end = ("n_eval", max(checkpoints))
    minimize(scheduling_problem(instance, record.evaluate), algorithm, end, seed=seed, copy_algorithm=False)
    return record.at_checkpoints(checkpoints, settings)


def genetic_checkpoints(
    instance: Instance, settings: Settings, rng: np.random.Generator, checkpoints: Sequence[int]
) -> list[SearchCheckpoint]:
    """Return the Pareto set of HeShare's search after each of some numbers of evaluations."""
    for _ in evolve(instance, replace(settings, generations=2), np.random.default_rng(0)):
        pass  # compiles the operators before timing

    results = []
    began_s = perf_counter()
    for schemes in evolve(instance, settings, rng):
        if schemes.evaluations in checkpoints:
            results.append(SearchCheckpoint(schemes, perf_counter() - began_s))
    return results


def greedy_scale(instance: Instance) -> tuple[FloatArray, FloatArray]:
    """Return the best and the worst [energy in J, average JCT in s] of two greedy schemes, shape (2,) each.

    One places each task among the GPUs that need the least energy for it, the other among all.
    """
    frugal = instance.energy_j <= instance.best_j[:, None] * (1 + 1e-9)
    schemes = np.stack((_greedy_scheme(instance, frugal), _greedy_scheme(instance, np.ones_like(frugal))))

    ends = evaluate_schemes(schemes, instance)
    best = ends.min(axis=0)
    worst = ends.max(axis=0)
    return best, np.where(worst > best, worst, best + np.abs(best))


def _greedy_scheme(instance: Instance, allowed: BoolArray) -> IntArray:
    """Place the shortest tasks first, each on the GPU that ends first among those allowed, shape (n, k) -> (n,)."""
    scheme = np.empty(instance.n, dtype=np.int64)
    end_s = np.zeros(instance.k)

    for task in np.argsort(instance.best_s, kind="stable"):
        after_s = np.where(allowed[task], end_s + instance.time_s[task], np.inf)
        gpu = int(after_s.argmin())
        scheme[task] = gpu
        end_s[gpu] = after_s[gpu]
    return scheme


class SearchRecord:
    """Evaluates the schemes of a search and records each with its objectives and its time."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.evaluations = 0
        evaluate_schemes(np.zeros((1, instance.n), dtype=np.int64), instance)  # compiles it before timing
        self._best, worst = greedy_scale(instance)
        self._span = worst - self._best
        self._gpus: list[IntArray] = []
        self._objectives: list[FloatArray] = []
        self._times_s: list[float] = []
        self._began_s = 0.0

    def begin(self) -> None:
        self._began_s = perf_counter()

    def evaluate(self, schemes: IntArray) -> FloatArray:
        """Return the scaled objectives of p schemes, shape (p, 2)."""
        objectives = self.objectives(schemes)
        self.evaluations += len(schemes)
        self._gpus.append(schemes.astype(np.int16))
        self._objectives.append(objectives)
        self._times_s.append(perf_counter() - self._began_s)
        return (objectives - self._best) / self._span

    def objectives(self, schemes: IntArray) -> FloatArray:
        """Return [energy in J, average JCT in s] of p schemes, shape (p, 2), as stage 1 evaluates them."""
        return evaluate_schemes(schemes, self.instance)

    def at_checkpoints(self, checkpoints: Sequence[int], settings: Settings) -> list[SearchCheckpoint]:
        """Return the archive after each number of evaluations, filled one population at a time as in stage 1."""
        times_s = np.repeat(self._times_s, [len(schemes) for schemes in self._gpus])
        gpus = np.concatenate(self._gpus).astype(np.int64)
        objectives = np.concatenate(self._objectives)
        archive = Archive.empty(self.instance.n)
        results = []

        for done in range(0, max(checkpoints), settings.population):
            last = done + settings.population
            archive = archive.with_new(gpus[done:last], objectives[done:last], limit=settings.archive)
            if last in checkpoints:
                count = min(last, len(gpus))  # pymoo ends early when all children are duplicates
                schemes = Schemes(archive.gpus, archive.objectives, count)
                results.append(SearchCheckpoint(schemes, float(times_s[count - 1])))
        return results


def _algorithm(name: str, instance: Instance, settings: Settings, rate: float, rng: np.random.Generator) -> Any:
    """Return pymoo's algorithm: binary tournament in NSGA-II and SPEA2, neighbourhoods in MOEA/D."""
    from pymoo.algorithms.moo.moead import MOEAD
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.spea2 import SPEA2, SPEA2Survival
    from pymoo.core.duplicate import DuplicateElimination
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.population import Population
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.util.ref_dirs import get_reference_directions

    class Children(UniformCrossover):  # type: ignore[misc]
        def do(self, problem: Any, parents: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
            """As in pymoo and then `random_reset`, with the same random numbers and no individuals in between."""
            pairs = np.array([each.X for each in parents.ravel()]).reshape(*parents.shape, -1).swapaxes(0, 1)
            crossed = random_state.random(len(parents)) < self.prob.value
            children = pairs.copy()
            if crossed.any():
                children[:, crossed] = self._do(problem, pairs, random_state=random_state)[:, crossed]

            children = random_reset(children.reshape(-1, instance.n), instance, rate, random_state)
            random_state.random(len(children))  # pymoo draws which children mutate: all may
            return Population.new("X", children)

    class Exact(DuplicateElimination):  # type: ignore[misc]
        def _do(self, pop: Any, other: Any, is_duplicate: Any) -> Any:
            """As in pymoo: without `other`, a scheme that equals an earlier one of its population."""
            seen = {each.X.tobytes() for each in other} if other is not None else set()
            for place, each in enumerate(pop):
                is_duplicate[place] = each.X.tobytes() in seen
                if other is None:
                    seen.add(each.X.tobytes())
            return is_duplicate

    parts = {
        "sampling": initialise(instance, settings, rng),
        "crossover": Children(),
        "mutation": lambda problem, children, **_: children,
        "evaluator": Evaluator(evaluate_values_of=["F"]),  # there are no constraints
        "repair": lambda problem, schemes, **_: schemes,  # that of pymoo sets each scheme to itself
    }
    if name == "nsga2":
        algorithm = NSGA2(pop_size=settings.population, eliminate_duplicates=Exact(), **parts)
    elif name == "spea2":
        # A new survival object, because pymoo's default one is shared and retains the scale of earlier runs.
        operators = {"survival": SPEA2Survival(normalize=True), "eliminate_duplicates": Exact()}
        algorithm = SPEA2(pop_size=settings.population, **operators, **parts)
    else:
        weights = get_reference_directions("das-dennis", 2, n_partitions=settings.population - 1)
        algorithm = (MOEAD if name == "moead" else _batched_moead())(ref_dirs=weights, **parts)
    algorithm._set_optimum = lambda: None  # saves a tenth of the time: the result is in the record
    return algorithm


def _batched_moead() -> Any:
    """Return pymoo's batched MOEA/D with all distances of a generation in one array: equal results in less time."""
    from pymoo.algorithms.moo.moead import ParallelMOEAD

    class Batched(ParallelMOEAD):  # type: ignore[misc]
        ideal: FloatArray

        def _advance(self, infills: Any = None, **kwargs: Any) -> None:
            found = infills.get("F")
            self.ideal = np.minimum(self.ideal, found.min(axis=0))

            # The largest weighted distance to the ideal point, which each weight has a scheme with the least of.
            now = (np.abs(self.pop.get("F") - self.ideal) * self.ref_dirs).max(axis=1)
            new = (np.abs(found - self.ideal)[:, None] * self.ref_dirs).max(axis=2)

            for place, child, distances in zip(self.indices, infills, new, strict=True):
                near = self.neighbors[place]
                replaced = near[distances[near] < now[near]]
                self.pop[replaced] = child
                now[replaced] = distances[replaced]

    return Batched
