"""Golden front of a small task set; a change of it is a row of the table in CHANGELOG.md."""

from __future__ import annotations

import numpy as np
from pytest_regressions.num_regression import NumericRegressionFixture
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster


def test_front(num_regression: NumericRegressionFixture) -> None:
    """A front of a small task set is kept."""
    front = plan(
        mixed_tasks(24),
        Cluster.parse("2xT4,1xV100,1xA100"),
        Toy(demand=DEMANDS),
        rng=np.random.default_rng(11),
        settings=Settings(generations=40, front=12),
    )
    num_regression.check(
        {
            "energy_j": front.objectives[:, 0],
            "jct_s": front.objectives[:, 1],
            "batches": [sum(len(queue) for queue in plan_.queues) for plan_ in front.plans],
        },
        default_tolerance={"rtol": 1e-9, "atol": 0.0},
    )
