"""The device model fitted to one GPU's record: exact settings, disjoint halves, errors by form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration import record_validation
from heshare.lab.calibration.record_fit import (
    ObservedSetting,
    co_run_arrays,
    fit_record,
    observed_settings,
    setting_arrays,
    time_array,
)
from heshare.ops.recording import recordings
from heshare.profiles import store
from heshare.shared import files
from heshare.world.catalogue import gpu, resident

A100 = gpu("A100")
FEW = {"bert_large", "gpt2", "mobilenet", "mobilenetv2", "resnet101", "resnet152"}
FEW |= {f"densenet{layers}" for layers in (121, 161, 201)}
"""Workloads of a fit that takes seconds."""
SETS = [
    ["resnet50:8@100"],
    ["vgg19:32@30"],
    ["bert_large:1@70"],
    ["resnet50:8@100", "vgg19:4@50"],
    ["mobilenet:1@10", "gpt2:16@90", "densenet201:8@40"],
    ["transformer:8@100", *["resnet18:2@20"] * 9],
]


@pytest.mark.parametrize("sm_mhz", [1410, 1005, 600])
@pytest.mark.slow
def test_co_run_arrays(sm_mhz: int) -> None:
    """Arrays of settings give what the device model gives."""
    constants = default()
    timing = {key: row for key, row in constants.timing.items() if key[0] == "A100"}
    sets = [tuple(map(resident, texts)) for texts in SETS]
    expected = [co_run(A100, residents, sm_mhz) for residents in sets]
    reached = np.array([estimate.sm_mhz for estimate in expected])
    power = constants.power["A100"]
    settings = setting_arrays(A100, sets, reached, timing, power, constants.loads)
    time_s, power_w = co_run_arrays(settings, time_array(timing), constants.contention["A100"], power)
    assert time_s == pytest.approx([estimate.tasks[0].time_s for estimate in expected], rel=1e-9)
    assert power_w == pytest.approx([estimate.power_w for estimate in expected], rel=1e-9)


def test_times_and_power() -> None:
    """The fit recovers times and power from exact settings."""
    rng = np.random.default_rng(4)
    names = ("resnet50", "vgg19", "densenet201", "mobilenetv2")
    truth, settings = default(), []
    texts = [[f"{name}:{size}@{pct}"] for name in names for size in (1, 4, 8, 32) for pct in (100, 40)]
    texts += [
        [f"{name}:{rng.choice((4, 8))}@{rng.choice((30, 60, 100))}" for name in rng.choice(names, 3)] for _ in texts
    ]
    for text in texts:
        residents = tuple(map(resident, text))
        estimate = co_run(A100, residents)
        settings.append(ObservedSetting(residents, estimate.sm_mhz, estimate.tasks[0].time_s, estimate.power_w))
    fitted = fit_record(A100, settings, truth.power["A100"].idle_w)
    for text in (["resnet50:16@70"], ["vgg19:2@100", "mobilenetv2:16@50"], ["densenet201:16@20", "resnet50:8@80"]):
        residents = tuple(map(resident, text))
        expected, modelled = co_run(A100, residents), co_run(A100, residents, constants=fitted)
        assert modelled.tasks[0].time_s == pytest.approx(expected.tasks[0].time_s, rel=0.06)
        assert modelled.power_w == pytest.approx(expected.power_w, rel=0.06)


@pytest.fixture(scope="module")
def measured(made_up_h100: Path) -> pd.DataFrame:
    return recordings.read(f"recorded:{made_up_h100}")[0].table


@pytest.fixture(scope="module")
def a100() -> pd.DataFrame:
    return store.read(files.data("profiles", "emulated", "A100"))


def test_forms(a100: pd.DataFrame) -> None:
    """Each row has one form."""
    table = a100.assign(form=record_validation.form_tested(a100))
    assert set(table["form"]) == set(record_validation.FORMS)
    assert (table[table["form"] == "pairs"]["co_runners"].str.count(r"\+") == 0).all()
    assert (table[table["form"] == "clock"]["sm_mhz"] < 1410).all()
    assert (table[table["form"] == "MPS percentage"]["mps_pct"] < 100).all()


def test_fitted_half(a100: pd.DataFrame) -> None:
    """Half of each form is fitted, and rows of one set stay together."""
    half = record_validation.fitted_half(a100, np.random.default_rng(1))
    assert 0.45 < half.mean() < 0.6
    by_form = pd.Series(half).groupby(record_validation.form_tested(a100).to_numpy()).mean()
    assert by_form.between(0.35, 0.65).all()
    members = [tuple(sorted(map(str, setting.residents))) for setting in observed_settings(a100)]
    sets = list(zip(members, a100["sm_mhz"].tolist(), strict=True))
    fitted = {each for each, kept in zip(sets, half, strict=True) if kept}
    assert not fitted & {each for each, kept in zip(sets, half, strict=True) if not kept}
    again = record_validation.fitted_half(a100, np.random.default_rng(1))
    assert (half == again).all()


@pytest.mark.nightly
def test_left_out_points(
    measured: pd.DataFrame,
) -> None:
    """The fitted model has smaller errors on the other half than the shipped one."""
    others = measured["co_runners"].str.findall(r"[a-z]\w+(?=:)").map(set)
    few = measured[measured["workload"].isin(FEW) & (others <= FEW)]
    errors = record_validation.errors_by_form(record_validation.left_out_points(few, splits=1)).set_index(
        ["form", "quantity"]
    )
    assert set(errors["provenance"]) == {"measured"}
    assert "clock" not in {form for form, _ in errors.index}, "none was recorded"
    assert (errors["fitted_pct"] < 0.5 * errors["shipped_pct"]).all()


def test_errors_by_form() -> None:
    """Errors of a form are means over its points."""
    points = pd.DataFrame(
        {
            "gpu": "H100",
            "provenance": "measured",
            "form": "pairs",
            "quantity": "time",
            "measured": [1.0, 2.0],
            "fitted": [1.1, 2.0],
            "shipped": [0.5, 3.0],
            "inside": [True, False],
        }
    )
    (row,) = record_validation.errors_by_form(points).to_dict("records")
    assert (row["n"], row["fitted_pct"], row["shipped_pct"], row["inside_pct"]) == (2, 5.0, 50.0, 50.0)
    assert record_validation.errors_by_gpu(points)["H100"]["time"] == pytest.approx(
        {"fitted_pct": 5.0, "shipped_pct": 50.0, "inside_pct": 50.0}
    )


def test_power_constants() -> None:
    """The fit recovers the constants of power from exact settings."""
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
