"""The improved front of one small instance: a change of it is a row of the table in CHANGELOG.md."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_regressions.num_regression import NumericRegressionFixture
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchChoices
from heshare.lab.plus.heshare_plus import SearchSettings, optimise
from heshare.world.cluster import Cluster


@pytest.mark.slow
def test_improved_front_of_a_small_world(num_regression: NumericRegressionFixture) -> None:
    front = optimise(
        mixed_tasks(24),
        Cluster.parse("2xT4,1xV100,1xA100"),
        Toy(demand=DEMANDS),
        rng=np.random.default_rng(11),
        effort=SearchSettings(rounds=3, weights=8, front_plans=12, choices=BatchChoices(clocks=4, mps_variants=2)),
    )
    num_regression.check(
        {
            "energy_j": front.objectives[:, 0],
            "jct_s": front.objectives[:, 1],
            "batches": [sum(len(queue) for queue in plan.queues) for plan in front.plans],
        },
        default_tolerance={"rtol": 1e-9, "atol": 0.0},
    )
