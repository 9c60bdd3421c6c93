"""Exact fronts against the enumeration of all plans, and against an integer program."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import SMALL, every_plan, executed, table_of
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import subsets
from heshare.lab.plus.exact_front import MAX_TASKS, exact_front, front_of
from heshare.scheduling.front import Front
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
def test_all_plans(n: int, cluster: str, seed: int) -> None:
    """The exact front is that of all plans."""
    table = table_of(n, cluster, seed=seed)
    expected = every_plan(table)
    front = totals(front_of(table), n)
    assert len(front) == len(expected)
    assert front == pytest.approx(expected, rel=1e-9)


def test_objectives() -> None:
    """The plans of an exact front have the objectives of their points."""
    table = table_of(7, "1xA100,1xT4,1xA100")
    front = front_of(table)
    assert len(front) > 10
    for plan in front.plans:
        assert executed(plan, table.instance, Toy(demand=DEMANDS)) == pytest.approx(
            (plan.energy_j, plan.jct_s), rel=1e-9
        )


def test_too_many() -> None:
    """Too many tasks and too many sets are refused."""
    with pytest.raises(InputError, match="at most 14"):
        exact_front(mixed_tasks(MAX_TASKS + 1), Cluster.parse("1xT4"), Toy(demand=DEMANDS), choices=SMALL)
    with pytest.raises(InputError, match="smaller batches"):
        subsets(400, 3)
