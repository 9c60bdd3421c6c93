"""Table V: five techniques, three kinds of split, nothing learned from a test row."""

from __future__ import annotations

import ast
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heshare.lab.calibration.public_mps_record import published_samples
from heshare.lab.plus.physics.physics_predictor import PHYSICS_TECHNIQUE
from heshare.prediction.features import is_reference
from heshare.prediction.samples import SPLITS, folds
from heshare.prediction.table5 import DEFAULTS, SETTINGS, Technique, prediction_errors
from heshare.profiles import store
from heshare.shared.errors import InputError
from heshare.shared.files import root

pytestmark = pytest.mark.slow


def _learners() -> dict[str, Technique]:
    """The learners of notebook 04, as its cell has them."""
    cells = json.loads((root() / "notebooks/04_prediction.ipynb").read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    first = next(source for source in sources if source.startswith(("import", "from")))
    imports = [node for node in ast.parse(first).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names: dict[str, Any] = {}
    exec("\n".join(map(ast.unparse, imports)) + "\n" + next(each for each in sources if "learners = {" in each), names)
    found: dict[str, Technique] = names["learners"]
    return found


FIVE = _learners()


@pytest.fixture(scope="module")
def profiles() -> pd.DataFrame:
    return store.read_shipped()


@pytest.fixture(scope="module")
def table(profiles: pd.DataFrame) -> pd.DataFrame:
    return prediction_errors(profiles, quick=True, techniques=FIVE, others=PHYSICS_TECHNIQUE)


def test_prediction_errors_have_every_split_technique_quantity_and_error(table: pd.DataFrame) -> None:
    assert list(FIVE) == ["SVR", "DT", "LR", "MLP", "RF"]
    keys = table[["split", "technique", "quantity", "error"]].drop_duplicates()
    assert len(keys) == len(table) == 3 * 6 * 3 * 2
    assert np.isfinite(table["mean_pct"]).all()
    assert (table["low_pct"] <= table["mean_pct"]).all()
    assert (table["mean_pct"] <= table["high_pct"]).all()


def test_both_is_the_mean_of_time_and_power(table: pd.DataFrame) -> None:
    wide = table.pivot_table(index=["split", "technique", "error"], columns="quantity", values="mean_pct")
    assert wide["both"].to_numpy() == pytest.approx((wide["time"] + wide["power"]).to_numpy() / 2, abs=0.011)


def test_the_forest_beats_linear_regression_and_a_new_gpu_is_hardest(table: pd.DataFrame) -> None:
    error = table[(table["quantity"] == "both") & (table["error"] == "relative")].set_index(["split", "technique"])
    mean = error["mean_pct"]
    assert mean["row", "RF"] < mean["row", "LR"]
    assert mean["row", "RF"] < mean["row", "DT"]
    assert mean["gpu", "RF"] > 1.2 * mean["workload", "RF"] > mean["row", "RF"]


def test_the_physics_predictor_beats_the_forest_on_every_split(table: pd.DataFrame) -> None:
    error = table[(table["quantity"] == "both") & (table["error"] == "relative")].set_index(["split", "technique"])
    for split, limit in (("row", 8), ("workload", 10), ("gpu", 12)):
        assert error["mean_pct"][split, "Physics"] < min(limit, error["mean_pct"][split, "RF"])


def test_published_samples_hold_times_without_power() -> None:
    samples = published_samples()
    assert len(samples.rows) == 4 + 4 * 32 * 3 + 2 * 625
    assert samples.truth[:, 1].tolist() == pytest.approx([np.nan] * len(samples.rows), nan_ok=True)
    errors = prediction_errors(samples, quick=True, techniques=FIVE, others=PHYSICS_TECHNIQUE)
    assert set(errors["data"]) == {"published"}
    assert set(errors["quantity"]) == {"time"}
    assert set(errors["split"]) == {"row", "workload"}
    error = errors[errors["error"] == "relative"].set_index(["split", "technique"])["mean_pct"]
    assert error["row", "RF"] < 3.91
    assert error["workload", "Physics"] < 10


def test_the_same_seed_gives_the_same_table(profiles: pd.DataFrame, table: pd.DataFrame) -> None:
    rows = table[table["split"] == "row"].reset_index(drop=True)
    again = prediction_errors(profiles, quick=True, splits=("row",), techniques=FIVE, others=PHYSICS_TECHNIQUE)
    pd.testing.assert_frame_equal(
        rows.drop(columns=["low_pct", "high_pct"]), again.drop(columns=["low_pct", "high_pct"])
    )


@pytest.mark.parametrize("kind", SPLITS)
def test_folds_hold_out_rows_workloads_or_gpus(profiles: pd.DataFrame, kind: str) -> None:
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    splits = list(folds(kind, samples, 0, False))
    assert len(splits) == {"row": 6, "workload": 5, "gpu": 3}[kind]
    for train, test in splits:
        assert not set(train) & set(test)
        assert len(train) + len(test) == len(samples)
        if kind != "row":
            assert not set(samples[kind].iloc[train]) & set(samples[kind].iloc[test])


def test_prediction_errors_refuse_unknown_splits_and_settings(profiles: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="row or workload or gpu"):
        prediction_errors(profiles, splits=("column",), quick=True, techniques=FIVE, others=PHYSICS_TECHNIQUE)
    with pytest.raises(InputError, match="defaults, defaults, throughput, tuned"):
        prediction_errors(profiles, settings="best", quick=True)


def test_throughput_is_learned_and_judged_as_such(profiles: pd.DataFrame) -> None:
    keys = ["technique", "quantity", "error"]
    time, rate = (
        prediction_errors(profiles, quick=True, splits=("row",), settings=each).set_index(keys)["mean_pct"]
        for each in SETTINGS[:2]
    )
    assert set(time.index.get_level_values("technique")) == set(DEFAULTS) == set(FIVE)
    assert time["LR", "power", "absolute"] == pytest.approx(rate["LR", "power", "absolute"]), "outputs apart"
    assert rate["LR", "time", "absolute"] != pytest.approx(time["LR", "time", "absolute"])
    assert rate["RF", "both", "absolute"] < min(rate[name, "both", "absolute"] for name in DEFAULTS if name != "RF")
