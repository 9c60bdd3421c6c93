"""Initialisation, elitism selection, priority mutation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks, table

from heshare.scheduling import operators
from heshare.scheduling.objectives import Instance, instance, objectives, queues, segments
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SETTINGS = Settings()


@pytest.fixture
def world() -> Instance:
    return instance(mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100"), Toy(demand=DEMANDS))


def masked(rng: np.random.Generator) -> Instance:
    """Twelve tasks of which half fit only the last two of four GPUs."""
    fits = np.ones((12, 4), dtype=bool)
    fits[:6, :2] = False
    return table(rng.uniform(1, 9, (12, 4)), rng.uniform(1, 9, (12, 4)), "2xT4,1xV100,1xA100", fits)


def test_average_rank_by_hand() -> None:
    world = table([[10, 10, 4, 1]], [[5, 5, 8, 6]], "2xT4,1xV100,1xA100")
    # Energy ranks 1 1 4 3, time ranks 3 3 2 1.
    assert operators.average_ranks(world).tolist() == [[2.0, 2.0, 3.0, 2.0]]


def test_first_individual_follows_the_rank_rule(world: Instance, rng: np.random.Generator) -> None:
    schemes = operators.initialise(world, SETTINGS, rng)
    rank = operators.average_ranks(world)
    assert schemes.shape == (50, 20)
    np.testing.assert_array_equal(rank[np.arange(20), schemes[0]], rank.min(axis=1))
    assert len(np.unique(schemes, axis=0)) > 25


def test_without_mutation_only_equal_ranks_are_drawn(world: Instance, rng: np.random.Generator) -> None:
    schemes = operators.initialise(world, replace(SETTINGS, seed_mutation=0.0), rng)
    rank = operators.average_ranks(world)
    assert (rank[np.arange(20), schemes] == rank.min(axis=1)).all()
    assert len(np.unique(schemes, axis=0)) > 1  # the two T4s are equal


def test_tournament_prefers_front_then_crowding(rng: np.random.Generator) -> None:
    rank, distance = np.array([1, 0, 0]), np.array([9.0, 1.0, 2.0])
    winners = operators.tournament(rank, distance, 3000, rng)
    counts = np.bincount(winners, minlength=3) / 3000
    np.testing.assert_allclose(counts, [1 / 9, 3 / 9, 5 / 9], atol=0.04)


def test_normalised_segments_by_hand() -> None:
    world = table([[10, 5], [20, 40], [8, 4]], [[100, 200], [300, 150], [80, 100]], "1xT4,1xA100")
    schemes = np.array([[0, 0, 0]])
    scores = operators.segment_scores(schemes, segments(schemes, world), world, SETTINGS)
    # Energy 480 of at least 100 + 150 + 80; JCTs 8 + 18 + 38 of at least 5 + 20 + 4. The A100 is empty.
    level = [480 / 330, 64 / 29]
    np.testing.assert_allclose(scores, [[level, level]])


def test_totals_favour_the_empty_gpu() -> None:
    world = table([[10, 5], [20, 40]], [[100, 200], [300, 150]], "1xT4,1xA100")
    schemes = np.array([[0, 0]])
    totals = operators.segment_scores(schemes, segments(schemes, world), world, replace(SETTINGS, segments="totals"))
    np.testing.assert_allclose(totals, [[[400, 10 + 30], [0, 0]]])


def test_child_inherits_the_better_segment_of_each_gpu(rng: np.random.Generator) -> None:
    world = table(np.ones((2, 3)), np.ones((2, 3)), "1xT4,1xV100,1xA100")
    first, second = np.array([[0, 0]]), np.array([[1, 2]])
    # The first parent is better on the T4 and the V100, so only it brings task 0: to the T4. Both bring task 1: the
    # second's A100 is the clearer win.
    better_first = np.array([[[1.0, 1.0], [1.0, 1.0], [9.0, 9.0]]])
    better_second = np.array([[[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]])
    child = operators.elitism_selection((first, second), (better_first, better_second), world, rng)
    assert child.tolist() == [[0, 2]]
    mirrored = operators.elitism_selection((second, first), (better_second, better_first), world, rng)
    assert mirrored.tolist() == [[0, 2]]


def test_the_best_fronts_live_on_and_then_the_least_crowded() -> None:
    front = [[0.0, 10.0], [1.0, 6.0], [1.5, 5.5], [10.0, 0.0]]
    behind = [[2.0, 12.0], [20.0, 1.0]]
    kept, rank, distance = operators.environmental_selection(np.array(behind + front), 3)
    assert sorted(kept.tolist()) == [2, 4, 5]  # both ends, and of the middle ones the one with more room
    assert rank.tolist() == [0, 0, 0]
    assert np.isfinite(distance[kept == 4]).all()
    more = operators.environmental_selection(np.array(behind + front), 5)
    assert sorted(more[1].tolist()) == [0, 0, 0, 0, 1]


def test_a_conflict_goes_with_the_better_subset(rng: np.random.Generator) -> None:
    world = table(np.ones((1, 2)), np.ones((1, 2)), "1xT4,1xA100")
    first, second = np.zeros((200, 1), dtype=int), np.ones((200, 1), dtype=int)
    scores_first = np.tile(np.array([[[1.0, 1.0], [3.0, 3.0]]]), (200, 1, 1))
    scores_second = np.tile(np.array([[[2.0, 2.0], [1.0, 1.0]]]), (200, 1, 1))
    child = operators.elitism_selection((first, second), (scores_first, scores_second), world, rng)
    assert (child == 1).all()  # 1 : 3 on the A100 is a clearer win than 1 : 2 on the T4


def test_an_omission_goes_where_it_suits_the_target(rng: np.random.Generator) -> None:
    world = table([[1.0, 5.0]], [[1.0, 5.0]], "1xT4,1xA100")
    first, second = np.zeros((200, 1), dtype=int), np.ones((200, 1), dtype=int)
    scores_first = np.tile(np.array([[[3.0, 3.0], [1.0, 1.0]]]), (200, 1, 1))
    scores_second = np.tile(np.array([[[1.0, 1.0], [3.0, 3.0]]]), (200, 1, 1))
    child = operators.elitism_selection((first, second), (scores_first, scores_second), world, rng)
    assert (child == 0).all()


def test_equal_parents_have_an_equal_child(world: Instance, rng: np.random.Generator) -> None:
    scheme = rng.integers(4, size=(9, 20))
    scores = operators.segment_scores(scheme, segments(scheme, world), world, SETTINGS)
    np.testing.assert_array_equal(operators.elitism_selection((scheme, scheme), (scores, scores), world, rng), scheme)


def test_added_jct_is_the_difference_that_the_task_makes(world: Instance, rng: np.random.Generator) -> None:
    schemes = rng.integers(4, size=(6, 20))
    child, task = np.repeat(np.arange(6), 20), np.tile(np.arange(20), 6)
    added = operators.added_jct(queues(schemes, world), child, task, schemes[child, task], world)
    for row in range(0, 120, 7):
        there = np.tile(schemes[child[row]], (4, 1))
        there[:, task[row]] = np.arange(4)
        total = objectives(there, world)[:, 1] * 20
        np.testing.assert_allclose(np.diff(added[row]), np.diff(total), rtol=1e-9, atol=1e-6)


def test_static_targets_are_the_best_gpus_alone(world: Instance, rng: np.random.Generator) -> None:
    schemes = rng.integers(4, size=(5, 20))
    moved = np.ones(schemes.shape, dtype=bool)
    for_energy, for_jct = operators.targets(
        schemes, moved, queues(schemes, world), world, replace(SETTINGS, targets="static")
    )
    assert (for_energy.reshape(5, 20) == world.energy_j.argmin(axis=1)).all()
    assert (for_jct.reshape(5, 20) == world.time_s.argmin(axis=1)).all()


def test_load_aware_targets_avoid_a_long_queue() -> None:
    world = table([[8.0, 5.0], *[[20.0, 4.0]] * 5], [[1.0, 2.0], *[[9.0, 9.0]] * 5], "1xT4,1xA100")
    schemes = np.array([[1, 1, 1, 1, 1, 1]])
    moved = np.array([[True] + [False] * 5])
    line = queues(schemes, world)
    assert operators.targets(schemes, moved, line, world, replace(SETTINGS, targets="static"))[1].tolist() == [1]
    assert operators.targets(schemes, moved, line, world, SETTINGS)[1].tolist() == [0]


def test_load_decides_between_gpus_of_equal_energy() -> None:
    world = table([[8.0, 8.0]] * 4, [[1.0, 1.0]] * 4, "2xT4")
    schemes = np.array([[0, 0, 0, 1]])
    moved = np.array([[True, False, False, False]])
    assert operators.targets(schemes, moved, queues(schemes, world), world, SETTINGS)[0].tolist() == [1]


def test_the_target_for_energy_has_the_least_energy(world: Instance, rng: np.random.Generator) -> None:
    schemes = rng.integers(4, size=(5, 20))
    moved = np.ones(schemes.shape, dtype=bool)
    goes, _ = operators.targets(schemes, moved, queues(schemes, world), world, SETTINGS)
    np.testing.assert_allclose(world.energy_j[np.arange(20), goes.reshape(5, 20)], np.tile(world.best_j, (5, 1)))


def test_an_overloaded_target_sends_back_the_most_similar_task() -> None:
    world = table([[10.0, 10.0], [10.5, 10.5], [50.0, 50.0], [1.0, 1.0]], np.full((4, 2), 100.0), "2xT4")
    use = operators.resource_use(world)
    schemes, moved = np.array([[0, 1, 1, 0]]), np.array([[True, False, False, False]])
    calm = operators.recover(schemes, moved, np.array([1]), use, world, replace(SETTINGS, overload=9.0))
    assert calm.tolist() == [[1, 1, 1, 0]]
    full = operators.recover(schemes, moved, np.array([1]), use, world, replace(SETTINGS, overload=1.0))
    assert full.tolist() == [[1, 0, 1, 0]]  # task 1 frees the 10 s that task 0 brings
    assert schemes.tolist() == [[0, 1, 1, 0]]


def test_several_small_tasks_make_room_for_a_long_one() -> None:
    world = table([[30.0] * 2, [10.0] * 2, [10.0] * 2, [10.0] * 2, [90.0] * 2], np.full((5, 2), 100.0), "2xT4")
    use = np.stack((np.arange(5.0), np.zeros(5), np.zeros(5)), axis=1)[None]
    schemes, moved = np.array([[0, 1, 1, 1, 1]]), np.array([[True] + [False] * 4])
    after = operators.recover(schemes, moved, np.array([1]), use, world, replace(SETTINGS, overload=1.0))
    assert after.tolist() == [[1, 0, 0, 0, 1]]


def test_mutation_makes_two_offspring_with_different_preferences(world: Instance, rng: np.random.Generator) -> None:
    schemes = rng.integers(4, size=(10, 20))
    use = operators.resource_use(world)
    every = replace(SETTINGS, mutation_rate=1.0, targets="static", overload=1e9)
    both = objectives(operators.priority_mutation(schemes, use, world, every, rng), world)
    assert both.shape == (20, 2)
    np.testing.assert_allclose(both[:10, 0], world.best_j.sum())
    assert (both[:10, 0] < both[10:, 0]).all()


def test_operators_never_place_a_task_where_it_does_not_fit(rng: np.random.Generator) -> None:
    world = masked(rng)
    use = operators.resource_use(world)
    schemes = operators.initialise(world, SETTINGS, rng)
    for rate, kind in ((0.3, "load-aware"), (1.0, "static")):
        settings = replace(SETTINGS, mutation_rate=rate, targets=kind, overload=1.0)  # type: ignore[arg-type]
        scores = operators.segment_scores(schemes, segments(schemes, world), world, settings)
        child = operators.elitism_selection((schemes[:25], schemes[25:]), (scores[:25], scores[25:]), world, rng)
        schemes = operators.priority_mutation(child, use, world, settings, rng)
        assert world.fits[np.arange(12), schemes].all()
