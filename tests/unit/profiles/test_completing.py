"""What stands in for a utilisation that a real card cannot tell."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.devices.emulated import EmulatedDevice
from heshare.errors import InputError
from heshare.prediction.features import References
from heshare.profiles import store
from heshare.profiles.completing import StandInWarning, complete
from heshare.profiles.design import references, samples
from heshare.profiles.protocol import Protocol
from heshare.profiles.record import record
from heshare.profiles.schema import check
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    points = references(gpu("T4")) + samples(gpu("T4"), 5, rng=np.random.default_rng(1))
    return record(EmulatedDevice(gpu("T4")), points, protocol=Protocol(repeats=1))


def test_a_whole_table_stays_as_it_is(table: pd.DataFrame) -> None:
    assert complete(table) is table


def test_only_holes_are_filled_and_it_is_said(table: pd.DataFrame) -> None:
    holed = table.assign(l2_util_pct=math.nan)
    holed.loc[3, "sm_util_pct"] = math.nan
    with pytest.warns(StandInWarning, match="sm_util_pct of 1 rows of T4, l2_util_pct of 95 rows of T4"):
        filled = complete(holed)
    assert holed["l2_util_pct"].isna().all()
    pd.testing.assert_frame_equal(filled, table, rtol=1e-6)


def test_the_predictor_says_what_its_references_lack(table: pd.DataFrame) -> None:
    measured = check(table.assign(provenance="measured", l2_util_pct=math.nan))
    with pytest.warns(StandInWarning, match="l2_util_pct of 90 rows of T4"):
        found = References(measured).task("T4", Workload("vgg19", 8))
    assert found == pytest.approx(References(table).task("T4", Workload("vgg19", 8)), rel=1e-6)


def test_holes_survive_the_disk_in_measured_rows_alone(table: pd.DataFrame, tmp_path: Path) -> None:
    holed = table.assign(provenance="measured", l2_util_pct=math.nan)
    path = store.write(holed, tmp_path / "profile.csv")
    assert store.read(path)["l2_util_pct"].isna().all()
    path.write_text(path.read_text(encoding="utf-8").replace("measured", "published", 1), encoding="utf-8")
    with pytest.raises(InputError, match="row 2, column l2_util_pct: found nan; expected a percentage"):
        store.read(path)
