"""Modules of `make bench`: rows against the last result; the evaluation of a queue, which is that of HeShare+."""

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


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize(
    ("name", "now", "before", "worse"),
    [
        ("speed_vs_moead", [20.0] * 5, [35.0] * 5, True),
        ("speed_vs_moead", [40.0] * 5, [35.0] * 5, False),
        ("speed_vs_moead", [34.0, 36.0] * 3, [35.0, 37.0] * 3, False),
        ("gap_bound_pct_largest", [0.6], [0.5], True),
        ("gap_bound_pct_largest", [0.52], [0.5], False),
        ("gap_bound_pct_largest", [0.1], [0.5], False),
    ],
)
def test_worse(name: str, now: list[float], before: list[float], worse: bool) -> None:
    """A value is worse than the last one if it differs by more than the spread."""
    rows: Any = importlib.import_module("bench_rows")
    ours, theirs = (rows.with_spread(rows.sample_row(name, values)) for values in (now, before))
    assert rows.worse(ours, theirs) is worse
    assert not rows.worse(ours, None)
    lines = rows.table([ours], {name: theirs})
    assert ("WORSE" in lines[1]) is worse
    assert ("MISSED" in lines[1]) is not rows.targets()[name].met(ours["value"])


def test_queue_record() -> None:
    """The record of a queue has the cheapest plan of a scheme at each weight."""
    bench: Any = importlib.import_module("queue_evaluation")
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
