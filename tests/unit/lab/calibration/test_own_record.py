"""Recorded profiles of one's own GPUs beside all public records: what a fit with them changes, and its errors."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.devices.constants import default
from heshare.lab.calibration import own_record
from heshare.lab.calibration.observations import profile_rows
from heshare.lab.calibration.own_record import PROGRAM, OwnFit
from heshare.profiles import store
from heshare.shared import files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def profile() -> pd.DataFrame:
    return store.read(files.data("profiles", "measured", "H100", "profile.csv"))


@pytest.fixture(scope="module")
def half(profile: pd.DataFrame) -> OwnFit:
    """The fit with half of the H100's settings as one's own."""
    return own_record.fit_with(profile, all_of_them=False)


def test_rows(half: OwnFit, profile: pd.DataFrame):
    """The last rows of the fit are those of the profile, half of them held out."""
    own = list(profile_rows(profile, PROGRAM))
    assert list(map(str, half.problem.rows[-len(own) :])) == list(map(str, own))
    held = sum(row.held_out for row in own)
    assert 0.3 * len(own) < held < 0.7 * len(own)


def test_own_card(half: OwnFit, profile: pd.DataFrame):
    """The profile's GPU has its own idle power, program and host; others keep the shipped constants."""
    found, shipped = half.constants, default()
    assert found.power["H100"].idle_w == pytest.approx(profile["idle_w"].mean())
    assert {name: power for name, power in found.power.items() if name != "H100"} == {
        name: power for name, power in shipped.power.items() if name != "H100"
    }
    assert found.contention["T4"] == shipped.contention["T4"]
    cell = found.timing.cell("H100", "eager", "resnet50", "tf32")
    assert (cell.program, cell.hosted) == (PROGRAM, True)
    assert found.timing.cell("T4", "eager", "resnet50", "fp32") == shipped.timing.cell(
        "T4", "eager", "resnet50", "fp32"
    )


def test_errors(half: OwnFit, profile: pd.DataFrame, monkeypatch: pytest.MonkeyPatch):
    """On the other half the fit with the first half has smaller errors than the shipped model."""
    monkeypatch.setattr(own_record, "fit_with", lambda *_, **__: half)
    found = own_record.errors(profile).set_index(["model", "quantity", "sharing"])
    assert set(found["gpu"]) == {"H100"}
    for quantity in ("time", "power"):
        fitted, shipped = (found.loc[(model, quantity, "shared")] for model in ("fitted", "shipped"))
        assert fitted["n"] == shipped["n"] > 0
        assert fitted["mape_pct"] < shipped["mape_pct"]
