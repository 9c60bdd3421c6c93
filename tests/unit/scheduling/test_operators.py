"""The operators of stage 1: initialisation, selection, elitism selection, priority mutation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata
from support import plain_operators as plain
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.scheduling import operators
from heshare.scheduling.objectives import Instance, evaluate_schemes, make_instance, scheme_queues, segment_costs
from heshare.scheduling.selection import environmental_selection
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SETTINGS = Settings()


@pytest.fixture
def instance() -> Instance:
    return make_instance(mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100"), Toy(demand=DEMANDS))


def test_average_ranks_of_one_task() -> None:
    instance = instance_from_tables([[10, 10, 4, 1]], [[5, 5, 8, 6]], "2xT4,1xV100,1xA100")
    # Energy ranks 1 1 4 3, time ranks 3 3 2 1.
    assert operators.average_ranks(instance).tolist() == [[2.0, 2.0, 3.0, 2.0]]


def test_ranks_by_energy_and_time_are_those_of_scipy(rng: np.random.Generator) -> None:
    values = rng.integers(0, 5, (40, 7)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.inf
    np.testing.assert_array_equal(operators._least_ranks(values), rankdata(values, method="min", axis=1))


def test_initialise_puts_each_task_of_the_first_individual_on_a_best_ranked_gpu(
    instance: Instance, rng: np.random.Generator
) -> None:
    schemes = operators.initialise(instance, SETTINGS, rng)
    rank = operators.average_ranks(instance)
    assert schemes.shape == (50, 20)
    np.testing.assert_array_equal(rank[np.arange(20), schemes[0]], rank.min(axis=1))
    assert len(np.unique(schemes, axis=0)) > 25


def test_initialise_without_seed_mutation_draws_among_equal_ranks_only(
    instance: Instance, rng: np.random.Generator
) -> None:
    schemes = operators.initialise(instance, replace(SETTINGS, seed_mutation=0.0), rng)
    rank = operators.average_ranks(instance)
    assert (rank[np.arange(20), schemes] == rank.min(axis=1)).all()
    assert len(np.unique(schemes, axis=0)) > 1  # the two T4s are equal


def test_tournament_prefers_front_then_crowding(rng: np.random.Generator) -> None:
    rank, distance = np.array([1, 0, 0]), np.array([9.0, 1.0, 2.0])
    winners = operators.tournament(rank, distance, 3000, rng)
    counts = np.bincount(winners, minlength=3) / 3000
    np.testing.assert_allclose(counts, [1 / 9, 3 / 9, 5 / 9], atol=0.04)


def test_segment_scores_normalised_of_one_scheme() -> None:
    instance = instance_from_tables([[10, 5], [20, 40], [8, 4]], [[100, 200], [300, 150], [80, 100]], "1xT4,1xA100")
    schemes = np.array([[0, 0, 0]])
    scores = plain.segment_scores(schemes, segment_costs(schemes, instance), instance, SETTINGS)
    # Energy 480 of at least 100 + 150 + 80; JCTs 8 + 18 + 38 of at least 5 + 20 + 4. The A100 is empty.
    level = [480 / 330, 64 / 29]
    np.testing.assert_allclose(scores, [[level, level]])


def test_segment_scores_totals_favour_the_empty_gpu() -> None:
    instance = instance_from_tables([[10, 5], [20, 40]], [[100, 200], [300, 150]], "1xT4,1xA100")
    schemes = np.array([[0, 0]])
    totals = plain.segment_scores(
        schemes, segment_costs(schemes, instance), instance, replace(SETTINGS, segments="totals")
    )
    np.testing.assert_allclose(totals, [[[400, 10 + 30], [0, 0]]])


def test_elitism_selection_inherits_the_better_segment_of_each_gpu(rng: np.random.Generator) -> None:
    instance = instance_from_tables(np.ones((2, 3)), np.ones((2, 3)), "1xT4,1xV100,1xA100")
    first, second = np.array([[0, 0]]), np.array([[1, 2]])
    # The first parent's subset is inherited on the T4 and the V100, so task 0 stays on the T4. Task 1 is in both
    # inherited subsets, and the second parent's A100 is better by more.
    better_first = np.array([[[1.0, 1.0], [1.0, 1.0], [9.0, 9.0]]])
    better_second = np.array([[[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]])
    child = plain.elitism_selection((first, second), (better_first, better_second), instance, rng)
    assert child.tolist() == [[0, 2]]
    mirrored = plain.elitism_selection((second, first), (better_second, better_first), instance, rng)
    assert mirrored.tolist() == [[0, 2]]


def test_environmental_selection_prefers_fronts_then_least_crowded() -> None:
    front = [[0.0, 10.0], [1.0, 6.0], [1.5, 5.5], [10.0, 0.0]]
    behind = [[2.0, 12.0], [20.0, 1.0]]
    points = np.array(behind + front)
    kept, rank, distance = environmental_selection(points, points, 3)
    assert sorted(kept.tolist()) == [2, 4, 5]  # both ends and the less crowded of the other two
    assert rank.tolist() == [0, 0, 0]
    assert np.isfinite(distance[kept == 4]).all()
    _, five_ranks, _ = environmental_selection(points, points, 5)
    assert sorted(five_ranks.tolist()) == [0, 0, 0, 0, 1]


def test_elitism_selection_resolves_a_conflict_by_the_better_subset(rng: np.random.Generator) -> None:
    instance = instance_from_tables(np.ones((1, 2)), np.ones((1, 2)), "1xT4,1xA100")
    first, second = np.zeros((200, 1), dtype=int), np.ones((200, 1), dtype=int)
    scores_first = np.tile(np.array([[[1.0, 1.0], [3.0, 3.0]]]), (200, 1, 1))
    scores_second = np.tile(np.array([[[2.0, 2.0], [1.0, 1.0]]]), (200, 1, 1))
    child = plain.elitism_selection((first, second), (scores_first, scores_second), instance, rng)
    assert (child == 1).all()  # 1 : 3 on the A100 is better than 1 : 2 on the T4


def test_elitism_selection_puts_an_omitted_task_on_the_better_gpu(rng: np.random.Generator) -> None:
    instance = instance_from_tables([[1.0, 5.0]], [[1.0, 5.0]], "1xT4,1xA100")
    first, second = np.zeros((200, 1), dtype=int), np.ones((200, 1), dtype=int)
    scores_first = np.tile(np.array([[[3.0, 3.0], [1.0, 1.0]]]), (200, 1, 1))
    scores_second = np.tile(np.array([[[1.0, 1.0], [3.0, 3.0]]]), (200, 1, 1))
    child = plain.elitism_selection((first, second), (scores_first, scores_second), instance, rng)
    assert (child == 0).all()


def test_added_jct_is_the_difference_in_the_sum_of_jcts(instance: Instance, rng: np.random.Generator) -> None:
    schemes = rng.integers(4, size=(6, 20))
    scheme, task = np.repeat(np.arange(6), 20), np.tile(np.arange(20), 6)
    added_s = plain.added_jct(scheme_queues(schemes, instance), scheme, task, schemes[scheme, task], instance)
    for row in range(0, 120, 7):
        moved = np.tile(schemes[scheme[row]], (4, 1))
        moved[:, task[row]] = np.arange(4)
        total_s = evaluate_schemes(moved, instance)[:, 1] * 20
        np.testing.assert_allclose(np.diff(added_s[row]), np.diff(total_s), rtol=1e-9, atol=1e-6)


def test_migration_targets_load_aware_avoid_a_long_queue() -> None:
    instance = instance_from_tables([[8.0, 5.0], *[[20.0, 4.0]] * 5], [[1.0, 2.0], *[[9.0, 9.0]] * 5], "1xT4,1xA100")
    schemes = np.array([[1, 1, 1, 1, 1, 1]])
    moved = np.array([[True] + [False] * 5])
    queues = scheme_queues(schemes, instance)
    _, static = plain.migration_targets(schemes, moved, queues, instance, replace(SETTINGS, targets="static"))
    _, load_aware = plain.migration_targets(schemes, moved, queues, instance, SETTINGS)
    assert (static.tolist(), load_aware.tolist()) == ([1], [0])


def test_migration_targets_of_equal_energy_are_chosen_by_load() -> None:
    instance = instance_from_tables([[8.0, 8.0]] * 4, [[1.0, 1.0]] * 4, "2xT4")
    schemes = np.array([[0, 0, 0, 1]])
    moved = np.array([[True, False, False, False]])
    for_energy, _ = plain.migration_targets(schemes, moved, scheme_queues(schemes, instance), instance, SETTINGS)
    assert for_energy.tolist() == [1]


def test_migrate_sends_the_most_similar_task_back_from_an_overloaded_gpu() -> None:
    time_s = [[10.0, 10.0], [10.5, 10.5], [50.0, 50.0], [1.0, 1.0]]
    instance = instance_from_tables(time_s, np.full((4, 2), 100.0), "2xT4")
    usage = operators.resource_usage(instance)
    schemes, moved = np.array([[0, 1, 1, 0]]), np.array([[True, False, False, False]])
    without = plain.migrate(schemes, moved, np.array([1]), usage, instance, replace(SETTINGS, overload=9.0))
    assert without.tolist() == [[1, 1, 1, 0]]
    overloaded = plain.migrate(schemes, moved, np.array([1]), usage, instance, replace(SETTINGS, overload=1.0))
    assert overloaded.tolist() == [[1, 0, 1, 0]]  # task 1 frees the 10 s that task 0 brings
    assert schemes.tolist() == [[0, 1, 1, 0]]


def test_migrate_sends_several_small_tasks_back_for_a_long_one() -> None:
    time_s = [[30.0] * 2, [10.0] * 2, [10.0] * 2, [10.0] * 2, [90.0] * 2]
    instance = instance_from_tables(time_s, np.full((5, 2), 100.0), "2xT4")
    usage = np.stack((np.arange(5.0), np.zeros(5), np.zeros(5)), axis=1)[None]
    schemes, moved = np.array([[0, 1, 1, 1, 1]]), np.array([[True] + [False] * 4])
    after = plain.migrate(schemes, moved, np.array([1]), usage, instance, replace(SETTINGS, overload=1.0))
    assert after.tolist() == [[1, 0, 0, 0, 1]]


def test_priority_mutation_makes_an_offspring_for_energy_and_one_for_jct(
    instance: Instance, rng: np.random.Generator
) -> None:
    schemes = rng.integers(4, size=(10, 20))
    usage = operators.resource_usage(instance)
    settings = replace(SETTINGS, mutation_rate=1.0, targets="static", overload=1e9)
    objectives = evaluate_schemes(plain.priority_mutation(schemes, usage, instance, settings, rng), instance)
    assert objectives.shape == (20, 2)
    np.testing.assert_allclose(objectives[:10, 0], instance.best_j.sum())
    assert (objectives[:10, 0] < objectives[10:, 0]).all()
