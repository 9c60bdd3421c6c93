"""Studies of the gap to the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import SMALL
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.optimum.exact_front import exact_front
from heshare.lab.plus.optimum.lower_bound import Bound
from heshare.lab.plus.search_settings import BatchChoices, SearchSettings
from heshare.paper.studies import optimality_gap
from heshare.prediction.oracle import DevicePredictor
from heshare.world.cluster import Cluster


def test_against_exact_compares_a_search_with_the_exact_front() -> None:
    row, exact, found = optimality_gap.against_exact(
        mixed_tasks(6),
        Cluster.parse("1xT4,1xA100"),
        Toy(demand=DEMANDS),
        rng=np.random.default_rng(0),
        effort=SearchSettings(rounds=3, choices=SMALL),
    )
    assert row["exact_points"] == len(exact)
    assert row["points"] == len(found)
    assert 0.98 < row["hypervolume"] <= 1 + 1e-9
    assert -1e-9 < row["gap_pct"] < 0.5


def test_device_front_of_exact_predictions_has_the_predicted_energy_and_jct() -> None:
    front = exact_front(
        mixed_tasks(4), Cluster.parse("1xT4,1xA100"), DevicePredictor(), choices=BatchChoices(2, 1, clocks=3)
    )
    ran = optimality_gap.device_front(front, points=3, rng=np.random.default_rng(0))
    assert len(ran) == min(3, len(front))
    assert ran["energy_j"].to_numpy() == pytest.approx(ran["predicted_j"].to_numpy(), rel=1e-6)
    assert ran["jct_s"].to_numpy() == pytest.approx(ran["predicted_s"].to_numpy(), rel=1e-6)


def test_envelope_spans_the_front() -> None:
    bound = Bound(np.array([[1.0, 1.0]]), np.array([10.0]), np.array([10.0]), np.array([1]))
    frame = optimality_gap.envelope(bound, np.array([[2.0, 9.0], [6.0, 5.0]]), points=3)
    assert frame["jct_s"].tolist() == [8.0, 6.0, 4.0]
