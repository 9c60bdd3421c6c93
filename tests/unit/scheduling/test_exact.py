"""Exact fronts against every plan there is, and against an integer program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from toy_predictor import DEMANDS, Toy, mixed_tasks
from yardsticks import SMALL, added_up, costs_of, every_plan

from heshare.errors import InputError
from heshare.scheduling.costs import BatchCosts, Freedom
from heshare.scheduling.enumeration import possible, subsets
from heshare.scheduling.exact import LARGEST, exact_front, front_of
from heshare.scheduling.pareto import Front, non_dominated
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.scheduling.subsets import queue_fronts, sets_by_task
from heshare.world.cluster import Cluster


def by_hand(front: Front, n: int) -> np.ndarray:
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
def test_the_front_of_every_plan_there_is(n: int, cluster: str, seed: int) -> None:
    costs = costs_of(n, cluster, seed=seed)
    expected = every_plan(costs)
    found = by_hand(front_of(costs), n)
    assert len(found) == len(expected)
    assert found == pytest.approx(expected, rel=1e-9)


def test_plans_cost_what_the_front_says() -> None:
    costs = costs_of(7, "1xA100,1xT4,1xA100")
    front = front_of(costs)
    assert len(front) > 10
    for one in front.plans:
        assert added_up(one, costs, Toy(demand=DEMANDS)) == pytest.approx((one.energy_j, one.jct_s), rel=1e-9)


def least_by_integer_program(costs: BatchCosts, weights: tuple[float, float]) -> float:
    """The least weighted cost over all plans, by an integer program over (GPU, batch, tasks behind).

    A batch with b tasks behind it ends a queue if b is 0; otherwise the next batch must begin later in SPT order and
    have b tasks left, its own included. Flow conservation over the nodes (position, tasks left) says so.
    """
    n, columns, kinds = costs.world.n, [], costs.world.kind_of.tolist()
    batches = possible(costs)
    node = {
        key: at
        for at, key in enumerate((g, p, r) for g in range(len(kinds)) for p in range(n + 1) for r in range(n + 1))
    }
    for gpu, kind in enumerate(kinds):
        one = batches[kind]
        for left in range(n + 1):
            columns.append((0.0, [], None, (gpu, 0, left)))
            columns += [(0.0, [], (gpu, at, left), (gpu, at + 1, left)) for at in range(n)]
        columns.append((0.0, [], (gpu, n, 0), None))
        for row, places in enumerate(one.sets):
            members = places[places >= 0]
            for at in range(one.options.begin[row], one.options.begin[row + 1]):
                for left in range(len(members), n + 1):
                    behind = left - len(members)
                    jct_s = one.options.spent_s[at] + behind * one.options.end_s[at]
                    cost = weights[0] * one.options.energy_j[at] + weights[1] * jct_s
                    tail, head = (gpu, int(members[0]), left), (gpu, int(members[-1]) + 1, behind)
                    columns.append((cost, one.order[members].tolist(), tail, head))
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
        np.array([one[0] for one in columns]),
        constraints=LinearConstraint(matrix, right, right),
        integrality=np.ones(len(columns)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.0, 30.0), (1.0, 200.0)])
def test_weighted_sums_agree_with_an_integer_program(weights: tuple[float, float]) -> None:
    costs = costs_of(8, "1xT4,1xA100", Freedom(width=2, variants=1, clocks=2))
    found = (by_hand(front_of(costs), 8) @ np.array(weights)).min()
    assert found == pytest.approx(least_by_integer_program(costs, weights), rel=1e-7)


def test_no_plan_of_the_faithful_scheduler_is_better() -> None:
    tasks, cluster, toy = mixed_tasks(5), Cluster.parse("1xT4,1xV100,1xA100"), Toy(demand=DEMANDS)
    exact = exact_front(tasks, cluster, toy, freedom=Freedom(width=5, variants=1, mps_pcts=(100,)))
    faithful = plan(
        tasks, cluster, toy, rng=np.random.default_rng(0), settings=Settings(mps_pcts=(100,), generations=50)
    )
    both = np.concatenate((exact.objectives, faithful.objectives * (1 + 1e-9)))
    assert non_dominated(exact.objectives).all()
    assert not non_dominated(both)[len(exact) :].any()


def test_queue_fronts_of_all_sets_are_mutually_non_dominated_and_chain_to_their_cost() -> None:
    costs = costs_of(6, "1xV100")
    one = possible(costs)[0]
    fronts = queue_fronts(one)
    for some in range(1, 64):
        points = fronts.of(some)
        assert (np.diff(points[:, 0]) > 0).all()
        assert (np.diff(points[:, 1]) < 0).all()
        energy_j = one.options.energy_j[fronts.chain(fronts.begin[some])].sum()
        assert energy_j == pytest.approx(points[0, 0], rel=1e-12)


def test_sets_of_positions() -> None:
    assert sets_by_task(np.array([2, 0, 1])).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert subsets(3, 2).tolist() == [[0, -1], [0, 1], [0, 2], [1, -1], [1, 2], [2, -1]]


def test_too_many_tasks_are_told() -> None:
    with pytest.raises(InputError, match="at most 14"):
        exact_front(mixed_tasks(LARGEST + 1), Cluster.parse("1xT4"), Toy(demand=DEMANDS), freedom=SMALL)
    with pytest.raises(InputError, match="smaller batches"):
        subsets(400, 3)
