"""The operators of stage 1: initialisation, selection, elitism selection, priority mutation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.scheduling import operators
from heshare.scheduling.genetic import tournament
from heshare.scheduling.objectives import Instance, evaluate_schemes, make_instance, segment_costs
from heshare.scheduling.selection import environmental_selection
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.cluster import Cluster

SETTINGS = Settings()


@pytest.fixture
def instance() -> Instance:
    return make_instance(mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100"), Toy(demand=DEMANDS))


def test_average_ranks() -> None:
    """Average ranks of one task."""
    instance = instance_from_tables([[10, 10, 4, 1]], [[5, 5, 8, 6]], "2xT4,1xV100,1xA100")
    # Energy ranks 1 1 4 3, time ranks 3 3 2 1.
    assert operators.average_ranks(instance).tolist() == [[2.0, 2.0, 3.0, 2.0]]


def test_ranks(rng: np.random.Generator) -> None:
    """Ranks by energy and time are those of SciPy."""
    values = rng.integers(0, 5, (40, 7)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.inf
    np.testing.assert_array_equal(operators._ranks(values), rankdata(values, method="min", axis=1))


def test_initialise(instance: Instance, rng: np.random.Generator) -> None:
    """Each task of the first individual, and without seed mutation of all, is on a GPU of its best rank."""
    schemes = operators.initialise(instance, SETTINGS, rng)
    rank = operators.average_ranks(instance)
    assert schemes.shape == (50, 20)
    np.testing.assert_array_equal(rank[np.arange(20), schemes[0]], rank.min(axis=1))
    assert len(np.unique(schemes, axis=0)) > 25

    unchanged = operators.initialise(instance, replace(SETTINGS, seed_mutation=0.0), rng)
    assert (rank[np.arange(20), unchanged] == rank.min(axis=1)).all()
    assert len(np.unique(unchanged, axis=0)) > 1  # the two T4s are equal


def test_tournament(rng: np.random.Generator) -> None:
    """Tournament prefers front then crowding."""
    rank, distance = np.array([1, 0, 0]), np.array([9.0, 1.0, 2.0])
    winners = tournament(rank, distance, 3000, rng)
    counts = np.bincount(winners, minlength=3) / 3000
    np.testing.assert_allclose(counts, [1 / 9, 3 / 9, 5 / 9], atol=0.04)


def scores_of(schemes: IntArray, instance: Instance) -> FloatArray:
    scores = segment_costs(schemes, instance.solo)
    for scheme, own in zip(schemes, scores, strict=True):
        operators.normalise_subsets(scheme, own, instance.solo)
    return scores


def test_subset_scores() -> None:
    """Subsets are compared over the least that their tasks need."""
    instance = instance_from_tables([[10, 5], [20, 40], [8, 4]], [[100, 200], [300, 150], [80, 100]], "1xT4,1xA100")
    # Energy 480 of at least 100 + 150 + 80; JCTs 8 + 18 + 38 of at least 5 + 20 + 4. The A100 is empty.
    level = [480 / 330, 64 / 29]
    np.testing.assert_allclose(scores_of(np.array([[0, 0, 0]]), instance), [[level, level]])


def crossed(first: list[int], second: list[int], costs: list[list[float]], instance: Instance) -> list[int]:
    """Return the child of two parents whose GPUs' subsets cost the same in energy and JCT, shape (2, k)."""
    schemes = np.array([first, second])
    both = np.repeat(np.array(costs, dtype=float)[:, :, None], 2, axis=2)
    child = operators.elitism_selection(schemes, both, np.array([[0], [1]]), np.array([0.3]), instance.solo, False)
    found: list[int] = child[0].tolist()
    return found


def test_better_segment() -> None:
    """Elitism selection inherits the better segment of each GPU."""
    instance = instance_from_tables(np.ones((2, 3)), np.ones((2, 3)), "1xT4,1xV100,1xA100")
    # The first parent's subset is inherited on the T4 and the V100, so task 0 stays on the T4. Task 1 is in both
    # inherited subsets, and the second parent's A100 is better by more.
    better_first, better_second = [1.0, 1.0, 9.0], [2.0, 2.0, 1.0]
    assert crossed([0, 0], [1, 2], [better_first, better_second], instance) == [0, 2]
    assert crossed([1, 2], [0, 0], [better_second, better_first], instance) == [0, 2]


def test_conflict() -> None:
    """Elitism selection resolves a conflict by the better subset."""
    instance = instance_from_tables(np.ones((1, 2)), np.ones((1, 2)), "1xT4,1xA100")
    # 1 : 3 on the A100 is better than 1 : 2 on the T4.
    assert crossed([0], [1], [[1.0, 3.0], [2.0, 1.0]], instance) == [1]
    # Of equally good subsets that of the first parent.
    assert crossed([0], [1], [[1.0, 3.0], [3.0, 1.0]], instance) == [0]


def test_omitted_task() -> None:
    """Elitism selection puts an omitted task on the better GPU."""
    instance = instance_from_tables([[1.0, 5.0]], [[1.0, 5.0]], "1xT4,1xA100")
    assert crossed([0], [1], [[3.0, 1.0], [1.0, 3.0]], instance) == [0]


def test_environmental_selection() -> None:
    """Environmental selection prefers fronts then least crowded."""
    front = [[0.0, 10.0], [1.0, 6.0], [1.5, 5.5], [10.0, 0.0]]
    behind = [[2.0, 12.0], [20.0, 1.0]]
    points = np.array(behind + front)
    kept, rank, distance = environmental_selection(points, points, 3)
    assert sorted(kept.tolist()) == [2, 4, 5]  # both ends and the less crowded of the other two
    assert rank.tolist() == [0, 0, 0]
    assert np.isfinite(distance[kept == 4]).all()
    _, five_ranks, _ = environmental_selection(points, points, 5)
    assert sorted(five_ranks.tolist()) == [0, 0, 0, 0, 1]


def targets_of(scheme: list[int], moved: list[bool], instance: Instance, *, load_aware: bool = True) -> IntArray:
    targets = np.full((2, len(scheme)), -1)
    queues = operators.spt_queues(np.array(scheme), instance.solo)
    operators.migration_targets(np.array(scheme), np.array(moved), queues, instance.solo, load_aware, targets)
    return targets


def test_jct_targets(instance: Instance, rng: np.random.Generator) -> None:
    """Targets for JCT add least to the sum of JCTs."""
    for scheme in rng.integers(4, size=(6, 20)):
        for task in range(0, 20, 7):
            _, for_jct = targets_of(scheme.tolist(), [each == task for each in range(20)], instance)
            moved = np.tile(scheme, (4, 1))
            moved[:, task] = np.arange(4)
            total_s = evaluate_schemes(moved, instance)[:, 1]
            assert total_s[for_jct[task]] <= total_s.min() * (1 + 1e-12)


def test_load_aware_targets() -> None:
    """Load-aware targets avoid a long queue."""
    instance = instance_from_tables([[8.0, 5.0], *[[20.0, 4.0]] * 5], [[1.0, 2.0], *[[9.0, 9.0]] * 5], "1xT4,1xA100")
    moved = [True] + [False] * 5
    assert targets_of([1] * 6, moved, instance, load_aware=False)[1, 0] == 1
    assert targets_of([1] * 6, moved, instance)[1, 0] == 0


def test_equal_energy() -> None:
    """Targets of equal energy are chosen by load."""
    instance = instance_from_tables([[8.0, 8.0]] * 4, [[1.0, 1.0]] * 4, "2xT4")
    assert targets_of([0, 0, 0, 1], [True, False, False, False], instance)[0, 0] == 1


def after_recovery(scheme: list[int], arrival: int, gpu: int, instance: Instance, usage: FloatArray) -> list[int]:
    """Return a scheme after a task has moved to a GPU, which sends tasks back."""
    after = np.array(scheme)
    after[arrival] = gpu
    moved = np.arange(len(scheme)) == arrival
    queues = operators.spt_queues(np.array(scheme), instance.solo)
    operators.send_back(np.array(scheme), moved, arrival, gpu, queues, instance.solo, usage, after)
    found: list[int] = after.tolist()
    return found


def test_similar_task_back() -> None:
    """Recovery sends the most similar task back."""
    time_s = [[10.0, 10.0], [10.5, 10.5], [50.0, 50.0], [1.0, 1.0]]
    instance = instance_from_tables(time_s, np.full((4, 2), 100.0), "2xT4")
    # Task 1 frees the 10 s that task 0 brings.
    assert after_recovery([0, 1, 1, 0], 0, 1, instance, instance.usage) == [1, 0, 1, 0]


def test_overload() -> None:
    """Recovery begins when a GPU is overloaded."""
    # All energies are less on the second GPU, where task 0 joins tasks 1 and 2: 70.5 s of 71.5 s in all.
    time_s = [[10.0, 10.0], [10.5, 10.5], [50.0, 50.0], [1.0, 1.0]]
    instance = instance_from_tables(time_s, [[100.0, 50.0]] * 4, "1xT4,1xA100")
    schemes = np.array([[0, 1, 1, 0]])
    moved = np.array([[True, False, False, False]])

    def for_energy(overload: float) -> list[int]:
        both = operators.priority_mutation(schemes, moved, instance.solo, instance.usage, False, overload)
        found: list[int] = both[0].tolist()
        return found

    assert for_energy(2.0) == [1, 1, 1, 0]
    assert for_energy(1.9) == [1, 0, 1, 0]
    assert schemes.tolist() == [[0, 1, 1, 0]]


def test_several_back() -> None:
    """Recovery sends several small tasks back for a long one."""
    time_s = [[30.0] * 2, [10.0] * 2, [10.0] * 2, [10.0] * 2, [90.0] * 2]
    instance = instance_from_tables(time_s, np.full((5, 2), 100.0), "2xT4")
    usage = np.stack((np.arange(5.0), np.zeros(5), np.zeros(5)), axis=1)[None]
    assert after_recovery([0, 1, 1, 1, 1], 0, 1, instance, usage) == [1, 0, 0, 0, 1]


def test_one_back() -> None:
    """Recovery sends one task back if it is as long as the arriving one."""
    # Of three equal tasks on the target one makes room; rounding must not send a second one.
    instance = instance_from_tables(np.full((5, 2), 0.1 + 0.2), np.full((5, 2), 100.0), "2xT4")
    assert after_recovery([0, 1, 1, 1, 0], 0, 1, instance, instance.usage) == [1, 0, 1, 1, 0]


def test_two_offspring(instance: Instance, rng: np.random.Generator) -> None:
    """Priority mutation makes an offspring for energy and one for JCT."""
    schemes = rng.integers(4, size=(10, 20))
    settings = replace(SETTINGS, mutation_rate=1.0, targets="static", overload=1e9)
    objectives = evaluate_schemes(operators.mutate(schemes, instance, settings, rng), instance)
    assert objectives.shape == (20, 2)
    np.testing.assert_allclose(objectives[:10, 0], instance.best_j.sum())
    assert (objectives[:10, 0] < objectives[10:, 0]).all()
