"""The compiled operators against their numpy forms: the same bytes, whatever the tasks, the GPUs and the reading."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks, table

from heshare.files import root
from heshare.scheduling import engines, kernels, operators, selection
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, instance, queues, totals
from heshare.scheduling.pareto import crowding, non_dominated, ranks, significant
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

READINGS = {
    "default": Settings(),
    "literal": Settings.literal(),
    "crowded": Settings(overload=0.7, mutation_rate=0.4),
    "static": Settings(targets="static", overload=1.0),
    "no recovery": Settings(recovery=False),
    "plain": Settings(initialisation="random", crossover="uniform", mutation="reset"),
}
CLUSTERS = ("2xT4,1xV100,1xA100", "1xA100,2xT4,1xV100,1xT4,1xA100", "12xT4", "1xT4")


def half_fits(rng: np.random.Generator) -> Instance:
    """24 tasks in equal pairs; a third of them does not fit the T4s."""
    cost = np.repeat(rng.uniform(1, 9, (2, 12, 2)), 2, axis=1)[:, :, [0, 0, 0, 1]]
    fits = np.ones((24, 4), dtype=bool)
    fits[:8, :3] = False
    return table(cost[0], cost[1], "3xT4,1xA100", fits)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("reading", READINGS)
def test_both_forms_find_the_same_front(cluster: str, reading: str) -> None:
    world = instance(mixed_tasks(30), Cluster.parse(cluster), Toy(demand=DEMANDS))
    settings = replace(READINGS[reading], generations=12, population=21)
    one, other = (search(world, settings, np.random.default_rng(5), compiled=form) for form in (True, False))
    assert one.gpus.tobytes() == other.gpus.tobytes()
    assert one.objectives.tobytes() == other.objectives.tobytes()


@pytest.mark.parametrize("reading", READINGS)
def test_both_forms_agree_where_tasks_do_not_fit_and_are_equal(reading: str, rng: np.random.Generator) -> None:
    world = half_fits(rng)
    settings = replace(READINGS[reading], generations=30, population=20)
    one, other = (search(world, settings, np.random.default_rng(5), compiled=form) for form in (True, False))
    assert one.gpus.tobytes() == other.gpus.tobytes()
    assert world.fits[np.arange(24), one.gpus].all()


def test_each_operator_alone(rng: np.random.Generator) -> None:
    world = half_fits(rng)
    fast, slow = engines.Compiled(world, Settings()), engines.Readable(world, Settings())
    schemes = operators.anywhere(world.fits, 40, rng)
    moved = rng.random(schemes.shape) < 0.3
    expected = operators.targets(schemes, moved, queues(schemes, world), world, Settings())
    goes = kernels.load_aware_targets(schemes, moved, fast._costs, fast._by_kind)
    for goal in range(2):
        np.testing.assert_array_equal(goes[goal][moved], expected[goal])
        after = operators.recover(schemes, moved, expected[goal], slow.use, world, replace(Settings(), overload=1.0))
        np.testing.assert_array_equal(kernels.recover(schemes, moved, goes[goal], fast.use, fast._costs, 1.0), after)
        assert (after != np.where(moved, goes[goal], schemes)).any(), "somebody was sent back"
    parts = slow.segments(schemes)
    assert fast.segments(schemes).tobytes() == parts.tobytes()
    scores = operators.segment_scores(schemes, parts, world, Settings())
    assert kernels.segment_scores(schemes, parts, fast._best).tobytes() == scores.tobytes()


def test_selection_with_ties_doubles_and_flat_fronts(rng: np.random.Generator) -> None:
    for points in (
        rng.integers(1, 6, (60, 2)),
        np.ones((9, 2)),
        rng.random((80, 2)),
        np.array([[1, 2], [1, 2], [1, 1]]),
    ):
        objectives = points.astype(float)
        rounded = significant(objectives)
        np.testing.assert_array_equal(selection.non_dominated(rounded), non_dominated(objectives))
        np.testing.assert_array_equal(selection._ranks(rounded), ranks(objectives))
        rank = ranks(objectives)
        np.testing.assert_array_equal(selection._crowding(objectives, rank), crowding(objectives, rank))
        for one, other in zip(
            selection.select(objectives, rounded, len(points) // 2),
            operators.environmental_selection(objectives, len(points) // 2),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


def test_a_task_as_long_as_the_newcomer_frees_enough() -> None:
    # Three equal tasks on the target: one of them makes room, and no rounding asks for a second.
    time_s = np.full((5, 2), 0.1 + 0.2)
    world = table(time_s, np.full((5, 2), 100.0), "2xT4")
    schemes, moved = np.array([[0, 1, 1, 1, 0]]), np.array([[True] + [False] * 4])
    use = operators.resource_use(world)
    after = operators.recover(schemes, moved, np.array([1]), use, world, Settings(overload=1.0))
    assert after.tolist() == [[1, 0, 1, 1, 0]]


def test_the_front_is_the_same_with_numba_switched_off() -> None:
    code = (
        "import numpy as np; from toy_predictor import *; from heshare.scheduling.objectives import instance;"
        "from heshare.scheduling.genetic import search; from heshare.scheduling.settings import Settings;"
        "from heshare.scheduling.engines import engine; from heshare.world.cluster import Cluster;"
        "world = instance(mixed_tasks(20), Cluster.parse('2xT4,1xA100'), Toy(demand=DEMANDS));"
        "print(type(engine(world, Settings())).__name__);"
        "found = search(world, Settings(generations=8), np.random.default_rng(1));"
        "print(found.gpus.tobytes().hex(), found.objectives.tobytes().hex())"
    )
    printed = []
    for off in ("0", "1"):
        paths = os.pathsep.join((str(root()), str(root() / "tests" / "property")))
        environment = {**os.environ, "NUMBA_DISABLE_JIT": off, "PYTHONPATH": paths}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        printed.append(done.stdout.split())
    assert [lines[0] for lines in printed] == ["Compiled", "Readable"]
    assert printed[0][1:] == printed[1][1:]


def test_the_objectives_are_those_of_the_model(rng: np.random.Generator) -> None:
    world = instance(mixed_tasks(9), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS))
    scheme = operators.anywhere(world.fits, 1, rng)
    found = totals(engines.Compiled(world, Settings()).segments(scheme), 9)[0]
    energy_j, jct_s = 0.0, 0.0
    for gpu in range(2):
        clock_s = 0.0
        for task in sorted(np.flatnonzero(scheme[0] == gpu), key=lambda one: world.time_s[one, gpu]):
            clock_s += world.time_s[task, gpu]
            energy_j += world.energy_j[task, gpu]
            jct_s += clock_s
    np.testing.assert_allclose(found, [energy_j, jct_s / 9])
