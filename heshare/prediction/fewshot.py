"""How well a new workload is foreseen, by how many quick measurements of it there are, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heshare.prediction.compare import RESAMPLES, folds
from heshare.prediction.physics import LEARNER, LEARNERS, PhysicsModel, in_company, intervals, left_out
from heshare.prediction.predictor import FloatArray, IntArray
from heshare.prediction.samples import Samples

POINTS = (0, 1, 3, 10)
"""Measurements of a new workload on a GPU, beyond its reference rows."""
LEVEL = 0.9
"""Part of new rows that intervals are to cover."""
_COLUMNS = ("data", "points", "quantity")


@dataclass(frozen=True, slots=True)
class Fold:
    """What came out for workloads that no training row shows.

    Attributes:
        test: numbers of their rows, (m,).
        gaps: ln(true / predicted) of time and power by learner, each (m, 2).
        trained: the same on training rows whose workload was left out, by the chosen learner, (n, 2).
        train: numbers of those rows, (n,).
    """

    test: IntArray
    gaps: dict[str, FloatArray]
    trained: FloatArray
    train: IntArray


def study(samples: Samples, *, seed: int = 0, quick: bool = False) -> tuple[Fold, ...]:
    """Fit every learner on all workloads but some, in turn; `quick`: one fold."""
    sets, truth = samples.sets(), samples.truth
    workloads = samples.rows["workload"].to_numpy(str)
    done = []
    for train, test in folds("workload", samples.rows, seed, quick):
        known, asked = sets.pick(train), sets.pick(test)
        models: dict[str, PhysicsModel] = {}
        for name in LEARNERS:
            start = models["none"].roofline if models else None
            models[name] = PhysicsModel(seed=seed, learner=name).fit(known, *truth[train].T, start=start, refit=False)
        gaps = {name: np.log(truth[test] / np.column_stack(model.first(asked))) for name, model in models.items()}
        trained = left_out(known, truth[train], workloads[train].tolist(), model=models[LEARNER], seed=seed)
        done.append(Fold(test, gaps, trained, train))
    return tuple(done)


def trust(gaps: FloatArray, cells: list[str]) -> float:
    """How many measured points a correction of zero is worth: variance within cells over variance between them.

    Args:
        gaps: ln(true / predicted) of rows that were left out, (n,).
        cells: the workload and GPU of each.
    """
    by_cell = pd.Series(gaps).groupby(cells)
    within = float(by_cell.var().mean())
    between = float(by_cell.mean().var()) - within * float((1 / by_cell.size()).mean())
    return within / between if between > 1e-3 * within else 1e3


def correction(gaps: FloatArray, prior: float) -> float:
    """What to add to the logarithm of a prediction, from gaps ln(measured / predicted) of k measured points, (k,).

    Their mean, shrunk towards nothing by a prior of so many points (see `trust`). No points: 0.
    """
    return float(gaps.sum()) / (len(gaps) + prior) if len(gaps) else 0.0


def few_shot(samples: Samples, done: tuple[Fold, ...], *, seed: int = 0, draws: int = 10) -> pd.DataFrame:
    """Errors on workloads that no training row shows, by how many of their points were measured.

    No points means the reference rows alone, which every workload needs. Measured points are drawn at random for each
    workload and GPU. The model is not trained again: its predictions for that workload on that GPU are multiplied by a
    `correction`, one for time and one for power. Measured points are not tested.

    Args:
        samples: what was learned from and tested on.
        done: as from `study`.
        seed: of draws and intervals.
        draws: how often the measured points are drawn.

    Returns:
        One row for each number of points and quantity (`time`, and `power` where it was recorded): columns data,
        points, quantity, mean_pct (mean of |predicted - true| / true), low_pct, high_pct (95 % bootstrap interval over
        workloads and GPUs), cells (workloads times GPUs).
    """
    lots, rng = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(2))
    errors = pd.DataFrame(list(_errors(samples, done, draws, lots)))
    cells = errors.groupby([*_COLUMNS, "cell"], sort=False)["error_pct"].mean().reset_index()
    rows = []
    for key, group in cells.groupby(list(_COLUMNS), sort=False):
        values = group["error_pct"].to_numpy(float)
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        found = [round(float(value), 3) for value in (values.mean(), *np.percentile(means, [2.5, 97.5]))]
        rows.append((*key, *found, len(values)))
    return pd.DataFrame(rows, columns=[*_COLUMNS, "mean_pct", "low_pct", "high_pct", "cells"])


def _errors(
    samples: Samples, done: tuple[Fold, ...], draws: int, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    names = (samples.rows["workload"] + " on " + samples.rows["gpu"]).to_numpy(str)
    recorded = ("time",) if np.isnan(samples.truth[:, 1]).all() else ("time", "power")
    for fold in done:
        own = names[fold.test]
        priors = [trust(fold.trained[:, at], names[fold.train].tolist()) for at in range(len(recorded))]
        for cell in dict.fromkeys(own.tolist()):
            gaps = fold.gaps[LEARNER][own == cell]
            for points in (one for one in POINTS if one < len(gaps)):
                for _ in range(draws if points else 1):
                    order = rng.permutation(len(gaps))
                    for at, quantity in enumerate(recorded):
                        shift = correction(gaps[order[:points], at], priors[at])
                        left = np.expm1(shift - gaps[order[points:], at])
                        key = (samples.provenance, points, quantity)
                        error_pct = round(float(100 * np.abs(left).mean()), 4)
                        yield {**dict(zip(_COLUMNS, key, strict=True)), "cell": cell, "error_pct": error_pct}


def learners(samples: Samples, done: tuple[Fold, ...]) -> pd.DataFrame:
    """Every learner on workloads that no training row shows; for the chosen one, how often its intervals cover.

    Returns:
        One row for each learner: columns data, learner, time_pct and power_pct (mean of |predicted - true| / true;
        NaN: no power was recorded); for the chosen one also level_pct, time_covered_pct, power_covered_pct and
        time_width_pct (mean half-width of its conformal intervals).
    """
    company = in_company(samples.sets())
    rows = []
    for name in LEARNERS:
        gaps = np.concatenate([fold.gaps[name] for fold in done])
        time, power = (100 * np.abs(np.expm1(-gaps)).mean(axis=0)).round(2).tolist()
        row = {"data": samples.provenance, "learner": name, "time_pct": time, "power_pct": power}
        if name == LEARNER:
            row |= _coverage(done, company)
        rows.append(row)
    return pd.DataFrame(rows)


def _coverage(done: tuple[Fold, ...], company: NDArray[np.bool_]) -> dict[str, float]:
    covered, widths = [], []
    for fold in done:
        found = intervals(fold.trained, company[fold.train], level=LEVEL)
        half = np.column_stack([found.time, found.power])[company[fold.test].astype(int)]
        covered.append(np.abs(fold.gaps[LEARNER]) <= half)
        widths.append(np.expm1(half[:, 0]))
    time, power = (100 * np.concatenate(covered).mean(axis=0)).round(2).tolist()
    known = bool(np.isfinite(done[0].gaps[LEARNER][:, 1]).any())
    return {
        "level_pct": 100 * LEVEL,
        "time_covered_pct": time,
        "power_covered_pct": power if known else float("nan"),
        "time_width_pct": round(float(100 * np.concatenate(widths).mean()), 2),
    }
