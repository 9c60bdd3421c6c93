"""Eqs. 1-10 by hand and against a naive loop."""

from __future__ import annotations

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks, table

from heshare.errors import InputError
from heshare.scheduling.objectives import Instance, fit_mask, instance, objectives, queues, segments
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


def naive(scheme: list[int], world: Instance) -> tuple[float, float]:
    energy, jcts = 0.0, []
    for gpu in range(world.k):
        clock = 0.0
        mine = [task for task in range(world.n) if scheme[task] == gpu]
        for task in sorted(mine, key=lambda one: (world.time_s[one, gpu], one)):
            clock += world.time_s[task, gpu]
            jcts.append(clock)
            energy += world.energy_j[task, gpu]
    return energy, sum(jcts) / world.n


def test_two_tasks_two_gpus_by_hand() -> None:
    world = table([[10, 4], [30, 6]], [[100, 200], [300, 250]], "1xT4,1xA100")
    schemes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    # Shortest first: 10 and 10 + 30 on the T4, 4 and 4 + 6 on the A100.
    expected = [[400, (10 + 40) / 2], [350, (10 + 6) / 2], [500, (4 + 30) / 2], [450, (4 + 10) / 2]]
    np.testing.assert_allclose(objectives(schemes, world), expected)


def test_segments_are_each_gpus_energy_and_sum_of_jcts() -> None:
    world = table([[10, 4], [30, 6], [20, 5]], [[100, 200], [300, 250], [50, 60]], "1xT4,1xA100")
    parts = segments(np.array([[0, 0, 1]]), world)
    np.testing.assert_allclose(parts, [[[400, 10 + 40], [60, 5]]])


@pytest.mark.parametrize("cluster", ["1xT4", "2xT4,1xA100", "3xT4,2xV100,2xA100"])
def test_vectorised_equals_naive(cluster: str, rng: np.random.Generator) -> None:
    k = len(Cluster.parse(cluster))
    time = rng.integers(1, 9, size=(17, k)).astype(float)  # small whole numbers: many ties
    world = table(time, rng.uniform(1, 9, size=(17, k)), cluster)
    schemes = rng.integers(k, size=(40, 17))
    np.testing.assert_allclose(objectives(schemes, world), [naive(list(row), world) for row in schemes])


def test_queues_keep_every_task_in_spt_order(rng: np.random.Generator) -> None:
    world = table(rng.uniform(1, 9, (11, 3)), rng.uniform(1, 9, (11, 3)), "1xT4,1xV100,1xA100")
    line = queues(rng.integers(3, size=(20, 11)), world)
    assert (np.sort(line.task, axis=1) == np.arange(11)).all()
    same = line.gpu[:, 1:] == line.gpu[:, :-1]
    assert (np.diff(line.time_s, axis=1)[same] >= 0).all()


def test_energy_is_power_times_time_not_power() -> None:
    tasks = (Task(0, Workload("resnet50", 8), 100.0), Task(1, Workload("vgg16", 4), 50.0))
    cluster = Cluster.parse("1xT4,1xA100")
    toy = Toy()
    world = instance(tasks, cluster, toy)
    np.testing.assert_allclose(world.time_s, [[800, 200], [200, 50]])  # iterations x batch size / speed
    t4, a100 = cluster.gpus
    quarter = a100.idle_w + (a100.tdp_w - a100.idle_w) / 4  # a demand of 1 keeps a quarter of the A100 busy
    np.testing.assert_allclose(world.energy_j, [[800 * t4.tdp_w, 200 * quarter], [200 * t4.tdp_w, 50 * quarter]])


def test_gpus_of_one_type_are_asked_about_once() -> None:
    toy = Toy(demand=DEMANDS)
    tasks = mixed_tasks(30)
    instance(tasks, Cluster.parse("4xT4,2xA100"), toy)
    assert toy.calls == 2 * len({task.workload for task in tasks})


def _small_gpu(memory: float) -> Gpu:
    return Gpu("T4", "small", "turing", 40, 2560, memory, 320.0, 4.0, 8.1, 70.0, 10.0, (300, 1590))


def test_a_task_never_counts_where_it_does_not_fit() -> None:
    big, small = Workload("bert_large", 8), Workload("mobilenet", 1)
    cluster = Cluster((_small_gpu((memory_mib(big) + memory_mib(small)) / 2), Cluster.parse("1xA100").gpus[0]))
    tasks = (Task(0, big, 10.0), Task(1, small, 10.0))
    world = instance(tasks, cluster, Toy())
    assert world.fits.tolist() == [[False, True], [True, True]]
    assert np.isinf(world.time_s[0, 0])
    assert np.isinf(world.energy_j[0, 0])


def test_a_task_that_fits_no_gpu_is_named() -> None:
    tasks = (Task(7, Workload("bert_large", 8), 10.0),)
    with pytest.raises(InputError, match=r"task 7, bert_large:8, which needs.*fits no GPU"):
        fit_mask(tasks, Cluster((_small_gpu(100.0),)))


def test_no_tasks_is_an_input_error() -> None:
    with pytest.raises(InputError, match="at least one task"):
        fit_mask((), Cluster.parse("1xT4"))
