"""Batch generation: SPT queues and their split into batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.batch_model import EMPTY, BatchModel, unconfigured_batches
from heshare.scheduling.configuration import BatchedQueues, Queues, split_into_batches, spt_queues
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def t4_with(tasks: list[tuple[str, float]], toy: Toy, **changes: float) -> Instance:
    gpu = replace(Cluster.parse("1xT4").gpus[0], **changes)  # type: ignore[arg-type]
    return make_instance(
        tuple(Task(i, Workload(model, 4), count) for i, (model, count) in enumerate(tasks)), Cluster((gpu,)), toy
    )


def batch_tasks(split: BatchedQueues) -> list[list[int]]:
    return [row[row != EMPTY].tolist() for row in split.batches.tasks]


def queues_of(instance: Instance) -> Queues:
    return spt_queues(np.zeros((1, instance.n), dtype=int), instance)


def split_for_jct(queues: Queues, model: BatchModel) -> BatchedQueues:
    return split_into_batches(queues, model, Settings())


def split_for_memory(queues: Queues, instance: Instance) -> BatchedQueues:
    return split_into_batches(queues, BatchModel(instance, Toy()), Settings(batching="memory"))


def test_spt_order() -> None:
    """Queues are in SPT order, and common to equal GPUs."""
    instance = make_instance(mixed_tasks(6), Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS))
    queues = spt_queues(np.array([[0, 0, 0, 2, 2, 2], [1, 1, 1, 2, 2, 0]]), instance)
    assert queues.of_gpu[0, 0] == queues.of_gpu[1, 1]  # the same tasks, on the other T4
    assert queues.of_gpu[0, 1] == EMPTY
    for row in range(len(queues.kind)):
        tasks = queues.tasks[row, : queues.length[row]]
        gpu = int(np.flatnonzero(instance.kind_of == queues.kind[row])[0])
        assert (np.diff(instance.time_s[tasks, gpu]) >= 0).all()


def test_tasks_behind() -> None:
    """The split for JCT counts the tasks behind."""
    toy = Toy(demand={"resnet50": 0.6, "vgg16": 0.6, "bert_large": 1.0})
    pair = [("resnet50", 10.0), ("vgg16", 20.0)]
    # Together 48 + 96 s; split 40 + 120 s: joined without tasks behind, and with them (96 s against 120 s).
    for tail in ([], [("bert_large", 100.0)] * 3):
        instance = t4_with([*pair, *tail], toy)
        assert batch_tasks(split_for_jct(queues_of(instance), BatchModel(instance, toy)))[0] == [0, 1]
    slow = Toy(demand={"resnet50": 0.9, "vgg16": 0.9, "bert_large": 1.0})
    # Together 72 + 90 s; split 40 + 90 s.
    instance = t4_with([("resnet50", 10.0), ("vgg16", 12.5)], slow)
    assert batch_tasks(split_for_jct(queues_of(instance), BatchModel(instance, slow))) == [[0], [1]]


@pytest.mark.parametrize("seed", range(4, 8))
def test_greedy_choice(seed: int) -> None:
    """The split for JCT takes the better choice at each task."""
    toy = Toy(demand=DEMANDS)
    instance = make_instance(mixed_tasks(14, seed=seed), Cluster.parse("1xV100"), toy)
    model = BatchModel(instance, toy)
    queue = instance.order_of_kind[0]
    expected: list[list[int]] = [[int(queue[0])]]
    for step, task in enumerate(queue[1:].tolist(), start=1):
        behind = np.array([14 - step - 1])
        current = model.execute(unconfigured_batches(np.array([0]), np.array([expected[-1]])))
        alone = model.execute(unconfigured_batches(np.array([0]), np.array([[task]])))
        joined = model.execute(unconfigured_batches(np.array([0]), np.array([[*expected[-1], task]])))
        split_s = current.time_s.sum() + (1 + behind) * (current.end_s + alone.end_s)
        if split_s[0] < joined.jct_s(behind)[0]:
            expected.append([task])
        else:
            expected[-1].append(task)
    assert batch_tasks(split_for_jct(queues_of(instance), model)) == expected
    assert 1 < len(expected) < 14


def test_memory_and_clients() -> None:
    """Splits keep to memory and MPS clients."""
    toy = Toy(demand={"mobilenet": 0.01})
    tasks = [("mobilenet", 10.0 + i) for i in range(9)]
    free = t4_with(tasks, toy)
    assert batch_tasks(split_for_jct(queues_of(free), BatchModel(free, toy))) == [list(range(9))]
    three = t4_with(tasks, toy, memory_mib=3.5 * free.needs_mib[0])
    two = t4_with(tasks, toy, mps_clients=2)
    for instance, most in ((three, 3), (two, 2)):
        for split in (
            split_for_jct(queues_of(instance), BatchModel(instance, toy)),
            split_for_memory(queues_of(instance), instance),
        ):
            assert max(len(batch) for batch in batch_tasks(split)) == most
            assert sorted(chain(*batch_tasks(split))) == list(range(9))


def test_full_memory() -> None:
    """A batch may fill the memory exactly."""
    toy = Toy(demand={"mobilenet": 0.01})
    free = t4_with([("mobilenet", 10.0 + i) for i in range(4)], toy)
    exact = t4_with([("mobilenet", 10.0 + i) for i in range(4)], toy, memory_mib=2 * free.needs_mib[0])
    split = split_for_memory(queues_of(exact), exact)
    assert [len(batch) for batch in batch_tasks(split)] == [2, 2]


def test_fewest_batches() -> None:
    """Split for memory makes the fewest batches in order."""
    toy = Toy()
    instance = make_instance(mixed_tasks(30), Cluster.parse("1xA100"), toy)
    batches = batch_tasks(split_for_memory(queues_of(instance), instance))
    assert list(chain(*batches)) == instance.order_of_kind[0].tolist()
    memory_mib = instance.cluster.gpus[0].memory_mib
    for batch, following in pairwise(batches):
        assert instance.needs_mib[batch].sum() <= memory_mib
        assert instance.needs_mib[[*batch, following[0]]].sum() > memory_mib


def test_single() -> None:
    """Splitting every task counts the tasks behind."""
    instance = make_instance(mixed_tasks(5), Cluster.parse("1xT4"), Toy())
    split = split_into_batches(queues_of(instance), BatchModel(instance, Toy()), Settings(batching="single"))
    assert split.behind.tolist() == [4, 3, 2, 1, 0]
    assert batch_tasks(split) == [[task] for task in instance.order_of_kind[0].tolist()]
