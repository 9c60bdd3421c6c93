"""How good 90 % intervals are, and the spread whose interval is best."""

from collections.abc import Sequence

import numpy as np

from heshare.devices.uncertainty import NORMAL_90
from heshare.shared.arrays import FloatArray

INSIDE = 0.9
"""Part of the errors that an interval should hold."""
_SPREADS = tuple(0.005 * step for step in range(201))


def interval_score(error: FloatArray, half_width: FloatArray) -> FloatArray:
    """Return the interval score of central 90 % intervals of a logarithm, (n,): width, and what errors exceed it by.

    Gneiting and Raftery (2007), Journal of the American Statistical Association 102:359. Smaller is better. `error` is
    absolute.
    """
    return np.asarray(2.0 * (half_width + np.maximum(0.0, error - half_width) / (1.0 - INSIDE)), dtype=np.float64)


def quantile_spread(errors: Sequence[FloatArray]) -> float:
    """Return the standard deviation whose 90 % interval holds nine in ten of the errors; each array weighs the same."""
    values = np.abs(np.concatenate(errors))
    weights = np.concatenate([np.full(len(part), 1.0 / len(part)) for part in errors])
    order = np.argsort(values, kind="stable")
    place = np.searchsorted(np.cumsum(weights[order]), INSIDE * len(errors))
    return float(values[order][min(int(place), len(values) - 1)]) / NORMAL_90


def added_spread(errors: Sequence[FloatArray], known: Sequence[float]) -> float:
    """Return the spread with the smallest mean interval score beside known ones, by item; each item weighs the same."""

    def score(spread: float) -> float:
        half_widths = NORMAL_90 * np.hypot(spread, known)
        return sum(
            float(np.mean(interval_score(np.abs(part), np.full(len(part), half_width))))
            for part, half_width in zip(errors, half_widths, strict=True)
        )

    return min(_SPREADS, key=score)
