"""The local search against brute force: batching of a queue, evaluation of moves, local optima."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.brute_force import every_queue
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.local_search import Assignment, assign, descend, empty_assignment, evaluate_change, queue_cost
from heshare.lab.plus.option_tables import OptionTable, option_table
from heshare.lab.plus.search_settings import BatchChoices
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster


def costs_and_table(n: int) -> tuple[BatchCosts, OptionTable]:
    toy = Toy(demand=DEMANDS)
    world = make_instance(mixed_tasks(n), Cluster.parse("2xT4,1xA100"), toy)
    costs = BatchCosts(world, toy, BatchChoices(clocks=3, mps_variants=2))
    costs.fill_tables()
    return costs, option_table(costs)


def assigned(costs: BatchCosts, table: OptionTable, scheme: np.ndarray, weight: float) -> Assignment:
    queues = empty_assignment(costs)
    assign(table, queues, scheme, weight)
    return queues


@pytest.mark.parametrize("weight", [0.01, 1.0, 100.0])
def test_queue_cost_is_that_of_the_best_batching(weight: float) -> None:
    costs, table = costs_and_table(5)
    cost = queue_cost(assigned(costs, table, np.zeros(5, dtype=np.int64), weight), 0)
    assert cost == pytest.approx((every_queue(costs, 0, tuple(range(5))) @ [1.0, weight]).min(), rel=1e-12)


def test_evaluate_change_is_the_cost_of_the_changed_queue(rng: np.random.Generator) -> None:
    costs, table = costs_and_table(9)
    for _ in range(30):
        scheme = rng.integers(3, size=9)
        queues = assigned(costs, table, scheme, 1.0)
        removed, inserted = (int(task) for task in rng.permutation(9)[:2])
        gpu = int(scheme[removed])
        if scheme[inserted] == gpu:
            continue
        for out, into in ((removed, EMPTY), (EMPTY, inserted), (removed, inserted)):
            changed = scheme.copy()
            changed[[task for task in (out,) if task != EMPTY]] = (gpu + 1) % 3
            changed[[task for task in (into,) if task != EMPTY]] = gpu
            cost = queue_cost(assigned(costs, table, changed, 1.0), gpu)
            assert evaluate_change(table, queues, gpu, out, into, 1.0) == pytest.approx(cost, rel=1e-12)


def test_descend_ends_where_no_relocation_improves(rng: np.random.Generator) -> None:
    costs, table = costs_and_table(8)
    queues = assigned(costs, table, rng.integers(3, size=8), 1.0)
    targets = np.ascontiguousarray(np.broadcast_to(np.arange(3), (8, 3)))
    total = descend(table, queues, np.arange(8), targets, costs.fits, True, 100, 1.0)
    for task, gpu in product(range(8), range(3)):
        scheme = queues.gpu_of.copy()
        scheme[task] = gpu
        moved = assigned(costs, table, scheme, 1.0)
        assert sum(queue_cost(moved, gpu) for gpu in range(3)) >= total * (1 - 1e-8)


def test_swaps_lower_what_relocations_leave(rng: np.random.Generator) -> None:
    costs, table = costs_and_table(14)
    targets = np.ascontiguousarray(np.broadcast_to(np.arange(3), (14, 3)))

    def ends(scheme: np.ndarray) -> list[float]:
        starts = [assigned(costs, table, scheme, 100.0) for _ in range(2)]
        return [
            descend(table, queues, np.arange(14), targets, costs.fits, swaps, 100, 100.0)
            for queues, swaps in zip(starts, (False, True), strict=True)
        ]

    totals = np.array([ends(rng.integers(3, size=14)) for _ in range(12)])
    # With swaps a descent goes on from where relocations alone end.
    assert (totals[:, 1] <= totals[:, 0]).all()
    assert (totals[:, 1] < totals[:, 0] * (1 - 1e-6)).any()
