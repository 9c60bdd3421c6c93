"""The law of language models: fitted to the record, its errors with a model left out, and what it assumes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.language_models import FITTED_ON, default_law
from heshare.lab.calibration import language_fit
from heshare.lab.calibration.validation import law_points
from heshare.shared import files
from heshare.world import catalogue


@pytest.fixture(scope="module")
def power():
    return default().power[FITTED_ON]


def test_the_shipped_constants_are_the_fitted_ones():
    ((_, ranges),) = language_fit.language_constants(default())
    for name, ranged in ranges.items():
        assert getattr(default_law(), name) == pytest.approx(ranged.value, rel=2e-3)
        assert ranged.low <= ranged.value <= ranged.high


def test_a_fit_recovers_the_law_of_made_up_rows(monkeypatch, power):
    rows, truth = language_fit.server_rows(), replace(default_law(), step_s=2e-3, compute=0.4, traffic=0.8)
    made_up = replace(rows, measured=language_fit.predicted(truth, power, rows))
    monkeypatch.setattr(language_fit, "server_rows", lambda: made_up)
    below_limit = made_up.measured["power"] < catalogue.gpu(FITTED_ON).tdp_w
    found = language_fit.fit_law(power, below_limit)
    for name in ("step_s", "sequence_s", "compute", "traffic", "operations"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-3)


def test_errors_of_models_left_out_meet_the_targets(power):
    rows, laws = language_fit.server_rows(), language_fit.left_out_laws(power)
    assert set(laws) == set(rows.models)
    for quantity, test in law_points.LANGUAGE.items():
        errors, inside = [], []
        for model, law in laws.items():
            own = rows.of(model)
            ratio = (language_fit.predicted(law, power, rows)[quantity] / rows.measured[quantity])[own]
            errors.extend(100 * np.abs(ratio - 1.0))
            spread = law.power_spread if quantity == "power" else law.time_spread
            spread = np.hypot(law.power_spread, law.time_spread) if quantity == "joules" else spread
            inside.extend(np.abs(np.log(ratio)) <= 1.645 * spread)
        middle, most = law_points.TARGETS[test]
        assert np.median(errors) < middle
        assert np.quantile(errors, 0.9) < most
        assert 0.85 <= np.mean(inside) <= 0.96


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_the_assumed_prompts_decide_no_target(monkeypatch, power, factor: float):
    prompts = {name: factor * tokens for name, tokens in language_fit.PROMPT_TOKENS.items()}
    monkeypatch.setattr(language_fit, "PROMPT_TOKENS", prompts)
    language_fit.server_rows.cache_clear()
    try:
        rows, laws = language_fit.server_rows(), language_fit.left_out_laws(power)
        for quantity, (middle, most) in {"time": (15, 30), "power": (12, 25), "joules": (15, 35)}.items():
            found = {model: language_fit.predicted(law, power, rows)[quantity] for model, law in laws.items()}
            errors = (
                np.array([found[model][row] for row, model in enumerate(rows.models)]) / rows.measured[quantity] - 1
            )
            assert 100 * np.median(np.abs(errors)) < middle
            assert 100 * np.quantile(np.abs(errors), 0.9) < most
    finally:
        language_fit.server_rows.cache_clear()


def test_left_out_errors_stand_in_the_table():
    table = files.data("calibration", "errors.csv").read_text("utf-8")
    assert all(name in table for name in law_points.LANGUAGE.values())
