"""The pymoo searches of Fig. 7: evaluations, archive, memory, determinism."""

from __future__ import annotations

from typing import Any

import moocore
import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.lab.pymoo_problem import scheduling_problem
from heshare.paper.studies import pymoo_searches
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, evaluate_schemes, make_instance
from heshare.scheduling.operators import random_reset, random_schemes
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.cluster import Cluster

TOY = Toy(demand=DEMANDS)


@pytest.fixture(scope="module")
def instance() -> Instance:
    return make_instance(mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100"), TOY)


def found(
    name: str,
    instance: Instance,
    rng: np.random.Generator,
    evaluations: int,
    *,
    settings: Settings = pymoo_searches.RANDOM_START,
    rate: pymoo_searches.Rate = 0.1,
) -> Schemes:
    (last,) = pymoo_searches.search_checkpoints(name, instance, settings, rng, (evaluations,), rate=rate)
    return last.schemes


@pytest.mark.parametrize("name", pymoo_searches.TITLES)
def test_checkpoints(name: str, instance: Instance) -> None:
    """A checkpoint has its number of evaluations and a Pareto front, which grows."""
    first, last = pymoo_searches.search_checkpoints(
        name, instance, pymoo_searches.RANDOM_START, np.random.default_rng(1), (200, 600)
    )
    assert (first.schemes.evaluations, last.schemes.evaluations) == (200, 600)
    assert 0 < first.seconds < last.seconds
    for checkpoint in (first, last):
        assert non_dominated(checkpoint.schemes.objectives).all()
        np.testing.assert_array_equal(
            evaluate_schemes(checkpoint.schemes.gpus, instance), checkpoint.schemes.objectives
        )
    reference = evaluate_schemes(np.zeros((1, 20), dtype=np.int64), instance)[0] * 2
    areas = [moocore.hypervolume(each.schemes.objectives, ref=reference) for each in (first, last)]
    assert areas[1] > areas[0]


@pytest.mark.parametrize("name", pymoo_searches.TITLES)
def test_same_seed(name: str, instance: Instance) -> None:
    """The same seed gives the same bytes."""
    # An algorithm of pymoo must not keep state of the run before, as SPEA2 does with its default survival.
    first, same, other = (found(name, instance, np.random.default_rng(seed), 300) for seed in (1, 1, 2))
    assert first.gpus.tobytes() == same.gpus.tobytes()
    assert first.gpus.tobytes() != other.gpus.tobytes()


@pytest.mark.parametrize("name", pymoo_searches.TITLES)
def test_only_gpus_that_fit(name: str, rng: np.random.Generator) -> None:
    """Tasks are put only on GPUs with enough memory."""
    fits = np.ones((12, 4), dtype=bool)
    fits[:6, :3] = False
    costs = rng.uniform(1, 9, (2, 12, 2))[:, :, [0, 0, 0, 1]]
    instance = instance_from_tables(costs[0], costs[1], "3xT4,1xA100", fits)
    schemes = found(name, instance, rng, 200, rate="1/n")
    assert fits[np.arange(12), schemes.gpus].all()


def test_genetic_checkpoints(instance: Instance) -> None:
    """Genetic checkpoints end with the result of the search."""
    settings = Settings(generations=30)
    checkpoints = pymoo_searches.genetic_checkpoints(instance, settings, np.random.default_rng(3), (500, 1500))
    complete = search(instance, settings, np.random.default_rng(3))
    assert [checkpoint.schemes.evaluations for checkpoint in checkpoints] == [500, 1500]
    assert checkpoints[-1].schemes.gpus.tobytes() == complete.gpus.tobytes()


def test_batched_moead(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batched MOEA/D replaces as pymoo's does."""
    from pymoo.algorithms.moo.moead import ParallelMOEAD

    def gpus() -> bytes:
        return found("moead-batched", instance, np.random.default_rng(5), 600).gpus.tobytes()

    quick = gpus()
    monkeypatch.setattr(pymoo_searches, "_batched_moead", lambda: ParallelMOEAD)
    assert gpus() == quick


@pytest.mark.parametrize("chance", [0.9, 0.0])
def test_quick_children(instance: Instance, chance: float) -> None:
    """The quicker operators give the children of pymoo's."""
    from pymoo.core.mutation import Mutation
    from pymoo.core.population import Population
    from pymoo.operators.crossover.ux import UniformCrossover

    class Reset(Mutation):  # type: ignore[misc]
        def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:  # noqa: N803
            return random_reset(X, instance, 0.1, random_state)

    quick = pymoo_searches._algorithm("nsga2", instance, Settings(), 0.1, np.random.default_rng(0)).mating.crossover
    quick.prob.value = chance
    problem = scheduling_problem(instance, pymoo_searches.SearchRecord(instance).evaluate)
    pairs = Population.new("X", random_schemes(instance.fits, 40, np.random.default_rng(1))).reshape(20, 2)
    ours, theirs = np.random.default_rng(2), np.random.default_rng(2)
    children = UniformCrossover(prob=chance)(problem, pairs, random_state=theirs)
    Reset(prob=1.0)(problem, children, random_state=theirs)
    np.testing.assert_array_equal(quick(problem, pairs, random_state=ours).get("X"), children.get("X"))
    assert ours.random() == theirs.random()


def test_own_record(instance: Instance) -> None:
    """A search minimises the objectives of its own record."""

    class FewOnTheFirst(pymoo_searches.SearchRecord):
        """Counts the tasks on the first GPU, whatever they cost."""

        def objectives(self, schemes: IntArray) -> FloatArray:
            count = (schemes == 0).sum(axis=1, dtype=np.float64)
            return np.column_stack((count, count))

    record = FewOnTheFirst(instance)
    start, rng = pymoo_searches.RANDOM_START, np.random.default_rng(1)
    (last,) = pymoo_searches.search_checkpoints("nsga2", instance, start, rng, (2000,), record=record)
    assert not (last.schemes.gpus == 0).any()
