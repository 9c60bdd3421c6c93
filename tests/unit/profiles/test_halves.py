"""The forms held against a record: halves that do not overlap, a fit that finds another truth, errors by form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare import files
from heshare.devices.calibration.forms import Setting, fit
from heshare.devices.constants import default
from heshare.devices.model import co_run
from heshare.profiles import halves, recordings, store
from heshare.world.catalogue import gpu, resident


@pytest.fixture(scope="module")
def measured(made_up_h100: Path) -> pd.DataFrame:
    return recordings.one(str(made_up_h100)).table


@pytest.fixture(scope="module")
def a100() -> pd.DataFrame:
    return store.read(files.data("profiles", "emulated", "A100"))


def test_each_row_tests_one_form(a100: pd.DataFrame) -> None:
    found = a100.assign(form=halves.form(a100))
    assert set(found["form"]) == set(halves.FORMS)
    assert (found[found["form"] == "pairs"]["co_runners"].str.count(r"\+") == 0).all()
    assert (found[found["form"] == "clock"]["sm_mhz"] < 1410).all()
    assert (found[found["form"] == "MPS percentage"]["mps_pct"] < 100).all()


def test_halves_split_each_form_and_keep_sets_together(measured: pd.DataFrame) -> None:
    half = halves.halve(measured, np.random.default_rng(1))
    assert 0.45 < half.mean() < 0.6
    by_form = pd.Series(half).groupby(halves.form(measured).to_numpy()).mean()
    assert by_form.between(0.35, 0.65).all()
    every = halves.settings(measured)
    sets = [tuple(sorted(map(str, one.residents))) for one in every]
    fitted = {one for one, kept in zip(sets, half, strict=True) if kept}
    assert not fitted & {one for one, kept in zip(sets, half, strict=True) if not kept}
    again = halves.halve(measured, np.random.default_rng(1))
    assert (half == again).all()


def test_a_workload_that_was_observed_once_is_fitted(measured: pd.DataFrame) -> None:
    once = measured[(measured["batch_size"] == 8) & (measured["co_runners"] == "") & (measured["mps_pct"] == 100)]
    assert halves.halve(once.reset_index(drop=True), np.random.default_rng(0)).all()


def test_fitted_forms_find_a_truth_that_the_shipped_model_misses(measured: pd.DataFrame) -> None:
    found = halves.errors(halves.points(measured, splits=1)).set_index(["form", "quantity"])
    assert set(found["provenance"]) == {"measured"}
    assert "clock" not in {form for form, _ in found.index}, "none was recorded"
    assert (found["fitted_pct"] < 0.3 * found["shipped_pct"]).all()
    assert found.loc[("pairs", "time"), "shipped_pct"] > 15


def test_where_the_shipped_model_is_the_truth_its_error_is_the_noise(a100: pd.DataFrame) -> None:
    found = halves.errors(halves.points(a100, splits=1))
    assert (found["shipped_pct"] < 1).all()
    assert (found["fitted_pct"] < 3).all()
    assert list(found["form"]) == [*halves.FORMS, *halves.FORMS]
    assert (found["fitted_pct"] <= found["fitted_p90_pct"] * 1.5).all()


def test_errors_are_those_of_the_points() -> None:
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
    (row,) = halves.errors(points).to_dict("records")
    assert (row["n"], row["fitted_pct"], row["shipped_pct"]) == (2, 5.0, 50.0)


def test_power_constants_come_back_from_exact_settings() -> None:
    card, truth = gpu("H100"), default().with_power("H100", dynamic_w=500.0, sharing=0.3)
    settings = []
    for model in ("resnet50", "vgg19", "densenet201"):
        for size in (1, 2, 4, 8, 16, 32):
            for names in ((f"{model}:{size}@100",), (f"{model}:{size}@50",), (f"{model}:{size}@50", "resnet18:8@50")):
                residents = tuple(map(resident, names))
                found = co_run(card, residents, constants=truth)
                settings.append(Setting(residents, found.sm_mhz, found.tasks[0].time_s, found.power_w))
    fitted = fit(card, settings, truth.power["H100"].idle_w)
    assert fitted.power["H100"].dynamic_w == pytest.approx(500, rel=0.15)
    assert fitted.power["H100"].knee_mhz == truth.power["H100"].knee_mhz, "no clock was set, so it stays as shipped"
    assert set(fitted.power) == {"H100"}


def test_activity_says_who_told_it(a100: pd.DataFrame, measured: pd.DataFrame) -> None:
    assert set(halves.activity(a100)["told_by"]) == {"model"}
    blind = measured.assign(sm_util_pct=np.where(measured.index % 2 == 0, np.nan, measured["sm_util_pct"]))
    found = halves.activity(blind)
    assert set(found["told_by"]) == {"card", "model"}
    assert found["activity_pct"].between(0, 100).all()
    assert not found.isna().any().any()
