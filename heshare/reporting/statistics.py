"""Medians with bootstrap intervals; comparisons are paired by seed (DESIGN: at least 10 seeds, 95 %)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heshare.errors import InputError

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with its 95 % bootstrap interval.

    Attributes:
        value: the median.
        low: the 2.5th percentile of the resampled medians.
        high: the 97.5th percentile of the resampled medians.
        n: how many values.
    """

    value: float
    low: float
    high: float
    n: int

    def priced(self, note: str, provenance: str = "emulated") -> dict[str, Any]:
        """The arguments with which `heshare.reporting.claims.price` prices a claim on this value."""
        numbers = {"measured": self.value, "low": self.low, "high": self.high, "n": self.n}
        return {**numbers, "provenance": provenance, "note": note}


def median_interval(values: ArrayLike, rng: np.random.Generator, resamples: int = RESAMPLES) -> Interval:
    """The median of `values`, shape (n,), with its 95 % percentile bootstrap interval.

    Raises:
        InputError: no value, or one that is not finite.
    """
    sample: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0 or not np.isfinite(sample).all():
        raise InputError(
            found=f"values of shape {sample.shape}",
            expected="a row of finite numbers, at least one",
            action="Check what the runs returned.",
        )
    drawn = sample[rng.integers(0, sample.size, size=(resamples, sample.size))]
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Interval(float(np.median(sample)), float(low), float(high), int(sample.size))


def change_pct(ours: ArrayLike, theirs: ArrayLike, rng: np.random.Generator) -> Interval:
    """By how many percent `ours` differs from `theirs`, seed by seed: -30 is a reduction of 30 %.

    Args:
        ours: one value a seed, shape (n,).
        theirs: the other policy's values at the same seeds, shape (n,), above zero.
        rng: draws the bootstrap's samples.

    Raises:
        InputError: the shapes differ, or `theirs` holds a value that is not above zero.
    """
    left, right = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if left.shape != right.shape or not (right > 0).all():
        raise InputError(
            found=f"shapes {left.shape} and {right.shape}",
            expected="paired values of one shape, the second above zero",
            action="Compare policies over the same seeds.",
        )
    return median_interval(100.0 * (left / right - 1.0), rng)
