"""Table V: five techniques, three ways to hold rows out, nothing learned from a test row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.errors import InputError
from heshare.prediction import compare
from heshare.prediction.compare import OURS, TECHNIQUES, table5
from heshare.prediction.features import is_reference
from heshare.prediction.samples import published
from heshare.profiles import store


@pytest.fixture(scope="module")
def profiles() -> pd.DataFrame:
    root = Path(__file__).resolve().parents[3]
    return store.read(root / "data" / "profiles" / "emulated")


@pytest.fixture(scope="module")
def table(profiles: pd.DataFrame) -> pd.DataFrame:
    return table5(profiles, quick=True)


def test_every_cell_of_the_table_is_there(table: pd.DataFrame) -> None:
    assert [technique.name for technique in TECHNIQUES] == ["SVR", "DT", "LR", "MLP", "RF"]
    keys = table[["split", "technique", "quantity", "error"]].drop_duplicates()
    assert len(keys) == len(table) == 3 * 6 * 3 * 2
    assert np.isfinite(table["mean_pct"]).all()
    assert (table["low_pct"] <= table["mean_pct"]).all()
    assert (table["mean_pct"] <= table["high_pct"]).all()


def test_both_is_the_mean_of_time_and_power(table: pd.DataFrame) -> None:
    wide = table.pivot_table(index=["split", "technique", "error"], columns="quantity", values="mean_pct")
    assert wide["both"].to_numpy() == pytest.approx((wide["time"] + wide["power"]).to_numpy() / 2, abs=0.011)


def test_what_is_learned_beats_a_straight_line_and_a_new_gpu_is_hardest(table: pd.DataFrame) -> None:
    error = table[(table["quantity"] == "both") & (table["error"] == "relative")].set_index(["split", "technique"])
    mean = error["mean_pct"]
    assert mean["row", "RF"] < mean["row", "LR"]
    assert mean["row", "RF"] < mean["row", "DT"]
    assert mean["gpu", "RF"] > 2 * mean["row", "RF"]


def test_ours_beats_the_papers_forest_where_rows_are_hard(table: pd.DataFrame) -> None:
    error = table[(table["quantity"] == "both") & (table["error"] == "relative")].set_index(["split", "technique"])
    for split, limit in (("row", 8), ("workload", 10), ("gpu", 12)):
        assert error["mean_pct"][split, OURS] < min(limit, error["mean_pct"][split, "RF"])


def test_the_published_record_has_times_alone() -> None:
    samples = published()
    assert len(samples.rows) == 4 + 4 * 32 * 3 + 2 * 625
    assert samples.truth[:, 1].tolist() == pytest.approx([np.nan] * len(samples.rows), nan_ok=True)
    found = table5(samples, quick=True)
    assert set(found["data"]) == {"published"}
    assert set(found["quantity"]) == {"time"}
    assert set(found["split"]) == {"row", "workload"}
    error = found[found["error"] == "relative"].set_index(["split", "technique"])["mean_pct"]
    assert error["row", "RF"] < 3.91
    assert error["workload", OURS] < 10


def test_the_same_seed_gives_the_same_table(profiles: pd.DataFrame, table: pd.DataFrame) -> None:
    rows = table[table["split"] == "row"].reset_index(drop=True)
    again = table5(profiles, quick=True, splits=("row",))
    pd.testing.assert_frame_equal(
        rows.drop(columns=["low_pct", "high_pct"]), again.drop(columns=["low_pct", "high_pct"])
    )


@pytest.mark.parametrize("kind", compare.SPLITS)
def test_folds_hold_out_what_they_say(profiles: pd.DataFrame, kind: str) -> None:
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    folds = list(compare.folds(kind, samples, 0, False))
    assert len(folds) == {"row": 5, "workload": 5, "gpu": 3}[kind]
    for train, test in folds:
        assert not set(train) & set(test)
        assert len(train) + len(test) == len(samples)
        if kind != "row":
            assert not set(samples[kind].iloc[train]) & set(samples[kind].iloc[test])


def test_bad_questions_are_refused(profiles: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="row or workload or gpu"):
        table5(profiles, splits=("column",), quick=True)
    with pytest.raises(InputError, match="load or ratio or literal"):
        table5(profiles, target="cubic", quick=True)
