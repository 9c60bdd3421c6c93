"""The batch model: Eq. 13 literally and piecewise execution, and the cache of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel, unconfigured_batches
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Batch, Plan
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def two_on_a_t4(toy: Toy) -> BatchModel:
    """Return two tasks that each need all of a T4: 100 s and 300 s alone, twice as long together."""
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    cluster = Cluster.parse("1xT4")
    return BatchModel(make_instance(tasks, cluster, toy), toy)


def pair() -> Batches:
    return unconfigured_batches(np.array([0]), np.array([[0, 1]]))


def test_execute_literally_runs_each_task_as_if_all_stayed(toy: Toy) -> None:
    run = two_on_a_t4(toy).execute(pair())
    np.testing.assert_allclose(run.time_s, [[200, 600]])
    np.testing.assert_allclose(run.end_s, [600])
    np.testing.assert_allclose(run.energy_j, [600 * 70])
    np.testing.assert_allclose(run.jct_s(np.array([3])), [200 + 600 + 3 * 600])


def test_execute_piecewise_speeds_the_last_task_up(toy: Toy) -> None:
    run = two_on_a_t4(toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[200, 400]])  # 200 s shared, then 200 s of work alone
    np.testing.assert_allclose(run.end_s, [400])
    np.testing.assert_allclose(run.energy_j, [400 * 70])


def test_execute_piecewise_adds_the_energy_of_each_piece() -> None:
    toy = Toy(demand={"resnet50": 0.5, "vgg16": 0.25})
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    cluster = Cluster.parse("1xT4")
    idle, tdp = cluster.gpus[0].idle_w, cluster.gpus[0].tdp_w
    run = BatchModel(make_instance(tasks, cluster, toy), toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[100, 300]])
    np.testing.assert_allclose(run.energy_j, [100 * (idle + 0.75 * (tdp - idle)) + 200 * (idle + 0.25 * (tdp - idle))])


def test_execute_piecewise_is_never_slower_and_has_the_same_first_end() -> None:
    toy = Toy(demand=DEMANDS)
    model = BatchModel(make_instance(mixed_tasks(24), Cluster.parse("1xV100"), toy), toy)
    batches = unconfigured_batches(np.zeros(6, dtype=int), np.arange(24).reshape(6, 4))
    literal, piecewise = model.execute(batches), model.execute(batches, piecewise=True)
    assert (piecewise.time_s <= literal.time_s * (1 + 1e-12)).all()
    np.testing.assert_allclose(piecewise.time_s.min(axis=1), literal.time_s.min(axis=1))
    np.testing.assert_allclose(piecewise.time_s.max(axis=1), piecewise.end_s)


def test_execute_passes_percentages_and_clocks_to_the_predictor() -> None:
    toy = Toy(demand={"resnet50": 1.0, "vgg16": 1.0})
    model = two_on_a_t4(toy)
    batches = Batches(np.array([0]), np.array([[1, 0]]), np.array([[25, 50]]), np.array([795]))
    run = model.execute(batches)
    relative_clock = 795 / 1590
    # vgg16 gets 25 % of its demand, resnet50 50 %, which fits; half the clock.
    np.testing.assert_allclose(run.time_s, [[300 / 0.25 / relative_clock, 100 / 0.5 / relative_clock]])


def test_execute_batches_of_different_sizes() -> None:
    toy = Toy(demand=DEMANDS)
    model = BatchModel(make_instance(mixed_tasks(9), Cluster.parse("1xT4,1xA100"), toy), toy)
    batches = unconfigured_batches(np.array([0, 1, 0]), np.array([[4, 2, 7], [1, EMPTY, EMPTY], [3, 8, EMPTY]]))
    together = model.execute(batches, piecewise=True)
    for row in range(3):
        size = int(batches.members[row].sum())
        alone = model.execute(unconfigured_batches(batches.kind[[row]], batches.tasks[[row], :size]), piecewise=True)
        np.testing.assert_array_equal(alone.time_s[0], together.time_s[row, :size])
        assert (together.time_s[row, size:] == 0).all()


def test_each_set_is_asked_once_in_any_order() -> None:
    toy = Toy()
    tasks = tuple(Task(i, Workload("resnet50" if i % 2 else "vgg16", 4), 10.0 + i) for i in range(4))
    model = BatchModel(make_instance(tasks, Cluster.parse("1xT4"), toy), toy)
    before = toy.calls
    model.execute(unconfigured_batches(np.zeros(4, dtype=int), np.array([[0, 1], [1, 0], [2, 3], [3, 2]])))
    assert toy.calls - before == 2  # one set of two residents


def test_a_batch_runs_alike_alone_and_among_many() -> None:
    toy = Toy(demand=DEMANDS)
    model = BatchModel(make_instance(mixed_tasks(9), Cluster.parse("1xA100"), toy), toy)
    mps_pct = np.stack(np.meshgrid(*[np.arange(10, 101, 10)] * 4), axis=-1).reshape(-1, 4)
    batches = Batches(
        np.zeros(len(mps_pct), dtype=int),
        np.tile(np.arange(4), (len(mps_pct), 1)),
        mps_pct,
        np.zeros(len(mps_pct), int),
    )
    first = model.execute(batches)
    second = model.execute(batches.take(np.arange(0, len(mps_pct), 97)))
    np.testing.assert_array_equal(first.time_s[::97], second.time_s)


@pytest.fixture
def toy() -> Toy:
    return Toy()


def test_batches_of_plans_have_the_clocks_of_the_plans() -> None:
    toy, cluster, tasks = Toy(), Cluster.parse("1xT4"), tuple(mixed_tasks(2))
    lowest_mhz = cluster.gpus[0].clocks_mhz[0]
    plan = Plan(cluster, tasks, ((Batch((0,), (100,), None), Batch((1,), (100,), lowest_mhz)),), 0.0, 0.0)
    batches = BatchModel(make_instance(tasks, cluster, toy), toy).batches_of([plan])
    assert batches.sm_mhz.tolist() == [DEFAULT_CLOCK, lowest_mhz]
