"""Table V: five learning techniques side by side, on the same features, the same targets and the same splits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneGroupOut
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from heshare.errors import InputError
from heshare.prediction import features as table2
from heshare.prediction.features import References, is_reference
from heshare.prediction.forest import FOREST
from heshare.prediction.predictor import FloatArray, IntArray
from heshare.prediction.splits import split_rows
from heshare.prediction.targets import Targets

SPLITS = ("row", "workload", "gpu")
"""How test rows are held out: 25 % of the rows (the paper's way), whole workloads, or a whole type of GPU."""
ROW_SPLITS, WORKLOAD_FOLDS, INNER_FOLDS = 5, 5, 3
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Technique:
    """A row of Table V: how to build the regressor, and the settings among which inner cross-validation chooses."""

    name: str
    build: Callable[[int], Any]
    grid: dict[str, list[object]]


def _log(features: FloatArray) -> FloatArray:
    return np.log(1e-3 + features)


def _scaled(model: Any) -> Any:
    return make_pipeline(FunctionTransformer(_log), StandardScaler(), model)


TECHNIQUES = (
    Technique(
        "SVR",
        lambda seed: _scaled(MultiOutputRegressor(SVR(epsilon=0.02, C=10, gamma=0.05))),
        {"multioutputregressor__estimator__C": [3, 30], "multioutputregressor__estimator__gamma": [0.03, 0.1]},
    ),
    Technique("DT", lambda seed: DecisionTreeRegressor(random_state=seed), {"min_samples_leaf": [1, 2, 4, 8]}),
    Technique("LR", lambda seed: _scaled(LinearRegression()), {}),
    Technique(
        "MLP",
        lambda seed: _scaled(
            MLPRegressor(hidden_layer_sizes=(32, 32), solver="lbfgs", alpha=1.0, max_iter=200, random_state=seed)
        ),
        {"mlpregressor__alpha": [0.3, 1.0, 3.0]},
    ),
    # The predictor as it is used, settings and all.
    Technique("RF", lambda seed: RandomForestRegressor(random_state=seed, n_jobs=1, **FOREST), {}),
)
"""Table V's techniques, in its order. Those that compare distances see standardised logarithms of the features."""


def table5(
    profiles: pd.DataFrame,
    *,
    seed: int = 0,
    splits: tuple[str, ...] = SPLITS,
    target: str = "load",
    quick: bool = False,
) -> pd.DataFrame:
    """Table V: errors of five techniques, by row, by workload and by type of GPU.

    "Absolute error" and "relative error" are percentages that the paper does not define. Here the absolute error is the
    mean absolute error over the mean of the true values; the relative error is the mean of |predicted - true| / true.
    `both` is the mean of the errors of time and of power.

    Args:
        profiles: a table of the profile schema, with its reference rows.
        seed: of splits, techniques and intervals.
        splits: which of `SPLITS`.
        target: how the outputs are written for learning, see `heshare.prediction.targets.Targets`.
        quick: one split of each kind and no tuning, for a smoke run.

    Returns:
        One row for each split, technique, quantity (`time`, `power`, `both`) and error (`absolute`, `relative`), with
        columns split, technique, quantity, error, mean_pct, low_pct, high_pct (95 % bootstrap interval over test sets),
        test_sets and test_rows.

    Raises:
        InputError: an unknown kind of split or form of target, or a missing reference row.
    """
    errors = pd.DataFrame(list(_errors(profiles, seed, splits, target, quick)))
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    rows = []
    for key, group in errors.groupby(["split", "technique", "quantity", "error"], sort=False):
        values = group["error_pct"].to_numpy(float)
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5])
        rows.append((*key, values.mean(), low, high, len(values), int(group["test_rows"].sum())))
    return pd.DataFrame(
        rows,
        columns=[*errors.columns[:4], "mean_pct", "low_pct", "high_pct", "test_sets", "test_rows"],
    )


def _errors(
    profiles: pd.DataFrame, seed: int, splits: tuple[str, ...], target: str, quick: bool
) -> Iterator[dict[str, object]]:
    """One record for each test set, technique, quantity and error."""
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    x = table2.of_profiles(samples, References(profiles))
    truth = np.column_stack([samples["time_s"], samples["power_w"]])
    for kind in splits:
        for train, test in _folds(kind, samples, seed, quick):
            for technique in TECHNIQUES:
                inner = samples.iloc[train]
                found = _predict(technique, x[train], truth[train], x[test], _groups(kind, inner), seed, target, quick)
                gap = np.abs(found - truth[test])
                absolute, relative = (
                    100 * gap.mean(axis=0) / truth[test].mean(axis=0),
                    100 * (gap / truth[test]).mean(axis=0),
                )
                for error, (time, power) in (("absolute", absolute), ("relative", relative)):
                    for quantity, value in (("time", time), ("power", power), ("both", (time + power) / 2)):
                        yield {
                            "split": kind,
                            "technique": technique.name,
                            "quantity": quantity,
                            "error": error,
                            "error_pct": float(value),
                            "test_rows": len(test),
                        }


def _predict(
    technique: Technique,
    x: FloatArray,
    truth: FloatArray,
    asked: FloatArray,
    groups: pd.Series | None,
    seed: int,
    target: str,
    quick: bool,
) -> FloatArray:
    """Times (s) and powers (W), shape (rows, 2), of a technique tuned and trained on the training rows alone."""
    targets = Targets(target)
    learned = targets.fit(x, truth[:, 0], truth[:, 1])
    centre, scale = learned.mean(axis=0), learned.std(axis=0)
    model = technique.build(seed)
    if technique.grid and not quick:
        folds = (
            KFold(INNER_FOLDS, shuffle=True, random_state=seed)
            if groups is None
            else GroupKFold(min(INNER_FOLDS, groups.nunique()))
        )
        model = GridSearchCV(model, technique.grid, cv=folds, scoring="neg_mean_absolute_error", error_score="raise")
    with warnings.catch_warnings():
        # The limit of iterations is how this network is kept from overfitting; reaching it is no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, (learned - centre) / scale, **({"groups": groups} if isinstance(model, GridSearchCV) else {}))
    return np.column_stack(targets.decode(asked, model.predict(asked) * scale + centre))


def _folds(kind: str, samples: pd.DataFrame, seed: int, quick: bool) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and test rows of each test set."""
    if kind not in SPLITS:
        raise InputError(column="split", found=repr(kind), expected=" or ".join(SPLITS), action="Choose known splits.")
    if kind == "row":
        for child in np.random.SeedSequence(seed).spawn(2)[0].spawn(1 if quick else ROW_SPLITS):
            yield split_rows(len(samples), rng=np.random.default_rng(child))
        return
    folds = GroupKFold(WORKLOAD_FOLDS) if kind == "workload" else LeaveOneGroupOut()
    for number, fold in enumerate(folds.split(samples, groups=_groups(kind, samples))):
        if number == 0 or not quick:
            yield fold


def _groups(kind: str, samples: pd.DataFrame) -> pd.Series | None:
    return None if kind == "row" else samples[kind]
