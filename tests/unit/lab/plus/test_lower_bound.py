"""The lower bound against the linear program with all columns, against exact fronts, and by hand."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from support.brute_force import every_queue, table_of

from heshare.lab.plus.batch_table import BatchTable
from heshare.lab.plus.exact_front import front_of
from heshare.lab.plus.lower_bound import Bound, Pricer, lower_bound, weights_along

WEIGHTS = np.array([[1.0, 0.0], [1.0, 50.0], [1.0, 400.0], [1.0, 5000.0], [0.0, 1.0]])


def all_sets(n: int) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(range(n), size) for size in range(n + 1)))


def relaxation(table: BatchTable, weights: tuple[float, float]) -> float:
    """The linear program with every queue of every type of GPU as a column."""
    n, kinds = table.instance.n, len(table.instance.kinds)
    values, columns = [], []
    for kind in range(kinds):
        for tasks in all_sets(n):
            points = every_queue(table, kind, tasks)
            if len(points):
                values.append((points @ np.array(weights)).min())
                columns.append([*(-float(task in tasks) for task in range(n)), *np.eye(kinds)[kind]])
    limits = np.concatenate((-np.ones(n), np.bincount(table.instance.kind_of)))
    return float(linprog(np.array(values), np.array(columns).T, limits).fun)


@pytest.mark.parametrize(("cluster", "seed"), [("1xT4,1xV100,1xA100", 0), ("2xT4,1xA100", 2), ("1xV100", 1)])
def test_linear_program(cluster: str, seed: int) -> None:
    """The bound is the value of the linear program."""
    table = table_of(5, cluster, seed=seed)
    bound = lower_bound(table, WEIGHTS, tolerance=1e-7)
    expected = np.array([relaxation(table, (per_j, per_s / 5)) for per_j, per_s in WEIGHTS])
    assert bound.least == pytest.approx(expected, rel=3e-7)
    assert (bound.least < expected).all()
    assert bound.relaxed == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_stopped_early(iterations: int) -> None:
    """A bound that was stopped early is lower and still a bound."""
    table = table_of(9, "1xT4,1xV100,1xA100")
    early, late = lower_bound(table, WEIGHTS[2:3], iterations=iterations), lower_bound(table, WEIGHTS[2:3])
    assert early.least[0] <= late.least[0] * (1 + 1e-9)
    assert early.iterations[0] == iterations < late.iterations[0]
    assert (early.gap_pct(front_of(table).objectives) > 0).all()


def test_pricer() -> None:
    """The pricer finds the cheapest of all queues."""
    table = table_of(6, "1xV100,1xT4")
    weights = (1.0, 60.0)
    rng = np.random.default_rng(3)
    for kind, batches in enumerate(table.feasible_batches()):
        prices = rng.uniform(0, 3e5, size=6)
        expected = {
            size: min(
                (every_queue(table, kind, tasks) @ np.array(weights)).min() - prices[list(tasks)].sum()
                for tasks in combinations(range(6), size)
            )
            for size in range(7)
        }
        value, queues = Pricer(kind, batches, weights)(prices)
        assert value == pytest.approx(min(expected.values()), rel=1e-9)
        cost = weights[0] * queues.energy_j + weights[1] * queues.jct_s - queues.holds @ prices
        sizes = queues.holds.sum(axis=1).astype(int).tolist()
        assert sizes == [size for size in range(1, 7) if expected[size] < 0]
        assert cost == pytest.approx([expected[size] for size in sizes], rel=1e-9)


def test_gaps_and_envelope() -> None:
    """Gaps and the envelope of two weights are as computed by hand."""
    bound = Bound(np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([10.0, 4.0]), np.array([10.0, 4.0]), np.array([1, 1]))
    points = np.array([[5.0, 6.0], [4.4, 9.0]])
    assert bound.gap_pct(points) == pytest.approx([10.0, 10.0])
    assert bound.gaps_along_pct(points) == pytest.approx([10.0, 10.0])
    assert bound.envelope_s(np.array([3.9, 4.0, 12.0])) == pytest.approx([np.inf, 6.0, 0.0])


def test_weights_along() -> None:
    """The weights go from energy to time."""
    front = np.array([[1.0, 900.0], [2.0, 300.0], [6.0, 100.0], [9.0, 950.0]])
    weights = weights_along(front, 3)
    assert (weights[:, 0] == 1).all()
    assert (np.diff(weights[:, 1]) > 0).all()
    assert weights[1, 1] == pytest.approx(5 / 800)
    assert weights_along(front[:1], 2)[:, 1] == pytest.approx(np.tan(np.pi / 4 * np.array([0.5, 1.5])) / 900)
