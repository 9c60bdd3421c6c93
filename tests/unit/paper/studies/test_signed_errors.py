"""Signed errors of a predictor, by how tasks share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from heshare.paper.studies.signed_errors import SHARES, drawn_sets, sets_of_plans, signed_errors
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CoRuns
from heshare.scheduling.plan import Batch, Plan
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


class TooFast(DevicePredictor):
    """Predicts sets that share a tenth too fast."""

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        runs = super().co_run(sets, gpu, sm_mhz)
        shared = np.array([len(residents) > 1 for residents in sets])
        return CoRuns(runs.time_s * np.where(shared, 0.9, 1.0)[:, None], runs.power_w)


def test_signed_errors() -> None:
    """Errors keep their sign, by how tasks share."""
    rng = np.random.default_rng(0)
    sets = {kind: drawn_sets(kind, "V100", 6, (4, 8), rng) for kind in SHARES}
    sums = {kind: [sum(task.mps_pct for task in each) for _, each, _ in own] for kind, own in sets.items()}
    assert max(sums["sum at most 100 %"]) <= 100 < min(sums["sum 100 to 200 %"]) <= max(sums["sum 100 to 200 %"]) <= 200
    assert {task.mps_pct for _, each, _ in sets["all at 100 %"] for task in each} == {100}
    table = signed_errors(sets, TooFast()).set_index("sharing")
    assert table.loc["alone", "time_pct"] == pytest.approx(0.0)
    assert table.loc["all at 100 %", ["time_low_pct", "time_pct", "time_high_pct"]].tolist() == pytest.approx(
        [-10.0] * 3
    )
    assert table["power_pct"].tolist() == pytest.approx([0.0] * 4)


def test_sets_of_plans() -> None:
    """Sets of plans are the batches in which tasks share a GPU."""
    tasks = tuple(Task(at, Workload("resnet50", 8), 100) for at in range(3))
    queue = (Batch((0, 1), (100, 40), None), Batch((2,), (100,), None))
    (found,) = sets_of_plans([Plan(Cluster.parse("1xT4"), tasks, (queue,), 1.0, 1.0)])
    assert found == ("T4", (Resident(tasks[0].workload, 100), Resident(tasks[1].workload, 40)), None)
