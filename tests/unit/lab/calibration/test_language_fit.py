"""The law of language models: fitted to the record, its errors with a model left out, and what it assumes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.language_models import FITTED_ON, default_law
from heshare.lab.calibration import language_fit
from heshare.world import catalogue

GOALS = {"time": (15.0, 30.0), "step": (15.0, 30.0), "power": (12.0, 25.0), "joules": (15.0, 30.0)}
"""Largest acceptable (median, 90th percentile) of the absolute error on a model that is left out, %."""


@pytest.fixture(scope="module")
def power():
    return default().power[FITTED_ON]


def test_shipped_constants():
    """A new fit gives the shipped constants, each within its range."""
    ((_, ranges),) = language_fit.language_constants(default())
    for name, ranged in ranges.items():
        assert getattr(default_law(), name) == pytest.approx(ranged.value, rel=2e-3)
        assert ranged.low <= ranged.value <= ranged.high


def test_fit_law(monkeypatch, power):
    """The fit recovers the law of made-up rows."""
    rows, truth = language_fit.server_rows(), replace(default_law(), step_s=2e-3, compute=0.4, traffic=0.8)
    made_up = replace(rows, measured=language_fit.predicted(truth, power, rows))
    monkeypatch.setattr(language_fit, "server_rows", lambda: made_up)
    below_limit = made_up.measured["power"] < catalogue.gpu(FITTED_ON).tdp_w
    found = language_fit.fit_law(power, below_limit)
    for name in ("step_s", "sequence_s", "compute", "traffic", "operations"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-3)


def test_models_left_out(power):
    """Errors on models that are left out meet their targets, and the stated intervals hold."""
    rows, laws = language_fit.server_rows(), language_fit.left_out_laws(power)
    assert set(laws) == set(rows.models)
    for quantity, (middle, most) in GOALS.items():
        errors, inside = [], []
        for model, law in laws.items():
            own = rows.of(model)
            ratio = (language_fit.predicted(law, power, rows)[quantity] / rows.measured[quantity])[own]
            errors.extend(100 * np.abs(ratio - 1.0))
            spread = law.power_spread if quantity == "power" else law.time_spread
            spread = np.hypot(law.power_spread, law.time_spread) if quantity == "joules" else spread
            inside.extend(np.abs(np.log(ratio)) <= 1.645 * spread)
        assert np.median(errors) < middle
        assert np.quantile(errors, 0.9) < most
        assert 0.85 <= np.mean(inside) <= 0.96
