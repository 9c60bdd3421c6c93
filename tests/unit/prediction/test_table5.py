"""Table V: five techniques, three kinds of split, nothing learned from a test row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from heshare.lab.calibration.public_mps_record import published_samples
from heshare.prediction.samples import SPLITS, Samples, folds, profile_samples
from heshare.profiles import store
from heshare.shared.errors import InputError

pytestmark = pytest.mark.slow


def errors(samples: Samples, techniques: dict[str, Any] | None = None, **options: Any) -> pd.DataFrame:
    """The errors of three quick techniques and of the trees, or of the given ones."""
    from heshare.prediction.table5 import TREES_TECHNIQUE, prediction_errors

    options = {"others": TREES_TECHNIQUE, "quick": True} | options
    return prediction_errors(samples, quick_techniques() if techniques is None else techniques, **options)


def quick_techniques() -> dict[str, Any]:
    from sklearn.linear_model import LinearRegression
    from sklearn.tree import DecisionTreeRegressor

    from heshare.prediction.table5 import Technique, on_logarithms

    return {
        "LR": Technique(lambda _: on_logarithms(LinearRegression())),
        "DT": Technique(lambda seed: DecisionTreeRegressor(random_state=seed), {"min_samples_leaf": [1, 4]}),
    }


@pytest.fixture(scope="module")
def samples() -> Samples:
    return profile_samples(store.read_shipped())


@pytest.fixture(scope="module")
def table(samples: Samples) -> pd.DataFrame:
    return errors(samples)


def test_both(table: pd.DataFrame) -> None:
    """The error of both is the mean of time and power, and each mean is within its interval."""
    assert (table["low_pct"] <= table["mean_pct"]).all()
    assert (table["mean_pct"] <= table["high_pct"]).all()
    wide = table.pivot_table(index=["split", "technique", "error"], columns="quantity", values="mean_pct")
    assert wide["both"].to_numpy() == pytest.approx((wide["time"] + wide["power"]).to_numpy() / 2, abs=0.011)


def test_definition(samples: Samples) -> None:
    """A technique that always answers the mean of the training rows has errors that follow from the split alone."""

    def mean_of_training(samples: Samples, seed: int):  # type: ignore[no-untyped-def]
        return lambda train, test: np.tile(samples.truth[train].mean(axis=0), (len(test), 1))

    found = errors(samples, {}, others={"mean": mean_of_training}, splits=("row",))
    ((train, test),) = folds("row", samples.rows, 0, True)
    truth = samples.truth[test]
    gap = np.abs(truth - samples.truth[train].mean(axis=0))
    sizes = found.set_index(["quantity", "error"])["mean_pct"]
    assert sizes["time", "absolute"] == pytest.approx(100 * gap[:, 0].mean() / truth[:, 0].mean(), abs=0.006)
    assert sizes["power", "relative"] == pytest.approx(100 * (gap[:, 1] / truth[:, 1]).mean(), abs=0.006)


def test_no_power() -> None:
    """A record without power has errors of times alone."""
    rows = published_samples()
    assert np.isnan(rows.truth[:, 1]).all()
    published = errors(rows)
    assert set(published["data"]) == {"published"}
    assert set(published["quantity"]) == {"time"}
    assert set(published["split"]) == {"row", "workload"}, "there is one GPU"


@pytest.mark.parametrize("kind", SPLITS)
def test_folds(samples: Samples, kind: str) -> None:
    """Folds hold out rows, workloads or GPUs."""
    splits = list(folds(kind, samples.rows, 0, False))
    assert len(splits) == {"row": 6, "workload": 5, "gpu": 3}[kind]
    for train, test in splits:
        assert not set(train) & set(test)
        assert len(train) + len(test) == len(samples.rows)
        if kind != "row":
            assert not set(samples.rows[kind].iloc[train]) & set(samples.rows[kind].iloc[test])


def test_unknown(samples: Samples) -> None:
    """Unknown splits and outputs are refused."""
    for options, found in (
        ({"splits": ("column",)}, "row or workload or gpu"),
        ({"output": "speed"}, "time or throughput"),
        ({"output": "throughput"}, "first guess"),
    ):
        with pytest.raises(InputError, match=found):
            errors(samples, **options)
