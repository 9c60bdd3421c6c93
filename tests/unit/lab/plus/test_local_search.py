"""The local search against brute force: batching of a queue, evaluation of moves, local optima."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.brute_force import every_queue
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchChoices, BatchTable
from heshare.lab.plus.local_search import Memo, Queues, assign, changed_costs, descend, memo_of, queue_cost, queues_of
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster


def table_and_memo(n: int, most_sets: int = 10_000) -> tuple[BatchTable, Memo]:
    toy = Toy(demand=DEMANDS)
    instance = make_instance(mixed_tasks(n), Cluster.parse("2xT4,1xA100"), toy)
    table = BatchTable(instance, toy, BatchChoices(clocks=3, mps_variants=2))
    return table, memo_of(table, most_sets)


def assigned(table: BatchTable, memo: Memo, scheme: np.ndarray, weight: float) -> Queues:
    queues = queues_of(table, weight)
    assign(table.arrays, memo, queues, scheme)
    return queues


def targets_of(n: int) -> np.ndarray:
    return np.tile(np.arange(3), (n, 1))


@pytest.mark.parametrize("weight", [0.01, 1.0, 100.0])
def test_queue_cost(weight: float) -> None:
    """The cost of a queue is that of its best batching."""
    table, memo = table_and_memo(5)
    cost = queue_cost(assigned(table, memo, np.zeros(5, dtype=np.int64), weight), 0)
    assert cost == pytest.approx((every_queue(table, 0, tuple(range(5))) @ [1.0, weight]).min(), rel=1e-12)


@pytest.mark.parametrize("most_sets", [10_000, 7])
def test_changed_costs(rng: np.random.Generator, most_sets: int) -> None:
    """Changed costs are those of the changed queues, also with a memo so small that sets take turns in it."""
    table, memo = table_and_memo(9, most_sets)
    for _ in range(30):
        scheme = rng.integers(3, size=9)
        queues = assigned(table, memo, scheme, 1.0)
        removed, inserted = (int(task) for task in rng.permutation(9)[:2])
        gpu = int(scheme[removed])
        if scheme[inserted] == gpu:
            continue
        changes = [(removed, EMPTY), (EMPTY, inserted), (removed, inserted)]
        costs = np.empty(3)
        changed_costs(table.arrays, memo, queues, np.array([(gpu, *change) for change in changes]), costs)
        for (out, into), cost in zip(changes, costs, strict=True):
            changed = scheme.copy()
            changed[[task for task in (out,) if task != EMPTY]] = (gpu + 1) % 3
            changed[[task for task in (into,) if task != EMPTY]] = gpu
            assert cost == pytest.approx(queue_cost(assigned(table, memo, changed, 1.0), gpu), rel=1e-12)


def test_local_optimum(rng: np.random.Generator) -> None:
    """A descent ends where no relocation improves."""
    table, memo = table_and_memo(8)
    queues = assigned(table, memo, rng.integers(3, size=8), 1.0)
    total = descend(table.arrays, memo, queues, np.arange(8), targets_of(8), True, 100)
    for task, gpu in product(range(8), range(3)):
        scheme = queues.gpu_of.copy()
        scheme[task] = gpu
        moved = assigned(table, memo, scheme, 1.0)
        assert sum(queue_cost(moved, gpu) for gpu in range(3)) >= total * (1 - 1e-8)


def test_swaps(rng: np.random.Generator) -> None:
    """Swaps improve on relocations alone."""
    table, memo = table_and_memo(14)

    def ends(scheme: np.ndarray) -> list[float]:
        starts = [assigned(table, memo, scheme, 100.0) for _ in range(2)]
        return [
            descend(table.arrays, memo, queues, np.arange(14), targets_of(14), swaps, 100)
            for queues, swaps in zip(starts, (False, True), strict=True)
        ]

    totals = np.array([ends(rng.integers(3, size=14)) for _ in range(12)])
    # With swaps a descent goes on from where relocations alone end.
    assert (totals[:, 1] <= totals[:, 0]).all()
    assert (totals[:, 1] < totals[:, 0] * (1 - 1e-6)).any()
