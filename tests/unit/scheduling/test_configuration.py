"""Algorithm 1: MPS percentages, clocks, and the front over the clocks of the GPUs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.batch_model import EMPTY, BatchModel, unconfigured_batches
from heshare.scheduling.configuration import (
    BatchedQueues,
    clock_candidates,
    combine_clocks,
    costs_at_clocks,
    mps_percentages,
    split_into_batches,
    spt_queues,
)
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

SETTINGS = Settings()


def short_and_long(toy: Toy) -> tuple[Instance, BatchedQueues]:
    """Return a batch on a T4 of a task of 40 s and one of 4,000 s alone, which both need all of the GPU."""
    tasks = (Task(0, Workload("resnet50", 4), 10.0), Task(1, Workload("vgg16", 4), 1000.0))
    instance = make_instance(tasks, Cluster.parse("1xT4"), toy)
    return instance, BatchedQueues(
        unconfigured_batches(np.array([0]), np.array([[0, 1]])), np.array([0]), np.array([0])
    )


def one_by_one(instance: Instance, toy: Toy) -> BatchedQueues:
    queues = spt_queues(np.zeros((1, instance.n), dtype=int), instance)
    return split_into_batches(queues, BatchModel(instance, toy), replace(SETTINGS, batching="single"))


def test_own_or_batch() -> None:
    """MPS percentages minimise the own JCT or that of the batch."""
    toy = Toy()
    instance, split = short_and_long(toy)
    model = BatchModel(instance, toy)
    # The short task's own JCT is least at 100 % (80 s). The batch's sum is least at 10 %: 40 / 0.1 x 1.1 s for the
    # short task and 4,000 x 1.1 s for the long one, against 80 + 8,000 s at 100 %.
    assert mps_percentages(split, model, replace(SETTINGS, mps_goal="own")).tolist() == [[100, 100]]
    assert mps_percentages(split, model, SETTINGS).tolist()[0][0] == 10


def test_queue_goal() -> None:
    """MPS percentages for the queue count the tasks behind."""
    toy = Toy()
    tasks = (Task(0, Workload("resnet50", 4), 10.0), Task(1, Workload("vgg16", 4), 100.0))
    instance = make_instance(tasks, Cluster.parse("1xT4"), toy)
    split = BatchedQueues(unconfigured_batches(np.array([0]), np.array([[0, 1]])), np.array([0]), np.array([50]))
    model = BatchModel(instance, toy)
    # With a share of p: 40 (1 + p) / p and 400 (1 + p) s. Their sum is least at 30 %, the later end at 10 %.
    assert mps_percentages(split, model, SETTINGS)[0, 0] == 30
    assert mps_percentages(split, model, replace(SETTINGS, mps_goal="queue"))[0, 0] == 10


def test_both_goals() -> None:
    """MPS percentages for both goals minimise energy times JCTs."""
    toy = Toy(demand=DEMANDS)
    instance = make_instance(mixed_tasks(3), Cluster.parse("1xT4"), toy)
    model = BatchModel(instance, toy)
    batches = unconfigured_batches(np.array([0]), np.array([[0, 1]]))
    scores = []
    for mps_pct in SETTINGS.mps_pcts:
        batches.mps_pct[0, 0] = mps_pct
        run = model.execute(batches)
        scores.append(run.energy_j[0] * run.time_s.sum())
    assert len(set(scores)) > 1

    split = BatchedQueues(unconfigured_batches(np.array([0]), np.array([[0, 1]])), np.array([0]), np.array([0]))
    chosen = mps_percentages(split, model, replace(SETTINGS, mps_goal="both"))
    assert chosen[0, 0] == SETTINGS.mps_pcts[int(np.argmin(scores))]


def test_alone() -> None:
    """MPS percentages of a task alone is 100."""
    toy = Toy(demand=DEMANDS)
    instance = make_instance(mixed_tasks(5), Cluster.parse("1xT4"), toy)
    split = one_by_one(instance, toy)
    assert (mps_percentages(split, BatchModel(instance, toy), SETTINGS) == 100).all()


def test_clock_candidates() -> None:
    """Clock candidates are clocks of the GPU with both ends."""
    instance = make_instance(mixed_tasks(3), Cluster.parse("1xT4,1xV100,1xA100"), Toy())
    clocks = clock_candidates(instance, SETTINGS)
    assert clocks.shape == (3, 12)
    for row, gpu in zip(clocks, instance.kinds, strict=True):
        assert set(row.tolist()) <= set(gpu.clocks_mhz)
        assert (row[0], row[-1]) == (gpu.clocks_mhz[0], gpu.max_mhz)
        assert (np.diff(row) > 0).all()
    top = clock_candidates(instance, replace(SETTINGS, clocks=1))[:, 0]
    assert top.tolist() == [gpu.max_mhz for gpu in instance.kinds]


def test_costs_at_clocks() -> None:
    """Costs at clocks of two tasks at half and full clock."""
    toy = Toy()
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    instance = make_instance(tasks, Cluster.parse("1xT4"), toy)
    split = one_by_one(instance, toy)
    energy_j, jct_s = costs_at_clocks(split, np.array([[795, 1590]]), BatchModel(instance, toy), SETTINGS)
    idle, tdp = instance.kinds[0].idle_w, instance.kinds[0].tdp_w
    np.testing.assert_allclose(jct_s, [[2 * (100 + 400), 100 + 400]])
    np.testing.assert_allclose(energy_j, [[800 * (idle + (tdp - idle) / 8), 400 * tdp]])


def test_literal_or_piecewise() -> None:
    """Costs at clocks follow Eq. 13 or piecewise execution."""
    toy = Toy()
    instance, split = short_and_long(toy)
    clocks = np.array([[1590]])
    _, piecewise_s = costs_at_clocks(split, clocks, BatchModel(instance, toy), SETTINGS)
    _, literal_s = costs_at_clocks(split, clocks, BatchModel(instance, toy), replace(SETTINGS, piecewise=False))
    np.testing.assert_allclose(literal_s, [[80 + 8000]])
    np.testing.assert_allclose(piecewise_s, [[80 + 4040]])


def random_curves(seed: int, queues: int = 4, clocks: int = 5) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(1, 9, (queues, clocks)), rng.uniform(1, 9, (queues, clocks))


@pytest.mark.parametrize("seed", range(5))
def test_combine_clocks(seed: int) -> None:
    """Combining clocks gives the front of all combinations."""
    (energy_j, jct_s), queue_of_gpu = random_curves(seed), np.array([2, EMPTY, 0, 1, 2])
    points, clock_index = combine_clocks(queue_of_gpu, energy_j, jct_s, replace(SETTINGS, merge=10_000))
    used = np.flatnonzero(queue_of_gpu != EMPTY)
    combinations = np.array(
        [
            [energy_j[queue_of_gpu[used], choice].sum(), jct_s[queue_of_gpu[used], choice].sum()]
            for choice in product(range(5), repeat=len(used))
        ]
    )
    front = combinations[non_dominated(combinations)]
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], front[np.argsort(front[:, 0])])
    recomputed = [
        [energy_j[queue_of_gpu[used], row[used]].sum(), jct_s[queue_of_gpu[used], row[used]].sum()]
        for row in clock_index
    ]
    np.testing.assert_allclose(points, recomputed)


def test_bounded_plans() -> None:
    """Combine clocks bounds partial plans and keeps both ends."""
    (energy_j, jct_s), queue_of_gpu = random_curves(1, queues=8, clocks=12), np.arange(8)
    exact, _ = combine_clocks(queue_of_gpu, energy_j, jct_s, replace(SETTINGS, merge=100_000))
    bounded, _ = combine_clocks(queue_of_gpu, energy_j, jct_s, replace(SETTINGS, merge=10))
    assert len(bounded) <= 10 < len(exact)
    np.testing.assert_allclose(bounded.min(axis=0), exact.min(axis=0))


def test_one_clock_step() -> None:
    """With one clock for the plan all GPUs take the same step."""
    (energy_j, jct_s), queue_of_gpu = random_curves(2), np.array([0, 1, 3])
    points, clock_index = combine_clocks(queue_of_gpu, energy_j, jct_s, replace(SETTINGS, clock_scope="plan"))
    assert (clock_index == clock_index[:, :1]).all()
    np.testing.assert_allclose(points[:, 0], energy_j[queue_of_gpu][:, clock_index[:, 0]].sum(axis=0))
    per_gpu, _ = combine_clocks(queue_of_gpu, energy_j, jct_s, SETTINGS)
    assert not non_dominated(np.concatenate((per_gpu, points)))[len(per_gpu) :].any()
