"""Table V: five techniques, three kinds of split, nothing learned from a test row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from heshare.lab.calibration.public_mps_record import published_samples
from heshare.prediction.samples import SPLITS, Samples, folds, profile_samples
from heshare.prediction.table5 import DEFAULTS, TREES_TECHNIQUE, Technique, on_logarithms, prediction_errors
from heshare.profiles import store
from heshare.shared.errors import InputError

pytestmark = pytest.mark.slow

QUICK = {
    "LR": Technique(lambda _: on_logarithms(LinearRegression())),
    "DT": Technique(lambda seed: DecisionTreeRegressor(random_state=seed), {"min_samples_leaf": [1, 4]}),
    "SVR": Technique(lambda _: on_logarithms(MultiOutputRegressor(SVR()))),
}


@pytest.fixture(scope="module")
def samples() -> Samples:
    return profile_samples(store.read_shipped())


@pytest.fixture(scope="module")
def table(samples: Samples) -> pd.DataFrame:
    return prediction_errors(samples, QUICK, others=TREES_TECHNIQUE, quick=True)


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return prediction_errors(published_samples(), QUICK, others=TREES_TECHNIQUE, quick=True)


@pytest.fixture(scope="module")
def defaults(samples: Samples) -> pd.DataFrame:
    return prediction_errors(samples, output="throughput", splits=("row",), quick=True)


def test_every_split_technique_quantity_and_error_has_an_interval(table: pd.DataFrame) -> None:
    keys = table[["split", "technique", "quantity", "error"]].drop_duplicates()
    assert len(keys) == len(table) == 3 * 4 * 3 * 2
    assert set(table["quantity"]) == {"time", "power", "both"}
    assert np.isfinite(table["mean_pct"]).all()
    assert (table["low_pct"] <= table["mean_pct"]).all()
    assert (table["mean_pct"] <= table["high_pct"]).all()


def test_both_is_the_mean_of_time_and_power(table: pd.DataFrame) -> None:
    wide = table.pivot_table(index=["split", "technique", "error"], columns="quantity", values="mean_pct")
    assert wide["both"].to_numpy() == pytest.approx((wide["time"] + wide["power"]).to_numpy() / 2, abs=0.011)


def test_an_error_is_that_of_its_definition(samples: Samples) -> None:
    """A technique that always answers the mean of the training rows has errors that follow from the split alone."""

    def mean_of_training(samples: Samples, seed: int):  # type: ignore[no-untyped-def]
        return lambda train, test: np.tile(samples.truth[train].mean(axis=0), (len(test), 1))

    found = prediction_errors(samples, {}, others={"mean": mean_of_training}, splits=("row",), quick=True)
    ((train, test),) = folds("row", samples.rows, 0, True)
    truth = samples.truth[test]
    gap = np.abs(truth - samples.truth[train].mean(axis=0))
    sizes = found.set_index(["quantity", "error"])["mean_pct"]
    assert sizes["time", "absolute"] == pytest.approx(100 * gap[:, 0].mean() / truth[:, 0].mean(), abs=0.006)
    assert sizes["power", "relative"] == pytest.approx(100 * (gap[:, 1] / truth[:, 1]).mean(), abs=0.006)


def test_the_default_predictor_errs_little_on_every_split(table: pd.DataFrame) -> None:
    error = table[(table["quantity"] == "both") & (table["error"] == "relative")].set_index(["split", "technique"])
    for split, limit in (("row", 8), ("workload", 12), ("gpu", 20)):
        assert error["mean_pct"][split, "Trees"] < min(limit, error["mean_pct"][split, "LR"])


def test_a_record_without_power_has_errors_of_times_alone(published: pd.DataFrame) -> None:
    rows = published_samples()
    assert len(rows.rows) == 4 + 4 * 32 * 3 + 2 * 625
    assert np.isnan(rows.truth[:, 1]).all()
    assert set(published["data"]) == {"published"}
    assert set(published["quantity"]) == {"time"}
    assert set(published["split"]) == {"row", "workload"}, "there is one GPU"
    error = published[published["error"] == "relative"].set_index(["split", "technique"])["mean_pct"]
    assert error["workload", "Trees"] < 10


def test_the_same_seed_gives_the_same_table(samples: Samples, defaults: pd.DataFrame) -> None:
    again = prediction_errors(samples, DEFAULTS, output="throughput", splits=("row",), quick=True)
    pd.testing.assert_frame_equal(defaults, again)


def test_by_the_cited_defaults_the_forest_errs_least(defaults: pd.DataFrame) -> None:
    assert list(dict.fromkeys(defaults["technique"])) == ["SVR", "DT", "LR", "MLP", "RF"]
    assert set(defaults["quantity"]) == {"throughput", "power", "both"}
    both = defaults[defaults["quantity"] == "both"].set_index(["technique", "error"])["mean_pct"]
    assert both["RF", "absolute"] < min(both[name, "absolute"] for name in DEFAULTS if name != "RF")


@pytest.mark.parametrize("kind", SPLITS)
def test_folds_hold_out_rows_workloads_or_gpus(samples: Samples, kind: str) -> None:
    splits = list(folds(kind, samples.rows, 0, False))
    assert len(splits) == {"row": 6, "workload": 5, "gpu": 3}[kind]
    for train, test in splits:
        assert not set(train) & set(test)
        assert len(train) + len(test) == len(samples.rows)
        if kind != "row":
            assert not set(samples.rows[kind].iloc[train]) & set(samples.rows[kind].iloc[test])


def test_unknown_splits_and_outputs_are_refused(samples: Samples) -> None:
    with pytest.raises(InputError, match="row or workload or gpu"):
        prediction_errors(samples, QUICK, splits=("column",), quick=True)
    with pytest.raises(InputError, match="time or throughput"):
        prediction_errors(samples, output="speed", quick=True)
    with pytest.raises(InputError, match="time, for techniques over a first guess"):
        prediction_errors(samples, QUICK, output="throughput", quick=True)
