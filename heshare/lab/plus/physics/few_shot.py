"""Few-shot prediction: errors on a workload that no training row holds, by how many of its points are measured.

Derivation. Of a new workload on a GPU (a *cell*), let e_i = ln(measured / predicted) at k measured points. Model
e_i = b + noise_i with an offset b of the cell, b ~ N(0, v_b), noise_i ~ N(0, v_n) (a random effect). The best linear
unbiased predictor of b (Robinson, 1991, doi:10.1214/ss/1177011926) is the mean shrunk towards zero,

    b = (e_1 + ... + e_k) / (k + v_n / v_b),

so the prior counts as v_n / v_b points at zero (`prior_points`); it is estimated from training workloads that were left
out. Further predictions for the cell are multiplied by exp(b); the model is not trained again.

Example: one point measured 10 % above its prediction, with a prior of one point, raises predictions by 5 %.

>>> correction(np.array([0.1]), prior=1.0)
0.05
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from heshare.lab.plus.physics.conformal import half_widths, left_out_errors
from heshare.lab.plus.physics.physics_predictor import (
    LEARNER,
    LEARNERS,
    PHYSICS_TECHNIQUE,
    PhysicsModel,
    sets_of_samples,
)
from heshare.prediction.samples import Samples, folds
from heshare.prediction.table5 import FittedPredictor, OtherTechniques, bootstrap_interval
from heshare.shared.arrays import BoolArray, FloatArray, IntArray

POINTS = (0, 1, 3, 10)
"""Measurements of a new workload on a GPU, beyond its reference rows."""
LEVEL = 0.9
"""Part of new rows that intervals are to cover."""
_COLUMNS = ("data", "points", "quantity")


@dataclass(frozen=True, slots=True)
class LeftOutFold:
    """Errors on workloads that no training row holds, ln(true / predicted) of time and power.

    Attributes:
        test: row numbers of these workloads, (m,).
        predicted: times (s) and powers (W) of these rows by the chosen learner, (m, 2).
        errors: their errors by learner, each (m, 2).
        train_errors: errors on training rows whose workload was left out, by the chosen learner, (n, 2).
        train: row numbers of those, (n,).
    """

    test: IntArray
    predicted: FloatArray
    errors: dict[str, FloatArray]
    train_errors: FloatArray
    train: IntArray


def leave_workloads_out(samples: Samples, *, seed: int = 0, quick: bool = False) -> tuple[LeftOutFold, ...]:
    """Return the errors of every learner, fitted to all workloads but some, in turn; `quick`: one fold."""
    sets, true_values = sets_of_samples(samples), samples.truth
    workloads = samples.rows["workload"].to_numpy(str)
    results = []
    for train, test in folds("workload", samples.rows, seed, quick):
        train_sets, test_sets = sets.pick(train), sets.pick(test)
        models: dict[str, PhysicsModel] = {}
        for name in LEARNERS:
            # The roofline of "none", the first learner, is that of all: they differ in the residuals only.
            start = models["none"].roofline if models else None
            model = PhysicsModel(seed=seed, learner=name)
            models[name] = model.fit(train_sets, *true_values[train].T, start=start, refit=False)
        predicted = {name: np.column_stack(model.predict_first(test_sets)) for name, model in models.items()}
        errors = {name: np.log(true_values[test] / values) for name, values in predicted.items()}
        groups = workloads[train].tolist()
        train_errors = left_out_errors(train_sets, true_values[train], groups, model=models[LEARNER], seed=seed)
        results.append(LeftOutFold(test, predicted[LEARNER], errors, train_errors, train))
    return tuple(results)


def physics_technique(sources: Sequence[Samples], studies: Sequence[tuple[LeftOutFold, ...]]) -> OtherTechniques:
    """Return `PHYSICS_TECHNIQUE` with what `leave_workloads_out` predicted of these samples with the same seed.

    Training takes long, and Table V leaves the same workloads out.
    """

    def technique(name: str, samples: Samples, seed: int) -> FittedPredictor:
        train_and_predict = PHYSICS_TECHNIQUE[name](samples, seed)
        done = next((own for source, own in zip(sources, studies, strict=True) if source is samples), ())

        def predict(train: IntArray, test: IntArray) -> FloatArray:
            for fold in done:
                if np.array_equal(fold.train, train) and np.array_equal(fold.test, test):
                    return fold.predicted
            return train_and_predict(train, test)

        return predict

    return {name: partial(technique, name) for name in PHYSICS_TECHNIQUE}


def prior_points(errors: FloatArray, cells: list[str]) -> float:
    """Return v_n / v_b: the variance of errors within cells over the variance between cells.

    Args:
        errors: ln(true / predicted) of rows that were left out, (n,).
        cells: the workload and GPU of each.
    """
    by_cell = pd.Series(errors).groupby(cells)
    within = float(by_cell.var().mean())
    between = float(by_cell.mean().var()) - within * float((1 / by_cell.size()).mean())
    return within / between if between > 1e-3 * within else 1e3


def correction(errors: FloatArray, prior: float) -> float:
    """Return b, the amount to add to the logarithm of a prediction, from errors ln(measured / predicted), (k,).

    Args:
        errors: of the measured points; none: 0 is returned.
        prior: the number of points at zero that the prior counts as (see `prior_points`).
    """
    return float(errors.sum()) / (len(errors) + prior) if len(errors) else 0.0


def few_shot_errors(samples: Samples, done: tuple[LeftOutFold, ...], *, seed: int = 0, draws: int = 10) -> pd.DataFrame:
    """Return errors on workloads that no training row holds, by how many of their points were measured.

    No points means the reference rows alone, which every workload needs. Measured points are drawn at random for each
    workload and GPU; time and power have a `correction` each. Measured points are not tested.

    Args:
        samples: the samples that trained and tested.
        done: as from `leave_workloads_out`.
        seed: of draws and intervals.
        draws: how often the measured points are drawn.

    Returns:
        One row for each number of points and quantity (`time`, and `power` where it was recorded): columns data,
        points, quantity, mean_pct (mean of |predicted - true| / true), low_pct, high_pct (95 % bootstrap interval over
        workloads and GPUs), cells (workloads times GPUs).
    """
    draw_rng, rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    errors = pd.DataFrame(list(_cell_errors(samples, done, draws, draw_rng)))
    cells = errors.groupby([*_COLUMNS, "cell"], sort=False)["error_pct"].mean().reset_index()
    rows = []
    for key, group in cells.groupby(list(_COLUMNS), sort=False):
        interval = [round(value, 3) for value in bootstrap_interval(group["error_pct"].to_numpy(float), rng)]
        rows.append((*key, *interval, len(group)))
    return pd.DataFrame(rows, columns=[*_COLUMNS, "mean_pct", "low_pct", "high_pct", "cells"])


def _cell_errors(
    samples: Samples, done: tuple[LeftOutFold, ...], draws: int, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    """Return one record for each cell, number of points, draw and quantity."""
    names = (samples.rows["workload"] + " on " + samples.rows["gpu"]).to_numpy(str)
    quantities = ("time",) if np.isnan(samples.truth[:, 1]).all() else ("time", "power")
    for fold in done:
        test_cells, train_cells = names[fold.test], names[fold.train].tolist()
        priors = [prior_points(fold.train_errors[:, column], train_cells) for column in range(len(quantities))]
        for cell in dict.fromkeys(test_cells.tolist()):
            errors = fold.errors[LEARNER][test_cells == cell]
            for points in (count for count in POINTS if count < len(errors)):
                for _ in range(draws if points else 1):
                    order = rng.permutation(len(errors))
                    for column, quantity in enumerate(quantities):
                        shift = correction(errors[order[:points], column], priors[column])
                        relative = np.expm1(shift - errors[order[points:], column])
                        error_pct = round(float(100 * np.abs(relative).mean()), 4)
                        key = {"data": samples.provenance, "points": points, "quantity": quantity}
                        yield {**key, "cell": cell, "error_pct": error_pct}


def learner_errors(samples: Samples, done: tuple[LeftOutFold, ...]) -> pd.DataFrame:
    """Return the error of every learner on workloads that no training row holds, and the coverage of the intervals.

    Returns:
        One row for each learner: columns data, learner, time_pct and power_pct (mean of |predicted - true| / true;
        NaN: no power was recorded); for the chosen one also level_pct, time_covered_pct, power_covered_pct and
        time_width_pct (mean half-width of its conformal intervals).
    """
    beside_others = sets_of_samples(samples).size > 1
    rows = []
    for name in LEARNERS:
        errors = np.concatenate([fold.errors[name] for fold in done])
        time, power = (100 * np.abs(np.expm1(-errors)).mean(axis=0)).round(2).tolist()
        row = {"data": samples.provenance, "learner": name, "time_pct": time, "power_pct": power}
        if name == LEARNER:
            row |= _coverage(done, beside_others)
        rows.append(row)
    return pd.DataFrame(rows)


def as_learner_rows(shots: pd.DataFrame) -> pd.DataFrame:
    """Return `few_shot_errors` as rows of the chosen learner for `learner_errors`, with a column measured_points."""
    wide = shots.pivot_table(index=["data", "points"], columns="quantity", values="mean_pct", sort=False)
    named = wide.rename(columns={"time": "time_pct", "power": "power_pct"}).reset_index()
    return named.rename(columns={"points": "measured_points"}).assign(learner=LEARNER).rename_axis(None, axis=1)


def few_shot_text(shots: pd.DataFrame) -> str:
    """Return a sentence with the error of times without measured points and with the most; see `few_shot_errors`."""
    times = shots[shots["quantity"] == "time"].set_index(["data", "points"])["mean_pct"]
    ends = [(data, *part.iloc[[0, -1]]) for data, part in times.groupby("data", sort=False)]
    changes = " and ".join(f"from {none:.2f} to {most:.2f} % ({data!s})" for data, none, most in ends)
    return f"Measuring up to {shots['points'].max()} points of a new workload moves the error of its times {changes}."


def _coverage(done: tuple[LeftOutFold, ...], beside_others: BoolArray) -> dict[str, float]:
    covered, widths = [], []
    for fold in done:
        by_kind = half_widths(fold.train_errors, beside_others[fold.train], level=LEVEL)
        half = by_kind[beside_others[fold.test].astype(int)]
        covered.append(np.abs(fold.errors[LEARNER]) <= half)
        widths.append(np.expm1(half[:, 0]))
    time, power = (100 * np.concatenate(covered).mean(axis=0)).round(2).tolist()
    has_power = bool(np.isfinite(done[0].errors[LEARNER][:, 1]).any())
    return {
        "level_pct": 100 * LEVEL,
        "time_covered_pct": time,
        "power_covered_pct": power if has_power else float("nan"),
        "time_width_pct": round(float(100 * np.concatenate(widths).mean()), 2),
    }
