"""Studies of the gap to the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import SMALL
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

import heshare as hs
from heshare.lab.plus.heshare_plus import SearchSettings
from heshare.lab.plus.lower_bound import Bound
from heshare.scheduling.front import Front
from heshare.world.cluster import Cluster

CLUSTER = "1xT4,1xV100"


@pytest.fixture(scope="module")
def fronts() -> dict[str, Front]:
    tasks = hs.task_set(6, seed=3)
    return {"HeShare": hs.plan(tasks, CLUSTER, seed=0), "HeShare+": hs.optimise(tasks, CLUSTER, seed=0)}


def test_against_exact() -> None:
    """A search's front is compared with the exact one."""
    from heshare.paper.studies import optimality_gap

    row = optimality_gap.against_exact(
        mixed_tasks(6),
        Cluster.parse("1xT4,1xA100"),
        Toy(demand=DEMANDS),
        rng=np.random.default_rng(0),
        effort=SearchSettings(rounds=3, choices=SMALL),
    )
    assert row["points"] <= row["exact_points"]
    assert 0.98 < row["hypervolume"] <= 1 + 1e-9
    assert 0 <= row["gap_pct"] < 0.5


def test_bound_points(fronts: dict[str, Front]) -> None:
    """Points are the plans with their gaps, and the bound over their range of energy."""
    from heshare.paper.studies import optimality_gap

    plan = fronts["HeShare"][:2]
    low_j, high_j = plan.objectives[:, 0]
    # One weight: energy in J plus average JCT in s is at least 10.
    bound = Bound(np.array([[1.0, 1.0]]), np.array([high_j + 10.0]), np.array([0.0]), np.array([1]))
    points = optimality_gap.bound_points({"HeShare": plan}, bound, points=3)
    envelope = points[points["series"] == optimality_gap.BOUND]
    assert envelope["energy_j"].tolist() == pytest.approx([low_j, (low_j + high_j) / 2, high_j])
    assert (envelope["energy_j"] + envelope["jct_s"]).tolist() == pytest.approx([high_j + 10.0] * 3)
    assert envelope["gap_pct"].isna().all()
    plans = points[points["series"] == "HeShare"]
    assert plans["gap_pct"].tolist() == pytest.approx(bound.gap_pct(plan.objectives))
