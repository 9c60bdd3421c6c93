"""Conformal prediction intervals for times and power, from errors on rows that were left out of the fit.

Derivation. Let e_1, ..., e_n be the sizes |ln(true / predicted)| of errors on rows whose workload the fitted model had
not seen. If a new row is exchangeable with them, the rank of its own error among all n + 1 is uniform, so the k-th
smallest of the n errors is at least as large with probability k / (n + 1) or more. Hence

    q = k-th smallest of e_1, ..., e_n,   k = ceil((n + 1) level),

and the interval [p exp(-q), p exp(q)] around a prediction p covers the truth with probability `level` or more (Vovk et
al., 2005, doi:10.1007/b106715). Here every training row is left out once, by workload, instead of a part that never
trains (cross-conformal prediction: Vovk, 2015, doi:10.1007/s10472-013-9368-4), and p comes from the model fitted to all
rows. Then the guarantee is weaker (1 - 2 (1 - level) for intervals built from the fold models: Barber et al., 2021,
doi:10.1214/20-AOS1965) while coverage is usually close to `level`; Table x04c reports it. Tasks alone and tasks beside
others have errors of different sizes, so each kind has its own q.

Example: the 9 errors 1 %, ..., 9 % give k = ceil(10 x 0.9) = 9; of 8 errors none is large enough.

>>> conformal_quantile(np.arange(1, 10) / 100, 0.9)
0.09
>>> conformal_quantile(np.arange(1, 9) / 100, 0.9)
inf
"""

from collections.abc import Sequence

import numpy as np
from sklearn.model_selection import GroupKFold

from heshare.lab.plus.physics.physics_predictor import PhysicsModel
from heshare.lab.plus.physics.roofline import ResidentSets
from heshare.shared.arrays import BoolArray, FloatArray

_FOLDS = 3


def left_out_errors(
    sets: ResidentSets, truth: FloatArray, groups: Sequence[str], *, model: PhysicsModel, seed: int
) -> FloatArray:
    """Return errors on training rows whose group was left out, ln(true / predicted) of time and power, shape (m, 2).

    Args:
        sets: the training rows.
        truth: their times (s) and powers (W; NaN: not recorded), (m, 2).
        groups: the group of each row, such as its workload, (m,).
        model: the model fitted to all of them; each search begins at its constants.
        seed: of the learners.
    """
    errors = np.full((len(truth), 2), np.nan)
    names = np.asarray(groups, dtype=str)
    for train, test in GroupKFold(min(_FOLDS, len(np.unique(names)))).split(names, groups=names):
        other = PhysicsModel(seed=seed, learner=model.learner)
        other.fit(sets.pick(train), *truth[train].T, start=model.roofline)
        errors[test] = np.log(truth[test] / np.column_stack(other.predict_first(sets.pick(test))))
    return errors


def half_widths(errors: FloatArray, has_co_runners: BoolArray, *, level: float = 0.9) -> FloatArray:
    """Return half-widths q of conformal intervals in logarithms, from errors on rows that were left out.

    Args:
        errors: as from `left_out_errors`, (m, 2).
        has_co_runners: which rows have co-runners, (m,).
        level: part of new rows to cover, such as 0.9.

    Returns:
        shape (2, 2): rows are tasks alone and tasks with co-runners; columns are time and power.
    """
    by_kind = [np.abs(errors[has_co_runners == kind]) for kind in (False, True)]
    return np.array([[conformal_quantile(sizes, level) for sizes in kind.T] for kind in by_kind])


def conformal_quantile(sizes: FloatArray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n finite sizes; infinite where n is too small."""
    ordered = np.sort(sizes[np.isfinite(sizes)])
    rank = int(np.ceil((len(ordered) + 1) * level))
    return float(ordered[rank - 1]) if 0 < rank <= len(ordered) else float("inf")
