"""The energy consumption model (Eqs. 1-10): small cases by hand, and a loop over tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.scheduling.objectives import (
    Instance,
    evaluate_schemes,
    fit_mask,
    make_instance,
    segment_costs,
)
from heshare.shared.errors import InputError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


def loop_over_tasks(scheme: list[int], instance: Instance) -> tuple[float, float]:
    energy_j, jcts_s = 0.0, []
    for gpu in range(instance.k):
        now_s = 0.0
        queue = [task for task in range(instance.n) if scheme[task] == gpu]
        for task in sorted(queue, key=lambda task: (instance.time_s[task, gpu], task)):
            now_s += instance.time_s[task, gpu]
            jcts_s.append(now_s)
            energy_j += instance.energy_j[task, gpu]
    return energy_j, sum(jcts_s) / instance.n


def test_two_tasks() -> None:
    """Objectives of all schemes of two tasks on two GPUs."""
    instance = instance_from_tables([[10, 4], [30, 6]], [[100, 200], [300, 250]], "1xT4,1xA100")
    schemes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    # Shortest first: 10 and 10 + 30 on the T4, 4 and 4 + 6 on the A100.
    expected = [[400, (10 + 40) / 2], [350, (10 + 6) / 2], [500, (4 + 30) / 2], [450, (4 + 10) / 2]]
    np.testing.assert_allclose(evaluate_schemes(schemes, instance), expected)


def test_segment_costs() -> None:
    """Segment costs are energy and sum of JCTs of each GPU."""
    instance = instance_from_tables([[10, 4], [30, 6], [20, 5]], [[100, 200], [300, 250], [50, 60]], "1xT4,1xA100")
    costs = segment_costs(np.array([[0, 0, 1]]), instance.solo)
    np.testing.assert_allclose(costs, [[[400, 10 + 40], [60, 5]]])


@pytest.mark.parametrize("cluster", ["1xT4", "2xT4,1xA100", "3xT4,2xV100,2xA100"])
def test_loop_over_tasks(cluster: str, rng: np.random.Generator) -> None:
    """Objectives of schemes equal a loop over tasks."""
    gpus = Cluster.parse(cluster)
    k = len(gpus)
    kind_of = [gpus.kinds.index(gpu) for gpu in gpus.gpus]
    time_s = rng.integers(1, 9, size=(17, 3)).astype(float)  # small whole numbers: many ties
    instance = instance_from_tables(time_s[:, kind_of], rng.uniform(1, 9, size=(17, 3))[:, kind_of], cluster)
    schemes = rng.integers(k, size=(40, 17))
    np.testing.assert_allclose(
        evaluate_schemes(schemes, instance), [loop_over_tasks(list(row), instance) for row in schemes]
    )


def test_power_times_time() -> None:
    """An instance has energies of power times time."""
    tasks = (Task(0, Workload("resnet50", 8), 100.0), Task(1, Workload("vgg16", 4), 50.0))
    cluster = Cluster.parse("1xT4,1xA100")
    toy = Toy()
    instance = make_instance(tasks, cluster, toy)
    np.testing.assert_allclose(instance.time_s, [[800, 200], [200, 50]])  # iterations x batch size / speed
    t4, a100 = cluster.gpus
    quarter = a100.idle_w + (a100.tdp_w - a100.idle_w) / 4  # a demand of 1 uses a quarter of the A100
    np.testing.assert_allclose(instance.energy_j, [[800 * t4.tdp_w, 200 * quarter], [200 * t4.tdp_w, 50 * quarter]])


def test_asked_once() -> None:
    """An instance predicts each type of GPU once."""
    toy = Toy(demand=DEMANDS)
    tasks = mixed_tasks(30)
    make_instance(tasks, Cluster.parse("4xT4,2xA100"), toy)
    assert toy.calls == 2 * len({task.workload for task in tasks})


def _small_gpu(memory_mib: float) -> Gpu:
    return Gpu("T4", "small", "turing", 40, 2560, memory_mib, 320.0, 4.0, 8.1, 70.0, 10.0, (300, 1590))


def test_does_not_fit() -> None:
    """An instance is infinite where a task does not fit."""
    big, small = Workload("bert_large", 8), Workload("mobilenet", 1)
    cluster = Cluster((_small_gpu((memory_mib(big) + memory_mib(small)) / 2), Cluster.parse("1xA100").gpus[0]))
    tasks = (Task(0, big, 10.0), Task(1, small, 10.0))
    instance = make_instance(tasks, cluster, Toy())
    assert instance.fits.tolist() == [[False, True], [True, True]]
    assert np.isinf(instance.time_s[0, 0])
    assert np.isinf(instance.energy_j[0, 0])


def test_fit_mask() -> None:
    """A task that fits no GPU, and no tasks, are refused."""
    with pytest.raises(InputError, match="task 7, bert_large:8"):
        fit_mask((Task(7, Workload("bert_large", 8), 10.0),), Cluster((_small_gpu(100.0),)))
    with pytest.raises(InputError, match="at least one task"):
        fit_mask((), Cluster.parse("1xT4"))


def test_usage() -> None:
    """Usage is log time, power over TDP and memory over capacity."""
    tasks = (Task(0, Workload("resnet50", 8), 10.0), Task(1, Workload("bert_large", 100_000), 10.0))
    cluster = Cluster((Cluster.parse("1xT4").gpus[0], replace(Cluster.parse("1xA100").gpus[0], memory_mib=1e9)))
    instance = make_instance(tasks, cluster, Toy(demand=DEMANDS))
    t4, roomy = cluster.gpus
    assert instance.fits.tolist() == [[True, True], [False, True]]

    time_s, energy_j = instance.time_s[0, 0], instance.energy_j[0, 0]
    memory = memory_mib(tasks[0].workload) / t4.memory_mib
    assert instance.usage[0, 0] == pytest.approx([np.log(time_s), energy_j / time_s / t4.tdp_w, memory])
    # Where a task does not fit, it has neither time nor power.
    assert instance.usage[0, 1, :2].tolist() == [0.0, 0.0]
    assert instance.usage[1, 1, 2] == pytest.approx(memory_mib(tasks[1].workload) / roomy.memory_mib)
