"""The compiled operators return what their plain form returns, for all tasks, GPUs and settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import plain_operators as plain
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.scheduling import genetic, operators
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, make_instance, segment_costs
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


def searched(instance: Instance, settings: Settings) -> Schemes:
    return search(instance, settings, np.random.default_rng(5))


def searched_plainly(instance: Instance, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Schemes:
    with monkeypatch.context() as patched:
        patched.setattr(genetic, "crossover", plain.crossover)
        patched.setattr(genetic, "mutate", plain.mutate)
        patched.setattr(genetic, "segment_costs", lambda schemes, solo: plain.segment_costs(schemes, instance))
        return searched(instance, settings)


def half_fits(rng: np.random.Generator) -> Instance:
    """Return 24 tasks in equal pairs, of which a third does not fit the T4s."""
    costs = np.repeat(rng.uniform(1, 9, (2, 12, 2)), 2, axis=1)[:, :, [0, 0, 0, 1]]
    fits = np.ones((24, 4), dtype=bool)
    fits[:8, :3] = False
    return instance_from_tables(costs[0], costs[1], "3xT4,1xA100", fits)


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_search(cluster: str, variant: str, ready: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search returns the same bytes with both."""
    gpus = Cluster.parse(cluster)
    ready_s = np.arange(len(gpus)) * 70.0 if ready else None
    instance = make_instance(mixed_tasks(30), gpus, Toy(demand=DEMANDS), ready_s)
    settings = replace(VARIANTS[variant], generations=12, population=21)
    compiled, numpy = searched(instance, settings), searched_plainly(instance, settings, monkeypatch)
    np.testing.assert_array_equal(compiled.gpus, numpy.gpus)
    np.testing.assert_allclose(compiled.objectives, numpy.objectives, rtol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_search_with_ties(variant: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both searches are the same if tasks do not fit or are equal."""
    instance = half_fits(rng)
    settings = replace(VARIANTS[variant], generations=30, population=20)
    compiled, numpy = searched(instance, settings), searched_plainly(instance, settings, monkeypatch)
    np.testing.assert_array_equal(compiled.gpus, numpy.gpus)
    assert instance.fits[np.arange(24), compiled.gpus].all()


def test_each_operator(rng: np.random.Generator) -> None:
    """Each compiled operator equals the plain one."""
    instance, settings = half_fits(rng), Settings(overload=1.0)
    schemes = operators.random_schemes(instance.fits, 40, rng)
    costs = segment_costs(schemes, instance.solo)
    np.testing.assert_allclose(costs, plain.segment_costs(schemes, instance), rtol=1e-12)

    scores = plain.segment_scores(schemes, costs, instance, settings)
    for row in range(40):
        own = costs[row].copy()
        operators.normalise_subsets(schemes[row], own, instance.solo)
        np.testing.assert_allclose(own, scores[row], rtol=1e-12)

    moved = rng.random(schemes.shape) < 0.3
    queues = plain.scheme_queues(schemes, instance)
    expected = plain.migration_targets(schemes, moved, queues, instance, settings)
    offspring = operators.priority_mutation(schemes, moved, instance.solo, instance.usage, True, 1.0)
    without = operators.priority_mutation(schemes, moved, instance.solo, instance.usage, True, np.inf)
    for goal in range(2):
        rows = slice(40 * goal, 40 * goal + 40)
        np.testing.assert_array_equal(without[rows][moved], expected[goal])
        after = plain.migrate(schemes, moved, expected[goal], instance.usage, instance, settings)
        np.testing.assert_array_equal(offspring[rows], after)
        assert (after != without[rows]).any(), "a task was sent back"
