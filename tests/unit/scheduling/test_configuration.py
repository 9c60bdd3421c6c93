"""MPS percentages, clocks, and how the clocks of the GPUs are combined."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.batching import Split, distinct_lines, split_all, split_for_memory
from heshare.scheduling.configuration import Curves, clock_candidates, clock_curves, combine, mps_percentages
from heshare.scheduling.objectives import Instance, instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.settings import Settings
from heshare.scheduling.sharing import NOBODY, Sharing, batches
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

SETTINGS = Settings()


def short_and_long(toy: Toy) -> tuple[Instance, Split]:
    """On a T4, a task of 40 s and one of 4,000 s alone, both wanting all of it, in one batch."""
    tasks = (Task(0, Workload("resnet50", 4), 10.0), Task(1, Workload("vgg16", 4), 1000.0))
    world = instance(tasks, Cluster.parse("1xT4"), toy)
    return world, Split(batches(np.array([0]), np.array([[0, 1]])), np.array([0]), np.array([0]))


def test_goals_differ_as_they_say() -> None:
    toy = Toy()
    world, split = short_and_long(toy)
    sharing = Sharing(world, toy)
    # Its own JCT is least at 100 % (80 s); the batch's sum is least when the short one gets out of the long one's way:
    # at 10 % it runs 40 / 0.1 x 1.1 s and the long one 4,000 x 1.1 s, against 80 + 8,000 s.
    assert mps_percentages(split, sharing, replace(SETTINGS, mps_goal="own")).tolist() == [[100, 100]]
    assert mps_percentages(split, sharing, SETTINGS).tolist()[0][0] == 10


def test_the_queue_counts_those_who_wait() -> None:
    toy = Toy()
    tasks = (Task(0, Workload("resnet50", 4), 10.0), Task(1, Workload("vgg16", 4), 100.0))
    world = instance(tasks, Cluster.parse("1xT4"), toy)
    pair = Split(batches(np.array([0]), np.array([[0, 1]])), np.array([0]), np.array([50]))
    sharing = Sharing(world, toy)
    # With a share of p: 40 (1 + p) / p and 400 (1 + p) s. Their sum is least at 30 %, the later end at 10 %.
    assert mps_percentages(pair, sharing, SETTINGS)[0, 0] == 30
    assert mps_percentages(pair, sharing, replace(SETTINGS, mps_goal="queue"))[0, 0] == 10


def replace_pct(split: Split, pct: np.ndarray) -> object:
    return replace(split.batches, mps_pct=pct)


def test_coordinate_descent_never_makes_a_batch_worse() -> None:
    toy = Toy(demand=DEMANDS)
    world = instance(mixed_tasks(18), Cluster.parse("1xA100"), toy)
    split = split_for_memory(distinct_lines(np.zeros((1, 18), dtype=int), world)[0], world)
    sharing = Sharing(world, toy)
    pct = mps_percentages(split, sharing, SETTINGS)
    before, after = sharing.execute(split.batches), sharing.execute(replace_pct(split, pct))
    assert (after.time_s.sum(axis=1) < before.time_s.sum(axis=1)).all()
    assert set(np.unique(pct)) <= set(SETTINGS.mps_pcts)


def test_a_task_alone_keeps_all_of_the_gpu() -> None:
    toy = Toy(demand=DEMANDS)
    world = instance(mixed_tasks(5), Cluster.parse("1xT4"), toy)
    split = split_all(distinct_lines(np.zeros((1, 5), dtype=int), world)[0])
    assert (mps_percentages(split, Sharing(world, toy), SETTINGS) == 100).all()


def test_clock_candidates_are_on_each_grid_with_both_ends() -> None:
    world = instance(mixed_tasks(3), Cluster.parse("1xT4,1xV100,1xA100"), Toy())
    clocks = clock_candidates(world, SETTINGS)
    assert clocks.shape == (3, 12)
    for row, gpu in zip(clocks, world.kinds, strict=True):
        assert set(row.tolist()) <= set(gpu.clocks_mhz)
        assert (row[0], row[-1]) == (gpu.clocks_mhz[0], gpu.max_mhz)
        assert (np.diff(row) > 0).all()
    assert clock_candidates(world, replace(SETTINGS, clocks=1))[:, 0].tolist() == [gpu.max_mhz for gpu in world.kinds]


def test_curves_by_hand() -> None:
    toy = Toy()
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    world = instance(tasks, Cluster.parse("1xT4"), toy)
    split = split_all(distinct_lines(np.zeros((1, 2), dtype=int), world)[0])
    curves = clock_curves(split, split.batches.mps_pct, np.array([[795, 1590]]), Sharing(world, toy), SETTINGS)
    idle, tdp = world.kinds[0].idle_w, world.kinds[0].tdp_w
    np.testing.assert_allclose(curves.jct_s, [[2 * (100 + 400), 100 + 400]])
    np.testing.assert_allclose(curves.energy_j, [[800 * (idle + (tdp - idle) / 8), 400 * tdp]])


def test_eq_13_literally_or_piecewise() -> None:
    toy = Toy()
    world, split = short_and_long(toy)
    pct, clocks = split.batches.mps_pct, np.array([[1590]])
    real = clock_curves(split, pct, clocks, Sharing(world, toy), SETTINGS)
    literal = clock_curves(split, pct, clocks, Sharing(world, toy), replace(SETTINGS, piecewise=False))
    np.testing.assert_allclose(literal.jct_s, [[80 + 8000]])
    np.testing.assert_allclose(real.jct_s, [[80 + 4040]])


def random_curves(seed: int, lines: int = 4, clocks: int = 5) -> Curves:
    rng = np.random.default_rng(seed)
    return Curves(rng.uniform(1, 9, (lines, clocks)), rng.uniform(1, 9, (lines, clocks)))


@pytest.mark.parametrize("seed", range(5))
def test_combining_finds_exactly_the_front_of_all_combinations(seed: int) -> None:
    curves, which = random_curves(seed), np.array([2, NOBODY, 0, 1, 2])
    points, steps = combine(which, curves, replace(SETTINGS, merge=10_000))
    used = np.flatnonzero(which != NOBODY)
    every = np.array(
        [
            [curves.energy_j[which[used], choice].sum(), curves.jct_s[which[used], choice].sum()]
            for choice in product(range(5), repeat=len(used))
        ]
    )
    best = every[non_dominated(every)]
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], best[np.argsort(best[:, 0])])
    again = [
        [curves.energy_j[which[used], step[used]].sum(), curves.jct_s[which[used], step[used]].sum()] for step in steps
    ]
    np.testing.assert_allclose(points, again)


def test_partial_plans_are_bounded_and_keep_the_ends() -> None:
    curves, which = random_curves(1, lines=8, clocks=12), np.arange(8)
    exact, _ = combine(which, curves, replace(SETTINGS, merge=100_000))
    bounded, _ = combine(which, curves, replace(SETTINGS, merge=10))
    assert len(bounded) <= 10 < len(exact)
    np.testing.assert_allclose(bounded.min(axis=0), exact.min(axis=0))


def test_one_step_for_all_gpus_is_the_literal_reading() -> None:
    curves, which = random_curves(2), np.array([0, 1, 3])
    points, steps = combine(which, curves, replace(SETTINGS, clock_scope="plan"))
    assert (steps == steps[:, :1]).all()
    np.testing.assert_allclose(points[:, 0], curves.energy_j[which][:, steps[:, 0]].sum(axis=0))
    free, _ = combine(which, curves, SETTINGS)
    assert not non_dominated(np.concatenate((free, points)))[len(free) :].any()
