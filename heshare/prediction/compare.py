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
from heshare.prediction.features import OCCUPIED_POWER
from heshare.prediction.forest import FOREST
from heshare.prediction.physics import PhysicsModel
from heshare.prediction.predictor import FloatArray, IntArray
from heshare.prediction.samples import Samples, of_profiles
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


OURS = "Physics"
"""The predictor beyond the paper, `heshare.prediction.physics`, beside the five."""
_COLUMNS = ("data", "split", "technique", "quantity", "error")


def table5(
    data: pd.DataFrame | Samples,
    *,
    seed: int = 0,
    splits: tuple[str, ...] = SPLITS,
    target: str = "load",
    quick: bool = False,
) -> pd.DataFrame:
    """Table V: errors of five techniques and of ours, by row, by workload and by type of GPU.

    "Absolute error" and "relative error" are percentages that the paper does not define. Here the absolute error is the
    mean absolute error over the mean of the true values; the relative error is the mean of |predicted - true| / true.
    `both` is the mean of the errors of time and of power. Where no power was recorded, only times are learned.

    Args:
        data: a table of the profile schema, with its reference rows, or samples from elsewhere.
        seed: of splits, techniques and intervals.
        splits: which of `SPLITS`; a split by GPU is left out where there is one GPU.
        target: how the outputs are written for learning, see `heshare.prediction.targets.Targets`.
        quick: one split of each kind and no tuning, for a smoke run.

    Returns:
        One row for each split, technique, quantity (`time`, `power`, `both`) and error (`absolute`, `relative`), with
        columns data (emulated, measured or published), split, technique, quantity, error, mean_pct, low_pct, high_pct
        (95 % bootstrap interval over test sets), test_sets and test_rows. Errors of a test set are rounded to 0.01 %,
        since the last bits of some techniques depend on where their arrays lie in memory.

    Raises:
        InputError: an unknown kind of split or form of target, or a missing reference row.
    """
    samples = data if isinstance(data, Samples) else of_profiles(data)
    errors = pd.DataFrame(list(_errors(samples, seed, splits, target, quick)))
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    rows = []
    for key, group in errors.groupby(list(_COLUMNS), sort=False):
        values = group["error_pct"].to_numpy(float)
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5])
        found = [round(float(value), 4) for value in (values.mean(), low, high)]
        rows.append((*key, *found, len(values), int(group["test_rows"].sum())))
    return pd.DataFrame(rows, columns=[*_COLUMNS, "mean_pct", "low_pct", "high_pct", "test_sets", "test_rows"])


def _errors(
    samples: Samples, seed: int, splits: tuple[str, ...], target: str, quick: bool
) -> Iterator[dict[str, object]]:
    """One record for each test set, technique, quantity and error."""
    x, truth, sets = samples.features(), samples.truth, samples.sets()
    powerless = bool(np.isnan(truth[:, 1]).all())
    for kind in splits:
        if kind == "gpu" and samples.rows["gpu"].nunique() < 2:
            continue
        for train, test in folds(kind, samples.rows, seed, quick):
            known = np.column_stack([truth[train, 0], x[train, OCCUPIED_POWER]]) if powerless else truth[train]
            groups = _groups(kind, samples.rows.iloc[train])
            answers = {
                technique.name: _predict(technique, x[train], known, x[test], groups, seed, target, quick, powerless)
                for technique in TECHNIQUES
            }
            model = PhysicsModel(seed=seed).fit(sets.pick(train), *truth[train].T)
            answers[OURS] = np.column_stack(model.first(sets.pick(test)))
            for name, found in answers.items():
                for quantity, error, value in _sizes(found, truth[test], powerless):
                    key = (samples.provenance, kind, name, quantity, error)
                    yield {**dict(zip(_COLUMNS, key, strict=True)), "error_pct": value, "test_rows": len(test)}


def _sizes(found: FloatArray, truth: FloatArray, powerless: bool) -> Iterator[tuple[str, str, float]]:
    """Quantity, error and its size in percent, rounded to 0.01 %."""
    gap = np.abs(found - truth)
    absolute, relative = 100 * gap.mean(axis=0) / truth.mean(axis=0), 100 * (gap / truth).mean(axis=0)
    for error, (time, power) in (("absolute", absolute), ("relative", relative)):
        sizes = [("time", time)] if powerless else [("time", time), ("power", power), ("both", (time + power) / 2)]
        for quantity, value in sizes:
            yield quantity, error, round(float(value), 2)


def _predict(
    technique: Technique,
    x: FloatArray,
    truth: FloatArray,
    asked: FloatArray,
    groups: pd.Series | None,
    seed: int,
    target: str,
    quick: bool,
    powerless: bool,
) -> FloatArray:
    """Times (s) and powers (W), shape (rows, 2), of a technique tuned and trained on the training rows alone."""
    targets = Targets(target)
    learned = targets.fit(x, truth[:, 0], truth[:, 1])
    if powerless:
        learned = learned[:, :1]
    centre, scale = learned.mean(axis=0), learned.std(axis=0)
    wanted = (learned - centre) / scale
    model = technique.build(seed)
    if technique.grid and not quick:
        inner = (
            KFold(INNER_FOLDS, shuffle=True, random_state=seed)
            if groups is None
            else GroupKFold(min(INNER_FOLDS, groups.nunique()))
        )
        model = GridSearchCV(model, technique.grid, cv=inner, scoring="neg_mean_absolute_error", error_score="raise")
    with warnings.catch_warnings():
        # The limit of iterations is how this network is kept from overfitting; reaching it is no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # scikit-learn wants a single output flat, but for one regressor an output.
        flat = wanted if technique.name == "SVR" or not powerless else wanted[:, 0]
        model.fit(x, flat, **({"groups": groups} if isinstance(model, GridSearchCV) else {}))
    found = model.predict(asked).reshape(len(asked), -1) * scale + centre
    return np.column_stack(targets.decode(asked, found[:, [0, -1]]))


def folds(kind: str, samples: pd.DataFrame, seed: int, quick: bool) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and test rows of each test set of a split, one of `SPLITS`; `samples` has columns workload and gpu.

    Raises:
        InputError: an unknown kind of split.
    """
    if kind not in SPLITS:
        raise InputError(column="split", found=repr(kind), expected=" or ".join(SPLITS), action="Choose known splits.")
    if kind == "row":
        for child in np.random.SeedSequence(seed).spawn(2)[0].spawn(1 if quick else ROW_SPLITS):
            yield split_rows(len(samples), rng=np.random.default_rng(child))
        return
    count = min(WORKLOAD_FOLDS, samples["workload"].nunique())
    splitter = GroupKFold(count) if kind == "workload" else LeaveOneGroupOut()
    for number, fold in enumerate(splitter.split(samples, groups=_groups(kind, samples))):
        if number == 0 or not quick:
            yield fold


def _groups(kind: str, samples: pd.DataFrame) -> pd.Series | None:
    return None if kind == "row" else samples[kind]
