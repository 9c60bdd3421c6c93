"""The rivals' evaluation of a queue in `make bench` is HeShare+'s."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchTable
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.operators import random_schemes
from heshare.world.cluster import Cluster

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
N = 8


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("queue_evaluation")


def test_queue_record(bench: Any) -> None:
    """The record has the cheapest plan of a scheme at each weight."""
    predictor = Toy(demand=DEMANDS)
    world = make_instance(mixed_tasks(N), Cluster.parse("1xT4,1xA100"), predictor)
    table = BatchTable(world, predictor)
    weights = bench.weights_of_front(table, np.random.default_rng(0))
    record = bench.QueueRecord(table, weights)

    (scheme,) = random_schemes(world.fits, 1, np.random.default_rng(1))
    schemes = np.tile(scheme, (len(weights), 1))
    points = record.objectives(schemes)
    front = bench.front_of_schemes(Schemes(schemes[:1], evaluate_schemes(schemes[:1], world), 1), table)

    for weight, point in zip(weights * N, points, strict=True):
        assert point @ [1, weight] == pytest.approx((front @ [1, weight]).min(), rel=1e-4)
    assert points[0, 0] < points[-1, 0], "the least weight on time gives the least energy"
    assert points[0, 1] > points[-1, 1]
    assert record.evaluations == 0
