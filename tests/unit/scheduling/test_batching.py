"""SPT queues and where they are split."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.batching import (
    Lines,
    Split,
    distinct_lines,
    split_all,
    split_for_jct,
    split_for_memory,
)
from heshare.scheduling.objectives import Instance, instance
from heshare.scheduling.sharing import NOBODY, Sharing, batches
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload


def t4_with(tasks: list[tuple[str, float]], toy: Toy, **changes: float) -> Instance:
    gpu = replace(Cluster.parse("1xT4").gpus[0], **changes)  # type: ignore[arg-type]
    return instance(
        tuple(Task(i, Workload(model, 4), count) for i, (model, count) in enumerate(tasks)), Cluster((gpu,)), toy
    )


def groups(split: Split) -> list[list[int]]:
    return [row[row != NOBODY].tolist() for row in split.batches.tasks]


def line_of(world: Instance) -> Lines:
    return distinct_lines(np.zeros((1, world.n), dtype=int), world)[0]


def test_queues_are_in_spt_order_and_shared_between_equal_gpus() -> None:
    world = instance(mixed_tasks(6), Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS))
    lines, which = distinct_lines(np.array([[0, 0, 0, 2, 2, 2], [1, 1, 1, 2, 2, 0]]), world)
    assert which[0, 0] == which[1, 1]  # the same tasks, on the other T4
    assert which[0, 1] == NOBODY
    for row in range(len(lines.kind)):
        tasks = lines.tasks[row, : lines.length[row]]
        gpu = int(np.flatnonzero(world.kind_of == lines.kind[row])[0])
        assert (np.diff(world.time_s[tasks, gpu]) >= 0).all()


def test_tasks_that_leave_the_gpu_half_empty_share_it() -> None:
    toy = Toy(demand={"mobilenet": 0.3, "resnet18": 0.3})
    world = t4_with([("mobilenet", 10), ("resnet18", 12)], toy)
    # Together 40 + 48 s; one after the other 40 + 88 s.
    assert groups(split_for_jct(line_of(world), Sharing(world, toy))) == [[0, 1]]


def test_tasks_that_fill_the_gpu_run_one_after_the_other() -> None:
    toy = Toy()
    world = t4_with([("vgg16", 10), ("resnet50", 30)], toy)
    # Together 80 + 240 s; one after the other 40 + 160 s.
    assert groups(split_for_jct(line_of(world), Sharing(world, toy))) == [[0], [1]]


def test_those_who_wait_have_a_say() -> None:
    toy = Toy(demand={"resnet50": 0.6, "vgg16": 0.6, "bert_large": 1.0})
    two = [("resnet50", 10.0), ("vgg16", 20.0)]
    # Together 48 + 96 s; apart 40 + 120 s: joined when nobody waits, and when others wait (96 s against 120 s).
    for tail in ([], [("bert_large", 100.0)] * 3):
        world = t4_with([*two, *tail], toy)
        assert groups(split_for_jct(line_of(world), Sharing(world, toy)))[0] == [0, 1]
    slow = Toy(demand={"resnet50": 0.9, "vgg16": 0.9, "bert_large": 1.0})
    # Together 72 + 90 s, apart 40 + 90 s: apart.
    world = t4_with([("resnet50", 10.0), ("vgg16", 12.5)], slow)
    assert groups(split_for_jct(line_of(world), Sharing(world, slow))) == [[0], [1]]


def test_each_split_is_the_better_of_the_two_choices() -> None:
    toy = Toy(demand=DEMANDS)
    world = instance(mixed_tasks(14, seed=4), Cluster.parse("1xV100"), toy)
    sharing = Sharing(world, toy)
    queue = world.order[0]
    expected: list[list[int]] = [[int(queue[0])]]
    for step, task in enumerate(queue[1:].tolist(), start=1):
        behind = np.array([14 - step - 1])
        now = sharing.execute(batches(np.array([0]), np.array([expected[-1]])))
        alone = sharing.execute(batches(np.array([0]), np.array([[task]])))
        joined = sharing.execute(batches(np.array([0]), np.array([[*expected[-1], task]])))
        apart = now.time_s.sum() + (1 + behind) * (now.end_s + alone.end_s)
        if apart[0] < joined.jct_s(behind)[0]:
            expected.append([task])
        else:
            expected[-1].append(task)
    assert groups(split_for_jct(line_of(world), sharing)) == expected
    assert 1 < len(expected) < 14


def test_memory_and_clients_are_never_exceeded() -> None:
    toy = Toy(demand={"mobilenet": 0.01})
    tasks = [("mobilenet", 10.0 + i) for i in range(9)]
    free = t4_with(tasks, toy)
    assert groups(split_for_jct(line_of(free), Sharing(free, toy))) == [list(range(9))]
    three = t4_with(tasks, toy, memory_mib=3.5 * free.needs_mib[0])
    two = t4_with(tasks, toy, mps_clients=2)
    for world, most in ((three, 3), (two, 2)):
        for split in (split_for_jct(line_of(world), Sharing(world, toy)), split_for_memory(line_of(world), world)):
            assert max(len(group) for group in groups(split)) == most
            assert sorted(chain(*groups(split))) == list(range(9))


def test_a_set_that_does_not_fit_is_never_asked_about() -> None:
    toy = Toy(demand={"mobilenet": 0.01})
    world = t4_with([("mobilenet", 10.0 + i) for i in range(9)], toy, mps_clients=2)
    split_for_jct(line_of(world), Sharing(world, toy))
    assert max(len(residents) for residents, _, _ in toy.asked) == 2


def test_splitting_for_memory_makes_the_fewest_batches_in_order() -> None:
    toy = Toy()
    world = instance(mixed_tasks(30), Cluster.parse("1xA100"), toy)
    cut = groups(split_for_memory(line_of(world), world))
    assert list(chain(*cut)) == world.order[0].tolist()
    size = world.cluster.gpus[0].memory_mib
    for one, after in pairwise(cut):
        assert world.needs_mib[one].sum() <= size
        assert world.needs_mib[[*one, after[0]]].sum() > size


def test_behind_counts_who_waits() -> None:
    world = instance(mixed_tasks(5), Cluster.parse("1xT4"), Toy())
    split = split_all(line_of(world))
    assert split.behind.tolist() == [4, 3, 2, 1, 0]
    assert groups(split) == [[task] for task in world.order[0].tolist()]


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_gpu_types_have_their_own_queues(name: str) -> None:
    gpu: Gpu = Cluster.parse(f"1x{name}").gpus[0]
    world = instance(mixed_tasks(5), Cluster((gpu,)), Toy())
    assert world.kinds == (gpu,)
    assert line_of(world).kind.tolist() == [0]
