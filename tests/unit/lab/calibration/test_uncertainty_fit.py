"""Fit of the spreads behind the stated intervals: quantiles of made-up errors, and tables that enter no fit."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.lab.calibration import uncertainty_fit
from heshare.lab.calibration.uncertainty_fit import FrameworkErrors


def test_quantile_range_is_over_fits_without_one_item():
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


def test_fit_framework_spreads_recovers_the_spread_of_made_up_tables():
    errors = _made_up(0.3)
    fitted = uncertainty_fit.fit_framework_spreads(errors, np.ones(4000, dtype=bool))
    assert fitted["cnn"] == pytest.approx(0.3, abs=0.021)
    inside = np.abs(np.log(errors.modelled)) <= 1.645 * errors.uncertainty(fitted)
    assert inside.mean() == pytest.approx(0.9, abs=0.02)


def test_framework_rows_are_of_no_record_that_times_were_fitted_to():
    rows = uncertainty_fit.framework_rows()
    fitted = rows[rows.framework.isin(["TensorRT 8.0", "Paddle Inference with TensorRT", "PyTorch 21.11"])]
    assert set(fitted.workload) <= {"bert_large"}
    assert len(rows) > 200
    assert not rows.source.isna().any()
