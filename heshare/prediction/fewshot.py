"""How well a new workload is foreseen, by how many quick measurements of it there are; and how sure the intervals are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heshare.prediction.compare import RESAMPLES, folds
from heshare.prediction.physics import LEARNERS, PhysicsModel, calibrate, in_company
from heshare.prediction.predictor import FloatArray, IntArray
from heshare.prediction.samples import Samples

POINTS = (0, 1, 3, 10)
"""Measurements of a new workload on a GPU, beyond its reference rows."""
TRUST = 1.0
"""Prior measurements that a correction is weighed against: with k measured points it counts k / (k + TRUST)."""
_COLUMNS = ("data", "points", "quantity")


def correction(gaps: FloatArray) -> float:
    """What to add to the logarithm of a prediction, from gaps ln(measured / predicted) of k points, shape (k,).

    Their median, shrunk towards nothing: few points say little. No points: 0.
    """
    return float(np.median(gaps)) * len(gaps) / (len(gaps) + TRUST) if len(gaps) else 0.0


def few_shot(samples: Samples, *, seed: int = 0, draws: int = 5, quick: bool = False) -> pd.DataFrame:
    """Errors on workloads that no training row shows, by how many of their points were measured.

    Training rows are those of other workloads. A workload's own measured points are drawn at random on each GPU and
    added twice over: the model is not trained again, but its predictions for that workload on that GPU are multiplied
    by a `correction`, one for time and one for power, one each for tasks alone and in company where both were seen.
    Measured points are not tested. No points means the reference rows alone, which every workload needs.

    Args:
        samples: what to learn from and to test on.
        seed: of learners, draws and intervals.
        draws: how often the measured points are drawn.
        quick: one fold, for a smoke run.

    Returns:
        One row for each number of points and quantity (`time`, and `power` where it was recorded): columns data,
        points, quantity, mean_pct (mean of |predicted - true| / true), low_pct, high_pct (95 % bootstrap interval over
        workloads and GPUs), cells (workloads times GPUs).
    """
    rng, lots = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(2))
    errors = pd.DataFrame(list(_errors(samples, seed, draws, quick, lots)))
    cells = errors.groupby([*_COLUMNS, "cell"], sort=False)["error_pct"].mean().reset_index()
    rows = []
    for key, group in cells.groupby(list(_COLUMNS), sort=False):
        values = group["error_pct"].to_numpy(float)
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        found = [round(float(value), 3) for value in (values.mean(), *np.percentile(means, [2.5, 97.5]))]
        rows.append((*key, *found, len(values)))
    return pd.DataFrame(rows, columns=[*_COLUMNS, "mean_pct", "low_pct", "high_pct", "cells"])


def _errors(
    samples: Samples, seed: int, draws: int, quick: bool, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    sets, truth = samples.sets(), samples.truth
    recorded = 1 if np.isnan(truth[:, 1]).all() else 2
    company = in_company(sets)
    names = (samples.rows["workload"] + " on " + samples.rows["gpu"]).to_numpy(str)
    for train, test in folds("workload", samples.rows, seed, quick):
        model = PhysicsModel(seed=seed).fit(sets.pick(train), *truth[train].T)
        gaps = np.log(truth[test] / np.column_stack(model.first(sets.pick(test))))[:, :recorded]
        for cell in dict.fromkeys(names[test].tolist()):
            own = np.flatnonzero(names[test] == cell)
            for points in POINTS:
                for _ in range(draws if points else 1):
                    order = rng.permutation(len(own))
                    left = _corrected(gaps[own], company[test][own], order[:points], order[max(POINTS) :])
                    for quantity, error in zip(("time", "power"), left, strict=False):
                        key = (samples.provenance, points, quantity)
                        yield {**dict(zip(_COLUMNS, key, strict=True)), "cell": cell, "error_pct": error}


def _corrected(gaps: FloatArray, company: IntArray, measured: IntArray, tested: IntArray) -> list[float]:
    """Mean relative errors (%) of the tested rows of a cell, after correction by the measured ones."""
    errors = []
    for column in gaps.T:
        shift = np.full(len(column), correction(column[measured]))
        for kind in (False, True):
            like = measured[company[measured] == kind]
            if 0 < len(like) < len(measured):
                shift[company == kind] = correction(column[like])
        errors.append(round(float(100 * np.mean(np.abs(np.exp(shift - column)[tested] - 1))), 4))
    return errors


def learners(samples: Samples, *, seed: int = 0, level: float = 0.9, quick: bool = False) -> pd.DataFrame:
    """Every learner of the residuals on workloads that no training row shows, and how often its intervals cover.

    Intervals are conformal, from errors on training workloads left out inside the training rows.

    Returns:
        One row for each learner: columns data, learner, time_pct and power_pct (mean of |predicted - true| / true; NaN
        where no power was recorded), level_pct, time_covered_pct, power_covered_pct, time_width_pct (mean half-width).
    """
    sets, truth = samples.sets(), samples.truth
    workloads = samples.rows["workload"].to_numpy(str)
    rows = []
    for name in LEARNERS:
        found = []
        for train, test in folds("workload", samples.rows, seed, quick):
            known, asked = sets.pick(train), sets.pick(test)
            model = PhysicsModel(seed=seed, learner=name).fit(known, *truth[train].T)
            widths = calibrate(known, *truth[train].T, _listed(workloads[train]), model=model, seed=seed, level=level)
            half = np.column_stack([widths.time, widths.power])[in_company(asked).astype(int)]
            gaps = np.log(np.column_stack(model.first(asked)) / truth[test])
            found.append(np.column_stack([np.abs(np.expm1(gaps)), np.abs(gaps) <= half, np.expm1(half)]))
        time, power, *covered, width, _ = (100 * np.concatenate(found).mean(axis=0)).round(2).tolist()
        covered[1] = float("nan") if np.isnan(power) else covered[1]
        rows.append((samples.provenance, name, time, power, 100 * level, *covered, width))
    return pd.DataFrame(
        rows,
        columns=[
            "data", "learner", "time_pct", "power_pct", "level_pct", "time_covered_pct", "power_covered_pct",
            "time_width_pct",
        ],
    )  # fmt: skip


def _listed(names: Sequence[str]) -> list[str]:
    return list(map(str, names))
