"""How a batch runs: Eq. 13 literally, and with departures."""

from __future__ import annotations

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.objectives import instance
from heshare.scheduling.sharing import NOBODY, Batches, Sharing, batches
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def two_on_a_t4(toy: Toy) -> Sharing:
    """Two tasks that each want all of a T4: 100 s and 300 s alone, twice as slow together."""
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    cluster = Cluster.parse("1xT4")
    return Sharing(instance(tasks, cluster, toy), toy)


def pair() -> Batches:
    return batches(np.array([0]), np.array([[0, 1]]))


def test_together_everybody_runs_as_if_all_stayed(toy: Toy) -> None:
    run = two_on_a_t4(toy).execute(pair())
    np.testing.assert_allclose(run.time_s, [[200, 600]])
    np.testing.assert_allclose(run.end_s, [600])
    np.testing.assert_allclose(run.energy_j, [600 * 70])
    np.testing.assert_allclose(run.jct_s(np.array([3])), [200 + 600 + 3 * 600])


def test_piecewise_the_last_one_speeds_up(toy: Toy) -> None:
    run = two_on_a_t4(toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[200, 400]])  # 200 s shared, then 200 s of work alone
    np.testing.assert_allclose(run.end_s, [400])
    np.testing.assert_allclose(run.energy_j, [400 * 70])


def test_piecewise_energy_follows_the_power_of_each_part() -> None:
    toy = Toy(demand={"resnet50": 0.5, "vgg16": 0.25})
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("vgg16", 4), 75.0))
    cluster = Cluster.parse("1xT4")
    idle, tdp = cluster.gpus[0].idle_w, cluster.gpus[0].tdp_w
    run = Sharing(instance(tasks, cluster, toy), toy).execute(pair(), piecewise=True)
    np.testing.assert_allclose(run.time_s, [[100, 300]])
    np.testing.assert_allclose(run.energy_j, [100 * (idle + 0.75 * (tdp - idle)) + 200 * (idle + 0.25 * (tdp - idle))])


def test_equal_tasks_end_together(toy: Toy) -> None:
    tasks = (Task(0, Workload("resnet50", 4), 25.0), Task(1, Workload("resnet50", 4), 25.0))
    sharing = Sharing(instance(tasks, Cluster.parse("1xT4"), toy), toy)
    for piecewise in (False, True):
        np.testing.assert_allclose(sharing.execute(pair(), piecewise=piecewise).time_s, [[200, 200]])


def test_alone_both_models_agree(toy: Toy) -> None:
    sharing = two_on_a_t4(toy)
    one = batches(np.array([0, 0]), np.array([[0], [1]]))
    for piecewise in (False, True):
        np.testing.assert_allclose(sharing.execute(one, piecewise=piecewise).end_s, [100, 300])


def test_piecewise_is_never_slower_and_the_first_end_is_the_same() -> None:
    toy = Toy(demand=DEMANDS)
    sharing = Sharing(instance(mixed_tasks(24), Cluster.parse("1xV100"), toy), toy)
    asked = batches(np.zeros(6, dtype=int), np.arange(24).reshape(6, 4))
    literal, real = sharing.execute(asked), sharing.execute(asked, piecewise=True)
    assert (real.time_s <= literal.time_s * (1 + 1e-12)).all()
    np.testing.assert_allclose(real.time_s.min(axis=1), literal.time_s.min(axis=1))
    np.testing.assert_allclose(real.time_s.max(axis=1), real.end_s)


def test_shares_and_clocks_reach_the_predictor() -> None:
    toy = Toy(demand={"resnet50": 1.0, "vgg16": 1.0})
    sharing = two_on_a_t4(toy)
    asked = Batches(np.array([0]), np.array([[1, 0]]), np.array([[25, 50]]), np.array([795]))
    run = sharing.execute(asked)
    share = 795 / 1590
    # vgg16 at 25 % of what it wants, resnet50 at 50 %: no crowd, half the clock.
    np.testing.assert_allclose(run.time_s, [[300 / 0.25 / share, 100 / 0.5 / share]])


def test_batches_of_different_sizes_in_one_question() -> None:
    toy = Toy(demand=DEMANDS)
    sharing = Sharing(instance(mixed_tasks(9), Cluster.parse("1xT4,1xA100"), toy), toy)
    asked = batches(np.array([0, 1, 0]), np.array([[4, 2, 7], [1, NOBODY, NOBODY], [3, 8, NOBODY]]))
    both = sharing.execute(asked, piecewise=True)
    for row in range(3):
        size = int(asked.members[row].sum())
        alone = sharing.execute(batches(asked.kind[[row]], asked.tasks[[row], :size]), piecewise=True)
        np.testing.assert_array_equal(alone.time_s[0], both.time_s[row, :size])
        assert (both.time_s[row, size:] == 0).all()


def test_every_question_is_asked_once_whatever_the_order() -> None:
    toy = Toy()
    tasks = tuple(Task(i, Workload("resnet50" if i % 2 else "vgg16", 4), 10.0 + i) for i in range(4))
    sharing = Sharing(instance(tasks, Cluster.parse("1xT4"), toy), toy)
    before = toy.calls
    sharing.execute(batches(np.zeros(4, dtype=int), np.array([[0, 1], [1, 0], [2, 3], [3, 2]])))
    assert toy.calls - before == 2  # one set of two residents
    sharing.execute(batches(np.zeros(1, dtype=int), np.array([[2, 1]])))
    assert toy.calls - before == 2


def test_many_questions_make_the_tables_grow() -> None:
    toy = Toy(demand=DEMANDS)
    sharing = Sharing(instance(mixed_tasks(9), Cluster.parse("1xA100"), toy), toy)
    pct = np.stack(np.meshgrid(*[np.arange(10, 101, 10)] * 4), axis=-1).reshape(-1, 4)
    asked = Batches(np.zeros(len(pct), dtype=int), np.tile(np.arange(4), (len(pct), 1)), pct, np.zeros(len(pct), int))
    whole = sharing.execute(asked)
    again = sharing.execute(asked.take(np.arange(0, len(pct), 97)))
    np.testing.assert_array_equal(whole.time_s[::97], again.time_s)


@pytest.fixture
def toy() -> Toy:
    return Toy()
