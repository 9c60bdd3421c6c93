"""Validation of the forms on one GPU's profiles: disjoint halves, a fit of another truth, errors by form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration import record_validation
from heshare.lab.calibration.record_fit import ObservedSetting, fit_record, observed_settings
from heshare.ops.recording import recordings
from heshare.profiles import store
from heshare.shared import files
from heshare.world.catalogue import gpu, resident


@pytest.fixture(scope="module")
def measured(made_up_h100: Path) -> pd.DataFrame:
    return recordings.read_one(str(made_up_h100)).table


@pytest.fixture(scope="module")
def a100() -> pd.DataFrame:
    return store.read(files.data("profiles", "emulated", "A100"))


def test_form_tested_names_one_form_for_each_row(a100: pd.DataFrame) -> None:
    table = a100.assign(form=record_validation.form_tested(a100))
    assert set(table["form"]) == set(record_validation.FORMS)
    assert (table[table["form"] == "pairs"]["co_runners"].str.count(r"\+") == 0).all()
    assert (table[table["form"] == "clock"]["sm_mhz"] < 1410).all()
    assert (table[table["form"] == "MPS percentage"]["mps_pct"] < 100).all()


def test_fitted_half_splits_each_form_and_keeps_sets_together(measured: pd.DataFrame) -> None:
    half = record_validation.fitted_half(measured, np.random.default_rng(1))
    assert 0.45 < half.mean() < 0.6
    by_form = pd.Series(half).groupby(record_validation.form_tested(measured).to_numpy()).mean()
    assert by_form.between(0.35, 0.65).all()
    sets = [tuple(sorted(map(str, setting.residents))) for setting in observed_settings(measured)]
    fitted = {members for members, kept in zip(sets, half, strict=True) if kept}
    assert not fitted & {members for members, kept in zip(sets, half, strict=True) if not kept}
    again = record_validation.fitted_half(measured, np.random.default_rng(1))
    assert (half == again).all()


def test_left_out_points_have_small_errors_for_fitted_forms_and_not_for_the_shipped_model(
    measured: pd.DataFrame,
) -> None:
    errors = record_validation.errors_by_form(record_validation.left_out_points(measured, splits=1)).set_index(
        ["form", "quantity"]
    )
    assert set(errors["provenance"]) == {"measured"}
    assert "clock" not in {form for form, _ in errors.index}, "none was recorded"
    assert (errors["fitted_pct"] < 0.35 * errors["shipped_pct"]).all()
    assert errors.loc[("pairs", "time"), "shipped_pct"] > 15


def test_errors_by_form_are_means_over_points() -> None:
    points = pd.DataFrame(
        {
            "gpu": "H100",
            "provenance": "measured",
            "form": "pairs",
            "quantity": "time",
            "measured": [1.0, 2.0],
            "fitted": [1.1, 2.0],
            "shipped": [0.5, 3.0],
        }
    )
    (row,) = record_validation.errors_by_form(points).to_dict("records")
    assert (row["n"], row["fitted_pct"], row["shipped_pct"]) == (2, 5.0, 50.0)


def test_fit_record_recovers_power_constants_from_exact_settings() -> None:
    h100, truth = gpu("H100"), default().with_power("H100", dynamic_w=500.0, sharing=0.3)
    settings = []
    for model in ("resnet50", "vgg19", "densenet201"):
        for size in (1, 2, 4, 8, 16, 32):
            for names in ((f"{model}:{size}@100",), (f"{model}:{size}@50",), (f"{model}:{size}@50", "resnet18:8@50")):
                residents = tuple(map(resident, names))
                estimate = co_run(h100, residents, constants=truth)
                settings.append(ObservedSetting(residents, estimate.sm_mhz, estimate.tasks[0].time_s, estimate.power_w))
    fitted = fit_record(h100, settings, truth.power["H100"].idle_w)
    assert fitted.power["H100"].dynamic_w == pytest.approx(500, rel=0.15)
    assert fitted.power["H100"].knee_mhz == truth.power["H100"].knee_mhz, "no clock was set, so it stays as shipped"
    assert set(fitted.power) == {"H100"}


def test_power_by_activity_states_the_source_of_the_utilisation(a100: pd.DataFrame, measured: pd.DataFrame) -> None:
    assert set(record_validation.power_by_activity(a100)["told_by"]) == {"model"}
    partly_missing = measured.assign(sm_util_pct=np.where(measured.index % 2 == 0, np.nan, measured["sm_util_pct"]))
    activity = record_validation.power_by_activity(partly_missing)
    assert set(activity["told_by"]) == {"card", "model"}
    assert activity["activity_pct"].between(0, 100).all()
    assert not activity.isna().any().any()
