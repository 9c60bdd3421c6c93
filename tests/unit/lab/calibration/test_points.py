"""Left-out points: their table, the uncertainty stated for a cell, and coverage of the stated intervals."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration.validation.points import LeftOutPoint, cell_point, coverage, table_of
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def _points(errors: list[float], uncertainty: float, **fields: str) -> list[LeftOutPoint]:
    modelled = [float(np.exp(error)) for error in errors]
    return [LeftOutPoint("t", "A100", "x", "", "s", 1.0, value, uncertainty, **fields) for value in modelled]


def test_coverage_counts_points_inside_the_68_and_90_pct_intervals():
    table = table_of(_points([0.05, 0.15, -0.15, 0.2], 0.1, kind="cnn"))
    covered = coverage(table).set_index(["grouping", "group"])
    assert covered.loc[("all", ""), "within_68_pct"] == pytest.approx(25)
    assert covered.loc[("all", ""), "within_90_pct"] == pytest.approx(75)
    assert covered.loc[("kind", "cnn"), "n"] == 4
    assert covered.loc[("quantity", "time"), "median_uncertainty_pct"] == pytest.approx(10)


def test_coverage_leaves_out_points_without_a_stated_uncertainty():
    table = table_of([*_points([0.0], 0.1), ("t", "A100", "x", "", "W", 1.0, 2.0)])
    assert coverage(table).set_index("grouping").loc["all", "n"] == 1
    assert table.error_pct.tolist() == pytest.approx([0.0, 100.0])


def test_cell_point_states_what_co_run_states():
    resident = Resident(Workload("resnet50", 8, engine="tensorrt"), 40)
    parts = co_run(catalogue.gpu("V100-SXM2"), [resident]).tasks[0].uncertainty_parts
    inside = cell_point("t", default(), "V100-SXM2", [resident], 1.0, 1.1)
    assert inside.uncertainty == parts.within_framework
    assert (inside.kind, inside.engine, inside.precision, inside.item) == ("cnn", "tensorrt", "fp32", "resnet50")
