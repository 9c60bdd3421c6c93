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
from heshare.shared.errors import InputError
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
def test_search_checkpoints_have_the_evaluations_and_a_front(name: str, instance: Instance) -> None:
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
def test_search_with_the_same_seed_returns_the_same_bytes(name: str, instance: Instance) -> None:
    # An algorithm of pymoo must not keep state of the run before, as SPEA2 does with its default survival.
    first, same, other = (found(name, instance, np.random.default_rng(seed), 300) for seed in (1, 1, 2))
    assert first.gpus.tobytes() == same.gpus.tobytes()
    assert first.gpus.tobytes() != other.gpus.tobytes()


@pytest.mark.parametrize("name", pymoo_searches.TITLES)
def test_search_puts_tasks_only_on_gpus_that_they_fit(name: str, rng: np.random.Generator) -> None:
    fits = np.ones((12, 4), dtype=bool)
    fits[:6, :3] = False
    costs = rng.uniform(1, 9, (2, 12, 2))[:, :, [0, 0, 0, 1]]
    instance = instance_from_tables(costs[0], costs[1], "3xT4,1xA100", fits)
    schemes = found(name, instance, rng, 200, rate="1/n")
    assert fits[np.arange(12), schemes.gpus].all()


def test_unknown_search(instance: Instance) -> None:
    """An unknown search is refused with the known ones."""
    with pytest.raises(InputError, match="nsga2"):
        found("nsga9", instance, np.random.default_rng(1), 50)


def test_search_can_begin_with_rank_initialisation(instance: Instance) -> None:
    by_rank, at_random = (
        found("nsga2", instance, np.random.default_rng(1), 50, settings=Settings(initialisation=how))  # type: ignore[arg-type]
        for how in ("rank", "random")
    )
    assert by_rank.objectives[:, 0].min() < at_random.objectives[:, 0].min()


def test_genetic_checkpoints_end_with_the_result_of_the_search(instance: Instance) -> None:
    settings = Settings(generations=30)
    checkpoints = pymoo_searches.genetic_checkpoints(instance, settings, np.random.default_rng(3), (500, 1500))
    complete = search(instance, settings, np.random.default_rng(3))
    assert [checkpoint.schemes.evaluations for checkpoint in checkpoints] == [500, 1500]
    assert checkpoints[-1].schemes.gpus.tobytes() == complete.gpus.tobytes()


def test_search_minimises_what_its_own_record_says(instance: Instance) -> None:
    class FewOnTheFirst(pymoo_searches.SearchRecord):
        """Counts the tasks on the first GPU, whatever they cost."""

        def objectives(self, schemes: IntArray) -> FloatArray:
            count = (schemes == 0).sum(axis=1, dtype=np.float64)
            return np.column_stack((count, count))

    record = FewOnTheFirst(instance)
    start, rng = pymoo_searches.RANDOM_START, np.random.default_rng(1)
    (last,) = pymoo_searches.search_checkpoints("nsga2", instance, start, rng, (1000,), record=record)
    assert not (last.schemes.gpus == 0).any()


def test_greedy_scale_is_ordered_and_begins_at_the_least_energy(instance: Instance) -> None:
    best, worst = pymoo_searches.greedy_scale(instance)
    assert (best < worst).all()
    assert best[0] == pytest.approx(instance.best_j.sum())


def test_the_quicker_moead_replaces_as_pymoos_does(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    from pymoo.algorithms.moo.moead import ParallelMOEAD

    def gpus() -> bytes:
        return found("moead-batched", instance, np.random.default_rng(5), 600).gpus.tobytes()

    quick = gpus()
    monkeypatch.setattr(pymoo_searches, "_batched_moead", lambda: ParallelMOEAD)
    assert gpus() == quick


@pytest.mark.parametrize("chance", [0.9, 0.0])
def test_the_quicker_children_are_those_of_pymoos_operators(instance: Instance, chance: float) -> None:
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
