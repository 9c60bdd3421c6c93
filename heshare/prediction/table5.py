"""Table V: five learning techniques on the same features and splits, with scikit-learn's defaults and tuned."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from heshare.prediction.features import OCCUPIED_POWER, TABLE_II
from heshare.prediction.forest import Forest
from heshare.prediction.samples import SPLITS, Samples, folds, profile_samples
from heshare.prediction.targets import Targets
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require

INNER_FOLDS = 3
RESAMPLES = 1000
ERRORS = ("absolute", "relative")
"""The two errors of Table V."""


@dataclass(frozen=True, slots=True)
class Technique:
    """How to build a regressor from a seed, and the settings among which inner cross-validation chooses, if any."""

    build: Callable[[int], Any]
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)


def on_logarithms(model: Any) -> Any:
    """Return a model of standardised logarithms of the features, for techniques that compare distances."""
    return make_pipeline(FunctionTransformer(_log), StandardScaler(), model)


def _log(features: FloatArray) -> FloatArray:
    return np.log(1e-3 + features)


DEFAULTS: Mapping[str, Callable[[int], Any]] = {
    "SVR": lambda seed: MultiOutputRegressor(SVR()),
    "DT": lambda seed: DecisionTreeRegressor(random_state=seed),
    "LR": lambda seed: LinearRegression(),
    "MLP": lambda seed: MLPRegressor(random_state=seed),
    "RF": lambda seed: RandomForestRegressor(random_state=seed, n_jobs=1),
}
"""Table V's techniques with the defaults of the pages that the paper's footnotes cite, on features as they are."""
SETTINGS = ("defaults", "defaults, throughput", "tuned")
"""How techniques are built: `DEFAULTS` for time and power, `DEFAULTS` for the paper's outputs (throughput and power,
Section III-A), or techniques that are given, with outputs relative to a first guess (`prediction.targets.Targets`)."""

FittedPredictor = Callable[[IntArray, IntArray], FloatArray]
"""Returns times (s) and powers (W) of test rows, shape (rows, 2), from (training rows, test rows)."""
OtherTechniques = Mapping[str, Callable[[Samples, int], FittedPredictor]]
"""Techniques beside the five, by name: each takes the samples and a seed."""
_COLUMNS = ("data", "settings", "split", "technique", "quantity", "error")


def prediction_errors(
    data: pd.DataFrame | Samples,
    *,
    seed: int = 0,
    splits: tuple[str, ...] = SPLITS,
    settings: str = "tuned",
    quick: bool = False,
    techniques: Mapping[str, Technique] = MappingProxyType({}),
    others: OtherTechniques = MappingProxyType({}),
) -> pd.DataFrame:
    """Return Table V: errors of the five techniques, by row, by workload and by type of GPU.

    "Absolute error" and "relative error" are percentages that the paper does not define. Here the absolute error is the
    mean absolute error over the mean of the true values; the relative error is the mean of |predicted - true| / true.
    `both` is the mean of the errors of time and of power. Where no power was recorded, only times are learned.

    Args:
        data: a table of the profile schema, with its reference rows, or samples from elsewhere.
        seed: of splits, techniques and intervals.
        splits: which of `SPLITS`; a split by GPU is left out where there is one GPU.
        settings: one of `SETTINGS`; with throughput its errors are those of `time`.
        quick: one split of each kind and no tuning, for a smoke run.
        techniques: those of `tuned`, such as notebook 04's.
        others: further techniques to compare.

    Returns:
        One row for each split, technique, quantity (`time`, `power`, `both`) and error (`absolute`, `relative`), with
        columns data (emulated, measured or published), settings, split, technique, quantity, error, mean_pct, low_pct,
        high_pct (95 % bootstrap interval over test sets), test_sets and test_rows. Errors of a test set are rounded to
        0.01 %, since the last bits of some techniques depend on where their arrays lie in memory.

    Raises:
        InputError: an unknown kind of split or of settings, or a missing reference row.
    """
    require("settings", repr(settings), settings in SETTINGS, ", ".join(SETTINGS), "Choose known settings.")
    samples = data if isinstance(data, Samples) else profile_samples(data)
    errors = pd.DataFrame(list(_errors(samples, seed, splits, settings, quick, techniques, others)))
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    rows = []
    for key, group in errors.groupby(list(_COLUMNS), sort=False):
        interval = [round(value, 4) for value in bootstrap_interval(group["error_pct"].to_numpy(float), rng)]
        rows.append((*key, *interval, len(group), int(group["test_rows"].sum())))
    return pd.DataFrame(rows, columns=[*_COLUMNS, "mean_pct", "low_pct", "high_pct", "test_sets", "test_rows"])


def bootstrap_interval(values: FloatArray, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return the mean of values, shape (n,), with its 95 % bootstrap interval: (mean, low, high)."""
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def _errors(
    samples: Samples,
    seed: int,
    splits: tuple[str, ...],
    settings: str,
    quick: bool,
    techniques: Mapping[str, Technique],
    others: OtherTechniques,
) -> Iterator[dict[str, object]]:
    x, truth = samples.features(), samples.truth
    if settings == "defaults, throughput":
        truth = np.column_stack([1 / truth[:, 0], truth[:, 1]])
    others_fitted = {name: make(samples, seed) for name, make in others.items()}
    no_power = bool(np.isnan(truth[:, 1]).all())
    for kind in splits:
        if kind == "gpu" and samples.rows["gpu"].nunique() < 2:
            continue
        for train, test in folds(kind, samples.rows, seed, quick):
            # Where no power was recorded, a positive stand-in keeps the targets' logarithms finite.
            known = np.column_stack([truth[train, 0], x[train, OCCUPIED_POWER]]) if no_power else truth[train]
            groups = None if kind == "row" else samples.rows[kind].iloc[train]
            if settings == "tuned":
                predictions = {
                    name: _predict(technique, x[train], known, x[test], groups, seed, quick, no_power)
                    for name, technique in techniques.items()
                }
            else:
                predictions = {
                    name: _with_defaults(make(seed), x, train, known, test) for name, make in DEFAULTS.items()
                }
            predictions |= {name: predict(train, test) for name, predict in others_fitted.items()}
            for name, predicted in predictions.items():
                for quantity, error, value in _error_sizes(predicted, truth[test], no_power):
                    key = (samples.provenance, settings, kind, name, quantity, error)
                    yield {**dict(zip(_COLUMNS, key, strict=True)), "error_pct": value, "test_rows": len(test)}


def _with_defaults(model: Any, x: FloatArray, train: IntArray, known: FloatArray, test: IntArray) -> FloatArray:
    with warnings.catch_warnings():
        # 200 iterations, the default, do not suffice for the MLP, which is a finding and no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        predicted: FloatArray = model.fit(x[train, TABLE_II], known).predict(x[test, TABLE_II])
    return predicted


def _schedulers_forest(samples: Samples, seed: int) -> FittedPredictor:
    x, truth = samples.features(), samples.truth
    no_power = bool(np.isnan(truth[:, 1]).all())

    def predict(train: IntArray, test: IntArray) -> FloatArray:
        power_w = x[train, OCCUPIED_POWER] if no_power else truth[train, 1]
        return np.column_stack(Forest(seed=seed).fit(x[train], truth[train, 0], power_w).predict(x[test]))

    return predict


SCHEDULERS_FOREST: OtherTechniques = {"HeShare's forest": _schedulers_forest}
"""The predictor that the schedulers use, `heshare.prediction.forest.Forest`, as a further technique."""


def _error_sizes(predicted: FloatArray, truth: FloatArray, no_power: bool) -> Iterator[tuple[str, str, float]]:
    # Quantity, error and its size in percent, rounded to 0.01 %.
    gap = np.abs(predicted - truth)
    absolute, relative = 100 * gap.mean(axis=0) / truth.mean(axis=0), 100 * (gap / truth).mean(axis=0)
    for error, (time, power) in (("absolute", absolute), ("relative", relative)):
        sizes = [("time", time)] if no_power else [("time", time), ("power", power), ("both", (time + power) / 2)]
        for quantity, value in sizes:
            yield quantity, error, round(float(value), 2)


def _predict(
    technique: Technique,
    x: FloatArray,
    truth: FloatArray,
    test_x: FloatArray,
    groups: pd.Series | None,
    seed: int,
    quick: bool,
    no_power: bool,
) -> FloatArray:
    targets = Targets()
    learned = targets.fit(x, truth[:, 0], truth[:, 1])
    if no_power:
        learned = learned[:, :1]
    centre, scale = learned.mean(axis=0), learned.std(axis=0)
    y = (learned - centre) / scale
    model = technique.build(seed)
    # A single output must be flat for scikit-learn, except for the regressor that takes one column an output.
    takes_columns = isinstance(model[-1] if isinstance(model, Pipeline) else model, MultiOutputRegressor)
    if technique.grid and not quick:
        inner = (
            KFold(INNER_FOLDS, shuffle=True, random_state=seed)
            if groups is None
            else GroupKFold(min(INNER_FOLDS, groups.nunique()))
        )
        model = GridSearchCV(
            model, dict(technique.grid), cv=inner, scoring="neg_mean_absolute_error", error_score="raise"
        )
    with warnings.catch_warnings():
        # The limit of iterations keeps this network from overfitting, so reaching it is no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        shaped = y if takes_columns or not no_power else y[:, 0]
        model.fit(x[:, TABLE_II], shaped, **({"groups": groups} if isinstance(model, GridSearchCV) else {}))
    predicted = model.predict(test_x[:, TABLE_II]).reshape(len(test_x), -1) * scale + centre
    return np.column_stack(targets.decode(test_x, predicted[:, [0, -1]]))
