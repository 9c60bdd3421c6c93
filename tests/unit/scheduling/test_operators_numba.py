"""The compiled operators return the same bytes as their plain form, for all tasks, GPUs and settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import plain_operators as plain
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.scheduling import operators, operators_numba
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, make_instance, scheme_queues, sum_segments
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

VARIANTS = {
    "default": Settings(),
    "literal": Settings.literal(),
    "crowded": Settings(overload=0.7, mutation_rate=0.4),
    "static": Settings(targets="static", overload=1.0),
    "no recovery": Settings(recovery=False),
    "plain": Settings(initialisation="random", crossover="uniform", mutation="reset"),
}
CLUSTERS = ("2xT4,1xV100,1xA100", "1xA100,2xT4,1xV100,1xT4,1xA100", "12xT4", "1xT4")


FORMS = (operators.GeneticOperators, plain.PlainOperators)


def search_with(form: type, instance: Instance, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Schemes:
    monkeypatch.setattr("heshare.scheduling.genetic.GeneticOperators", form)
    return search(instance, settings, np.random.default_rng(5))


def half_fits(rng: np.random.Generator) -> Instance:
    """Return 24 tasks in equal pairs, of which a third does not fit the T4s."""
    costs = np.repeat(rng.uniform(1, 9, (2, 12, 2)), 2, axis=1)[:, :, [0, 0, 0, 1]]
    fits = np.ones((24, 4), dtype=bool)
    fits[:8, :3] = False
    return instance_from_tables(costs[0], costs[1], "3xT4,1xA100", fits)


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_search_returns_the_same_bytes_with_both(
    cluster: str, variant: str, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Cluster.parse(cluster)
    ready_s = np.arange(len(gpus)) * 70.0 if ready else None
    instance = make_instance(mixed_tasks(30), gpus, Toy(demand=DEMANDS), ready_s)
    settings = replace(VARIANTS[variant], generations=12, population=21)
    compiled, numpy = (search_with(form, instance, settings, monkeypatch) for form in FORMS)
    assert compiled.gpus.tobytes() == numpy.gpus.tobytes()
    assert compiled.objectives.tobytes() == numpy.objectives.tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
def test_search_returns_the_same_bytes_if_tasks_do_not_fit_or_are_equal(
    variant: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = half_fits(rng)
    settings = replace(VARIANTS[variant], generations=30, population=20)
    compiled, numpy = (search_with(form, instance, settings, monkeypatch) for form in FORMS)
    assert compiled.gpus.tobytes() == numpy.gpus.tobytes()
    assert instance.fits[np.arange(24), compiled.gpus].all()


def test_each_compiled_operator_equals_the_numpy_one(rng: np.random.Generator) -> None:
    instance = half_fits(rng)
    compiled, numpy = (form(instance, Settings()) for form in FORMS)
    schemes = operators.random_schemes(instance.fits, 40, rng)
    moved = rng.random(schemes.shape) < 0.3
    expected = plain.migration_targets(schemes, moved, scheme_queues(schemes, instance), instance, Settings())
    targets = operators_numba.load_aware_targets(schemes, moved, compiled._solo, compiled._by_kind)
    for goal in range(2):
        np.testing.assert_array_equal(targets[goal][moved], expected[goal])
        after = plain.migrate(schemes, moved, expected[goal], numpy.usage, instance, replace(Settings(), overload=1.0))
        migrated = np.empty_like(schemes)
        operators_numba.migrate(schemes, moved, targets[goal], compiled.usage, compiled._solo, 1.0, migrated)
        np.testing.assert_array_equal(migrated, after)
        assert (after != np.where(moved, targets[goal], schemes)).any(), "a task was sent back"
    costs = numpy.segments(schemes)
    assert compiled.segments(schemes).tobytes() == costs.tobytes()
    scores = plain.segment_scores(schemes, costs, instance, Settings())
    pairs = np.array([[0, 3], [7, 3]])
    some = operators_numba.segment_scores(schemes, costs, compiled._best, pairs)
    assert some[[0, 3, 7]].tobytes() == scores[[0, 3, 7]].tobytes()


def test_migrate_sends_one_task_back_if_it_is_as_long_as_the_arriving_one() -> None:
    # Of three equal tasks on the target one makes room; rounding must not send a second one.
    time_s = np.full((5, 2), 0.1 + 0.2)
    instance = instance_from_tables(time_s, np.full((5, 2), 100.0), "2xT4")
    schemes, moved = np.array([[0, 1, 1, 1, 0]]), np.array([[True] + [False] * 4])
    usage = operators.resource_usage(instance)
    after = plain.migrate(schemes, moved, np.array([1]), usage, instance, Settings(overload=1.0))
    assert after.tolist() == [[1, 0, 1, 1, 0]]


def test_compiled_segments_equal_a_loop_over_tasks(rng: np.random.Generator) -> None:
    instance = make_instance(mixed_tasks(9), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS))
    scheme = operators.random_schemes(instance.fits, 1, rng)
    objectives = sum_segments(operators.GeneticOperators(instance, Settings()).segments(scheme), 9)[0]
    energy_j, jct_s = 0.0, 0.0
    for gpu in range(2):
        now_s = 0.0
        for task in sorted(np.flatnonzero(scheme[0] == gpu), key=lambda task: instance.time_s[task, gpu]):
            now_s += instance.time_s[task, gpu]
            energy_j += instance.energy_j[task, gpu]
            jct_s += now_s
    np.testing.assert_allclose(objectives, [energy_j, jct_s / 9])
