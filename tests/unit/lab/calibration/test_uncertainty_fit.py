"""Spreads behind the stated intervals, and how often these hold on left-out points."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration import uncertainty_fit
from heshare.lab.calibration.intervals import interval_score
from heshare.lab.calibration.uncertainty_fit import FrameworkErrors
from heshare.lab.calibration.validation.points import LeftOutPoint, cell_point, coverage, table_of
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def test_quantile_range():
    """The range of a quantile is over fits without one item."""
    errors = {"a": np.full(9, 0.1), "b": np.full(9, 0.2)}
    ranged = uncertainty_fit.quantile_range(errors, "made up")
    assert (ranged.low, ranged.value, ranged.high) == pytest.approx((0.1 / 1.645, 0.2 / 1.645, 0.2 / 1.645))


def _made_up(cnn: float, n: int = 4000) -> FrameworkErrors:
    errors = np.random.default_rng(1).normal(0, cnn, n)
    table = np.arange(n) // 10
    kind = np.vstack([np.ones(n), np.zeros(n), np.zeros(n)])
    zeros = np.zeros(n)
    return FrameworkErrors(
        (), [""] * n, [""] * n, table, np.ones(n), np.exp(errors), zeros, kind, zeros, np.zeros((61, n))
    )


def test_framework_spreads():
    """The fit recovers the spread of made-up tables."""
    errors = _made_up(0.3)
    fitted = uncertainty_fit.fit_framework_spreads(errors, np.ones(4000, dtype=bool))
    assert fitted["cnn"] == pytest.approx(0.3, abs=0.021)
    inside = np.abs(np.log(errors.modelled)) <= 1.645 * errors.uncertainty(fitted)
    assert inside.mean() == pytest.approx(0.9, abs=0.02)


def test_interval_score():
    """The score is the width and twenty times what lies outside."""
    errors, half_widths = np.array([0.1, 0.2, 0.5]), np.array([0.2, 0.2, 0.3])
    assert interval_score(errors, half_widths) == pytest.approx([0.4, 0.4, 0.6 + 20 * 0.2])


def test_score_and_sharpness():
    """Coverage has the score and the sharpness of 90 % intervals."""
    # Half width 0.1645; of the errors 0.05, 0.15 and 0.2645 the 90th percentile is 0.2416, and one lies 0.1 outside.
    all_points = coverage(table_of(_points([0.05, -0.15, 0.2645], 0.1))).iloc[0]
    assert all_points.interval_score == pytest.approx(0.329 + 20 * 0.1 / 3, abs=1e-9)
    assert all_points.sharpness == pytest.approx(0.1645 / 0.2416, abs=1e-9)


def _points(errors: list[float], uncertainty: float, **fields: str) -> list[LeftOutPoint]:
    modelled = [float(np.exp(error)) for error in errors]
    return [LeftOutPoint("t", "A100", "x", "", "s", 1.0, value, uncertainty, **fields) for value in modelled]


def test_coverage():
    """Coverage counts the points inside of 68 % and 90 % intervals."""
    table = table_of(_points([0.05, 0.15, -0.15, 0.2], 0.1, kind="cnn"))
    covered = coverage(table).set_index(["grouping", "group"])
    assert covered.loc[("all", ""), "within_68_pct"] == pytest.approx(25)
    assert covered.loc[("all", ""), "within_90_pct"] == pytest.approx(75)
    assert covered.loc[("kind", "cnn"), "n"] == 4
    assert covered.loc[("quantity", "time"), "median_uncertainty_pct"] == pytest.approx(10)


def test_no_uncertainty():
    """Points without a stated uncertainty are left out."""
    table = table_of([*_points([0.0], 0.1), ("t", "A100", "x", "", "W", 1.0, 2.0)])
    assert coverage(table).set_index("grouping").loc["all", "n"] == 1
    assert table.error_pct.tolist() == pytest.approx([0.0, 100.0])


def test_cell_point():
    """A point has the uncertainty that `co_run` states."""
    resident = Resident(Workload("resnet50", 8, engine="tensorrt"), 40)
    parts = co_run(catalogue.gpu("V100-SXM2"), [resident]).tasks[0].uncertainty_parts
    inside = cell_point("t", default(), "V100-SXM2", [resident], 1.0, 1.1)
    assert inside.uncertainty == parts.within_framework
    assert (inside.kind, inside.engine, inside.precision, inside.item) == ("cnn", "tensorrt", "fp32", "resnet50")
