"""Utilisations that a real GPU could not measure, filled from the device model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.devices.emulated_device import EmulatedDevice
from heshare.prediction.features import ReferenceFeatures
from heshare.profiles import store
from heshare.profiles.design import references, samples
from heshare.profiles.missing_utilisation import ModelledUtilisationWarning, fill_missing
from heshare.profiles.recorder import record
from heshare.profiles.replay_device import ReplayDevice
from heshare.profiles.schema import check
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    points = references(gpu("T4")) + samples(gpu("T4"), 5, rng=np.random.default_rng(1))
    return record(EmulatedDevice(gpu("T4")), points, protocol=MeasurementProtocol(repeats=1))


def test_filled(table: pd.DataFrame) -> None:
    """Only missing values are filled, with a warning."""
    assert fill_missing(table) is table
    incomplete = table.assign(l2_util_pct=math.nan)
    incomplete.loc[3, "sm_util_pct"] = math.nan
    with pytest.warns(ModelledUtilisationWarning, match="sm_util_pct of 1 rows of T4, l2_util_pct of 95"):
        filled = fill_missing(incomplete)
    assert incomplete["l2_util_pct"].isna().all()
    pd.testing.assert_frame_equal(filled, table, rtol=1e-6)


def test_reference_features(table: pd.DataFrame) -> None:
    """Reference features warn of filled values."""
    measured = check(table.assign(provenance="measured", l2_util_pct=math.nan))
    with pytest.warns(ModelledUtilisationWarning, match="l2_util_pct of 90 rows of T4"):
        features = ReferenceFeatures(measured).task("T4", Workload("vgg19", 8))
    assert features == pytest.approx(ReferenceFeatures(table).task("T4", Workload("vgg19", 8)), rel=1e-6)


def test_on_disk(table: pd.DataFrame, tmp_path: Path) -> None:
    """Only measured rows may lack utilisations; they are replayed without."""
    incomplete = table.assign(provenance="measured", l2_util_pct=math.nan)
    path = store.write(incomplete, tmp_path / "profile.csv")
    assert store.read(path)["l2_util_pct"].isna().all()
    device = ReplayDevice(store.read(path))
    device.start(0, Workload("vgg19", 8), 100)
    assert math.isnan(device.read().l2_util_pct)
    path.write_text(path.read_text(encoding="utf-8").replace("measured", "published", 1), encoding="utf-8")
    with pytest.raises(InputError, match="row 2, column l2_util_pct"):
        store.read(path)
