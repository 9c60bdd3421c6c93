"""Fits for trainings and MIG instances: errors on what was left out, as `data/README.md` states them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from heshare.devices.constants import default, fitted
from heshare.lab.calibration import training_fit


def errors(points) -> pd.Series:
    table = pd.DataFrame(points)
    return table["modelled"] / table["measured"] - 1


def test_fit_rates():
    """Rates are geometric means over trainings, and the shipped ones are those of a new fit."""
    rates = training_fit.fit_rates()
    assert rates["V100-SXM2", "cnn"] == rates["V100-SXM2", "transformer"] == 1
    assert rates["A100", "cnn"] == pytest.approx((1067 / 369.4 * 304.3 / 104.8) ** 0.5, rel=1e-3)
    assert training_fit.fit_rates(without="ssd-train")["A100", "cnn"] == pytest.approx(1067 / 369.4, rel=1e-3)
    assert fitted("training")["A100", "", "cnn"]["rate"] == pytest.approx(rates["A100", "cnn"], rel=1e-3)


@pytest.mark.parametrize(
    ("points", "count", "mape", "p90"),
    [
        (training_fit.left_out_models, 100, 0.08, 0.16),
        (training_fit.left_out_pairs, 1000, 0.14, 0.34),
        (lambda: training_fit.left_out_instances(default()), 200, 0.12, 0.25),
    ],
    ids=["models", "pairs", "instances"],
)
def test_left_out_errors(points, count, mape, p90):
    """Errors on what was left out are within those that `data/README.md` states."""
    found = errors(points()).abs()
    assert len(found) >= count
    assert found.mean() < mape
    assert found.quantile(0.9) < p90


def test_gpu_spread():
    """The stated error of a GPU left out is that of the rates of the others, and its interval holds nearly all."""
    found = list(training_fit.left_out_gpus(default()))
    spread = training_fit.spread(found)
    assert fitted("training")["", "", ""]["gpu"] == pytest.approx(spread, rel=2e-2)
    assert len(found) >= 4
    inside = [abs(math.log(point.modelled / point.measured)) < 1.645 * spread for point in found]
    assert sum(inside) >= len(inside) - 1


def test_bias():
    """MIG instances that are left out have no bias in any size."""
    points = pd.DataFrame(training_fit.left_out_instances(default()))
    bias = errors(points).groupby(points["setting"].str[-2:]).mean()
    assert bias.abs().max() < 0.06
