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


def test_literal(toy: Toy) -> None:
    """By Eq. 13 each task runs as if all stayed."""
    run = two_on_a_t4(toy).execute(pair())
    np.testing.assert_allclose(run.time_s, [[200, 600]])
    np.testing.assert_allclose(run.end_s, [600])
    np.testing.assert_allclose(run.energy_j, [600 * 70])
    np.testing.assert_allclose(run.jct_s(np.array([3])), [200 + 600 + 3 * 600])


def test_piecewise(toy: Toy) -> None:
    """Piecewise execution speeds the last task up."""
    run = two_on_a_t4(toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[200, 400]])  # 200 s shared, then 200 s of work alone
    np.testing.assert_allclose(run.end_s, [400])
    np.testing.assert_allclose(run.energy_j, [400 * 70])


def test_piecewise_energy() -> None:
    """Piecewise execution adds the energy of each piece."""
    toy = Toy(demand={"resnet50": 0.5, "vgg16": 0.25})
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    cluster = Cluster.parse("1xT4")
    idle, tdp = cluster.gpus[0].idle_w, cluster.gpus[0].tdp_w
    run = BatchModel(make_instance(tasks, cluster, toy), toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[100, 300]])
    np.testing.assert_allclose(run.energy_j, [100 * (idle + 0.75 * (tdp - idle)) + 200 * (idle + 0.25 * (tdp - idle))])


def test_piecewise_is_no_slower() -> None:
    """Piecewise execution is never slower and has the same first end."""
    toy = Toy(demand=DEMANDS)
    model = BatchModel(make_instance(mixed_tasks(24), Cluster.parse("1xV100"), toy), toy)
    batches = unconfigured_batches(np.zeros(6, dtype=int), np.arange(24).reshape(6, 4))
    literal, piecewise = model.execute(batches), model.execute(batches, piecewise=True)
    assert (piecewise.time_s <= literal.time_s * (1 + 1e-12)).all()
    np.testing.assert_allclose(piecewise.time_s.min(axis=1), literal.time_s.min(axis=1))
    np.testing.assert_allclose(piecewise.time_s.max(axis=1), piecewise.end_s)


def test_percentages_and_clocks() -> None:
    """A batch passes percentages and clocks to the predictor."""
    toy = Toy(demand={"resnet50": 1.0, "vgg16": 1.0})
    model = two_on_a_t4(toy)
    batches = Batches(np.array([0]), np.array([[1, 0]]), np.array([[25, 50]]), np.array([795]))
    run = model.execute(batches)
    relative_clock = 795 / 1590
    # vgg16 gets 25 % of its demand, resnet50 50 %, which fits; half the clock.
    np.testing.assert_allclose(run.time_s, [[300 / 0.25 / relative_clock, 100 / 0.5 / relative_clock]])


def test_batch_sizes() -> None:
    """Batches of different sizes are executed as each alone."""
    toy = Toy(demand=DEMANDS)
    model = BatchModel(make_instance(mixed_tasks(9), Cluster.parse("1xT4,1xA100"), toy), toy)
    batches = unconfigured_batches(np.array([0, 1, 0]), np.array([[4, 2, 7], [1, EMPTY, EMPTY], [3, 8, EMPTY]]))
    together = model.execute(batches, piecewise=True)
    for row in range(3):
        size = int(batches.members[row].sum())
        alone = model.execute(unconfigured_batches(batches.kind[[row]], batches.tasks[[row], :size]), piecewise=True)
        np.testing.assert_array_equal(alone.time_s[0], together.time_s[row, :size])
        assert (together.time_s[row, size:] == 0).all()


def test_asked_once() -> None:
    """Each set is asked once in any order."""
    toy = Toy()
    tasks = tuple(Task(i, Workload("resnet50" if i % 2 else "vgg16", 4), 10.0 + i) for i in range(4))
    model = BatchModel(make_instance(tasks, Cluster.parse("1xT4"), toy), toy)
    before = toy.calls
    model.execute(unconfigured_batches(np.zeros(4, dtype=int), np.array([[0, 1], [1, 0], [2, 3], [3, 2]])))
    assert toy.calls - before == 2  # one set of two residents


@pytest.fixture
def toy() -> Toy:
    return Toy()


def test_clocks_of_plans() -> None:
    """Batches of plans have the clocks of the plans."""
    toy, cluster, tasks = Toy(), Cluster.parse("1xT4"), tuple(mixed_tasks(2))
    lowest_mhz = cluster.gpus[0].clocks_mhz[0]
    plan = Plan(cluster, tasks, ((Batch((0,), (100,), None), Batch((1,), (100,), lowest_mhz)),), 0.0, 0.0)
    batches = BatchModel(make_instance(tasks, cluster, toy), toy).batches_of([plan])
    assert batches.sm_mhz.tolist() == [DEFAULT_CLOCK, lowest_mhz]
