"""Exact fronts against the enumeration of all plans, and against an integer program."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import SMALL, every_plan, executed, table_of
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchChoices, subsets
from heshare.lab.plus.exact_front import MAX_TASKS, exact_front, front_of
from heshare.scheduling import planner
from heshare.scheduling.front import Front
from heshare.scheduling.pareto import non_dominated
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
    table = table_of(n, cluster, seed=seed)
    expected = every_plan(table)
    front = totals(front_of(table), n)
    assert len(front) == len(expected)
    assert front == pytest.approx(expected, rel=1e-9)


def test_exact_front_plans_have_the_objectives_of_their_points() -> None:
    table = table_of(7, "1xA100,1xT4,1xA100")
    front = front_of(table)
    assert len(front) > 10
    for plan in front.plans:
        assert executed(plan, table.instance, Toy(demand=DEMANDS)) == pytest.approx(
            (plan.energy_j, plan.jct_s), rel=1e-9
        )


def test_exact_front_is_not_dominated_by_the_papers_scheduler() -> None:
    tasks, cluster, toy = mixed_tasks(5), Cluster.parse("1xT4,1xV100,1xA100"), Toy(demand=DEMANDS)
    exact = exact_front(tasks, cluster, toy, choices=BatchChoices(width=5, mps_variants=1, mps_pcts=(100,)))
    paper = planner.plan(
        tasks, cluster, toy, rng=np.random.default_rng(0), settings=Settings(mps_pcts=(100,), generations=50)
    )
    both = np.concatenate((exact.objectives, paper.objectives * (1 + 1e-9)))
    assert non_dominated(exact.objectives).all()
    assert not non_dominated(both)[len(exact) :].any()


def test_exact_front_refuses_too_many_tasks_and_subsets_too_many_sets() -> None:
    with pytest.raises(InputError, match="at most 14"):
        exact_front(mixed_tasks(MAX_TASKS + 1), Cluster.parse("1xT4"), Toy(demand=DEMANDS), choices=SMALL)
    with pytest.raises(InputError, match="smaller batches"):
        subsets(400, 3)
