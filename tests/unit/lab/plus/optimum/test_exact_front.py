"""Exact fronts against the enumeration of all plans, and against an integer program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from support.brute_force import SMALL, costs_of, every_plan, executed
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.optimum.exact_front import MAX_TASKS, exact_front, front_of
from heshare.lab.plus.optimum.task_subsets import feasible_batches, sets_by_task, subset_fronts, subsets
from heshare.lab.plus.search_settings import BatchChoices
from heshare.scheduling import planner
from heshare.scheduling.pareto import Front, non_dominated
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster


def totals(front: Front, n: int) -> np.ndarray:
    """[energy in J, sum of JCTs in s] of a front's points."""
    return front.objectives * np.array([1.0, n])


@pytest.mark.parametrize(
    ("n", "cluster", "seed"),
    [
        (1, "1xT4", 0),
        (4, "1xT4,1xV100,1xA100", 0),
        (4, "2xT4,1xA100", 3),
        (4, "1xA100,1xT4,1xA100", 1),
        (5, "1xT4,1xA100", 2),
        (5, "3xV100", 0),
        (4, "1xT4", 5),
    ],
)
def test_front_of_is_the_front_of_all_plans(n: int, cluster: str, seed: int) -> None:
    costs = costs_of(n, cluster, seed=seed)
    expected = every_plan(costs)
    front = totals(front_of(costs), n)
    assert len(front) == len(expected)
    assert front == pytest.approx(expected, rel=1e-9)


def test_exact_front_plans_have_the_objectives_of_their_points() -> None:
    costs = costs_of(7, "1xA100,1xT4,1xA100")
    front = front_of(costs)
    assert len(front) > 10
    for plan in front.plans:
        assert executed(plan, costs.world, Toy(demand=DEMANDS)) == pytest.approx((plan.energy_j, plan.jct_s), rel=1e-9)


def least_by_integer_program(costs: BatchCosts, weights: tuple[float, float]) -> float:
    """The least weighted cost over all plans, by an integer program over (GPU, batch, tasks behind).

    A batch with b tasks behind it ends a queue if b is 0; otherwise the next batch must begin later in SPT order and
    have b tasks left, its own included: flow conservation over the nodes (position, tasks left).
    """
    n, columns, kinds = costs.world.n, [], costs.world.kind_of.tolist()
    batches = feasible_batches(costs)
    keys = [(gpu, p, r) for gpu in range(len(kinds)) for p in range(n + 1) for r in range(n + 1)]
    node = {key: number for number, key in enumerate(keys)}
    for gpu, kind in enumerate(kinds):
        order, options = batches[kind].order, batches[kind].options
        for left in range(n + 1):
            columns.append((0.0, [], None, (gpu, 0, left)))
            columns += [(0.0, [], (gpu, position, left), (gpu, position + 1, left)) for position in range(n)]
        columns.append((0.0, [], (gpu, n, 0), None))
        for row, positions in enumerate(batches[kind].sets):
            members = positions[positions >= 0]
            for option in range(options.begin[row], options.begin[row + 1]):
                for left in range(len(members), n + 1):
                    behind = left - len(members)
                    energy_j, sum_s, end_s = options.values[option]
                    cost = weights[0] * energy_j + weights[1] * (sum_s + behind * end_s)
                    tail, head = (gpu, int(members[0]), left), (gpu, int(members[-1]) + 1, behind)
                    columns.append((cost, order[members].tolist(), tail, head))
    matrix = np.zeros((n + len(node) + len(kinds), len(columns)))
    for column, (_, members, tail, head) in enumerate(columns):
        matrix[members, column] = 1
        if tail is None:
            matrix[n + len(node) + head[0], column] = 1
        else:
            matrix[n + node[tail], column] -= 1
        if head is not None:
            matrix[n + node[head], column] += 1
    right = np.concatenate((np.ones(n), np.zeros(len(node)), np.ones(len(kinds))))
    solved = milp(
        np.array([cost for cost, *_ in columns]),
        constraints=LinearConstraint(matrix, right, right),
        integrality=np.ones(len(columns)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.0, 30.0), (1.0, 200.0)])
def test_least_weighted_sums_agree_with_an_integer_program(weights: tuple[float, float]) -> None:
    costs = costs_of(8, "1xT4,1xA100", BatchChoices(width=2, mps_variants=1, clocks=2))
    least = (totals(front_of(costs), 8) @ np.array(weights)).min()
    assert least == pytest.approx(least_by_integer_program(costs, weights), rel=1e-7)


def test_exact_front_is_not_dominated_by_the_papers_scheduler() -> None:
    tasks, cluster, toy = mixed_tasks(5), Cluster.parse("1xT4,1xV100,1xA100"), Toy(demand=DEMANDS)
    exact = exact_front(tasks, cluster, toy, choices=BatchChoices(width=5, mps_variants=1, mps_pcts=(100,)))
    paper = planner.plan(
        tasks, cluster, toy, rng=np.random.default_rng(0), settings=Settings(mps_pcts=(100,), generations=50)
    )
    both = np.concatenate((exact.objectives, paper.objectives * (1 + 1e-9)))
    assert non_dominated(exact.objectives).all()
    assert not non_dominated(both)[len(exact) :].any()


def test_subset_fronts_are_mutually_non_dominated_and_made_of_their_options() -> None:
    costs = costs_of(6, "1xV100")
    batches = feasible_batches(costs)[0]
    fronts = subset_fronts(batches)
    for tasks in range(1, 64):
        points = fronts.of(tasks)
        assert (np.diff(points[:, 0]) > 0).all()
        assert (np.diff(points[:, 1]) < 0).all()
        energy_j = batches.options.values[fronts.options(fronts.begin[tasks]), 0].sum()
        assert energy_j == pytest.approx(points[0, 0], rel=1e-12)


def test_subsets_and_sets_by_task() -> None:
    assert sets_by_task(np.array([2, 0, 1])).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert subsets(3, 2).tolist() == [[0, -1], [0, 1], [0, 2], [1, -1], [1, 2], [2, -1]]


def test_exact_front_refuses_too_many_tasks_and_subsets_too_many_sets() -> None:
    with pytest.raises(InputError, match="at most 14"):
        exact_front(mixed_tasks(MAX_TASKS + 1), Cluster.parse("1xT4"), Toy(demand=DEMANDS), choices=SMALL)
    with pytest.raises(InputError, match="smaller batches"):
        subsets(400, 3)
