"""Table V: errors of learning techniques on the same features and test rows, of the five of the paper or of others."""

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
from heshare.prediction.samples import SPLITS, Samples, folds
from heshare.prediction.targets import Targets
from heshare.prediction.trees import TreesOverRidge
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require

INNER_FOLDS = 3
RESAMPLES = 1000
ERRORS = ("absolute", "relative")
"""The two errors of Table V."""
OUTPUTS = ("time", "throughput")
"""What is predicted next to power: the time of an iteration, or iterations a second, the paper's (Section III-A)."""


@dataclass(frozen=True, slots=True)
class Technique:
    """A learning technique.

    Attributes:
        build: returns a regressor of scikit-learn for a seed.
        grid: the settings among which cross-validation inside the training rows chooses; none if empty.
        over_first_guess: whether the regressor learns outputs over a first guess from the load (`targets.Targets`),
            or the outputs as they are.
    """

    build: Callable[[int], Any]
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)
    over_first_guess: bool = True


DEFAULTS: Mapping[str, Technique] = {
    "SVR": Technique(lambda seed: MultiOutputRegressor(SVR()), over_first_guess=False),
    "DT": Technique(lambda seed: DecisionTreeRegressor(random_state=seed), over_first_guess=False),
    "LR": Technique(lambda seed: LinearRegression(), over_first_guess=False),
    "MLP": Technique(lambda seed: MLPRegressor(random_state=seed), over_first_guess=False),
    "RF": Technique(lambda seed: RandomForestRegressor(random_state=seed, n_jobs=1), over_first_guess=False),
}
"""The techniques of Table V with the defaults of the pages that the paper's footnotes cite, in the paper's order."""

FittedPredictor = Callable[[IntArray, IntArray], FloatArray]
"""Returns outputs (time or throughput, and W) of test rows, shape (rows, 2), from (training rows, test rows)."""
OtherTechniques = Mapping[str, Callable[[Samples, int], FittedPredictor]]
"""Techniques that are no regressors of scikit-learn, by name: each takes the samples and a seed."""
_COLUMNS = ("data", "split", "technique", "quantity", "error")


def on_logarithms(model: Any) -> Any:
    """Return a model of standardised logarithms of the features, for techniques that compare distances."""
    return make_pipeline(FunctionTransformer(_log), StandardScaler(), model)


def _log(features: FloatArray) -> FloatArray:
    return np.log(1e-3 + features)


def prediction_errors(
    samples: Samples,
    techniques: Mapping[str, Technique] = DEFAULTS,
    *,
    others: OtherTechniques = MappingProxyType({}),
    output: str = "time",
    splits: Sequence[str] = SPLITS,
    seed: int = 0,
    quick: bool = False,
) -> pd.DataFrame:
    """Return the errors of techniques on samples that are held out by row, by workload or by type of GPU.

    "Absolute error" and "relative error" are percentages that the paper does not define. Here the absolute error is the
    mean absolute error over the mean of the true values; the relative error is the mean of |predicted - true| / true.

    Args:
        samples: observations of tasks that share a GPU. Where no power was recorded, only times are learned.
        techniques: by name.
        others: further techniques, by name; they learn times.
        output: one of `OUTPUTS`.
        splits: which of `SPLITS`; a split by GPU is left out where there is one GPU.
        seed: of splits, techniques and intervals.
        quick: one test set of each split and no choice of settings, for a smoke run.

    Returns:
        One row for each split, technique, quantity (the output, `power`, and `both`, the mean of these errors) and
        error (`absolute`, `relative`), with columns data (emulated, measured or published), split, technique, quantity,
        error, mean_pct, low_pct, high_pct (95 % bootstrap interval over test sets), test_sets and test_rows. Errors of
        a test set are rounded to 0.01 %, since the last bits of some techniques depend on where their arrays lie in
        memory.

    Raises:
        InputError: an unknown split or output, throughput for a technique over a first guess, or a missing reference
            row.
    """
    require("output", repr(output), output in OUTPUTS, " or ".join(OUTPUTS), "Choose a known output.")
    over_time = bool(others) or any(technique.over_first_guess for technique in techniques.values())
    good = output == "time" or not over_time
    require("output", repr(output), good, "time, for techniques over a first guess and for others", "Leave it out.")

    errors = pd.DataFrame(list(_errors(samples, techniques, others, output, splits, seed, quick)))
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
    techniques: Mapping[str, Technique],
    others: OtherTechniques,
    output: str,
    splits: Sequence[str],
    seed: int,
    quick: bool,
) -> Iterator[dict[str, object]]:
    x = samples.features()
    truth = samples.truth
    if output == "throughput":
        truth = np.column_stack([1 / truth[:, 0], truth[:, 1]])
    has_power = not np.isnan(truth[:, 1]).all()
    fitted = {name: make(samples, seed) for name, make in others.items()}

    for split in splits:
        if split == "gpu" and samples.rows["gpu"].nunique() < 2:
            continue
        for train, test in folds(split, samples.rows, seed, quick):
            groups = None if split == "row" else samples.rows[split].iloc[train]
            # Where no power was recorded, a positive placeholder keeps the targets' logarithms finite.
            known = truth[train] if has_power else np.column_stack([truth[train, 0], x[train, OCCUPIED_POWER]])

            predictions = {
                name: _predict(technique, x[train], known, x[test], seed, has_power, groups, quick)
                for name, technique in techniques.items()
            }
            predictions |= {name: predict(train, test) for name, predict in fitted.items()}
            for name, predicted in predictions.items():
                for quantity, error, value in _error_sizes(predicted, truth[test], output, has_power):
                    key = (samples.provenance, split, name, quantity, error)
                    yield {**dict(zip(_COLUMNS, key, strict=True)), "error_pct": value, "test_rows": len(test)}


def _error_sizes(
    predicted: FloatArray, truth: FloatArray, output: str, has_power: bool
) -> Iterator[tuple[str, str, float]]:
    """Yield quantity, error and its size, rounded to 0.01 %."""
    gap = np.abs(predicted - truth)
    absolute_pct = 100 * gap.mean(axis=0) / truth.mean(axis=0)
    relative_pct = 100 * (gap / truth).mean(axis=0)

    for error, (first, power) in (("absolute", absolute_pct), ("relative", relative_pct)):
        sizes = [(output, first)]
        if has_power:
            sizes += [("power", power), ("both", (first + power) / 2)]
        for quantity, value in sizes:
            yield quantity, error, round(float(value), 2)


def _predict(
    technique: Technique,
    x: FloatArray,
    known: FloatArray,
    test_x: FloatArray,
    seed: int,
    has_power: bool,
    groups: pd.Series | None,
    quick: bool,
) -> FloatArray:
    """Return the outputs that a technique predicts for test rows, shape (rows, 2), from training rows."""
    model = technique.build(seed)
    inner_groups = {}
    if technique.grid and not quick:
        model = GridSearchCV(
            model,
            dict(technique.grid),
            cv=_inner_folds(groups, seed),
            scoring="neg_mean_absolute_error",
            error_score="raise",
        )
        inner_groups = {"groups": groups}

    targets = Targets()
    learned = targets.fit(x, known[:, 0], known[:, 1]) if technique.over_first_guess else known
    if not has_power:
        learned = learned[:, :1]

    centre = learned.mean(axis=0) if technique.over_first_guess else 0.0
    scale = learned.std(axis=0) if technique.over_first_guess else 1.0
    y = (learned - centre) / scale
    if not has_power and not _takes_columns(model):
        y = y[:, 0]

    with warnings.catch_warnings():
        # The MLP stops at its limit of iterations, which is no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x[:, TABLE_II], y, **inner_groups)

    predicted: FloatArray = model.predict(test_x[:, TABLE_II]).reshape(len(test_x), -1) * scale + centre
    predicted = predicted[:, [0, -1]]  # the only column twice where no power was recorded
    return np.column_stack(targets.decode(test_x, predicted)) if technique.over_first_guess else predicted


def _inner_folds(groups: pd.Series | None, seed: int) -> KFold | GroupKFold:
    if groups is None:
        return KFold(INNER_FOLDS, shuffle=True, random_state=seed)
    return GroupKFold(min(INNER_FOLDS, groups.nunique()))


def _takes_columns(model: Any) -> bool:
    """Return whether a regressor wants a single output as a column, not flat as all others of scikit-learn."""
    if isinstance(model, GridSearchCV):
        model = model.estimator
    return isinstance(model[-1] if isinstance(model, Pipeline) else model, MultiOutputRegressor)


def _trees_over_ridge(samples: Samples, seed: int) -> FittedPredictor:
    x = samples.features()
    truth = samples.truth
    has_power = not np.isnan(truth[:, 1]).all()

    def predict(train: IntArray, test: IntArray) -> FloatArray:
        power_w = truth[train, 1] if has_power else x[train, OCCUPIED_POWER]
        model = TreesOverRidge(seed=seed).fit(x[train], truth[train, 0], power_w)
        return np.column_stack(model.predict(x[test]))

    return predict


TREES_TECHNIQUE: OtherTechniques = {"Trees": _trees_over_ridge}
"""The schedulers' default predictor, `heshare.prediction.trees.TreesOverRidge`, as a further technique."""
