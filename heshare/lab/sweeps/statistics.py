"""Medians and paired changes with intervals between two order statistics: exact, and without random draws.

Intervals have a level of 95 % or more, but for fewer than `FEWEST` values, where they are the range.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heshare.shared.errors import require

FEWEST = 6
"""The fewest values with a 95 % interval of their median: the range of 6 misses it with 3 %, that of 5 with 6 %."""


def interval_words(n: int) -> str:
    """Return in words what the ends around medians of n values are: `95 % intervals`, or `range of 5`, for captions."""
    return "95 % intervals" if n >= FEWEST else f"range of {n}"


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A median of n values with its interval, as from `median_interval`."""

    value: float
    low: float
    high: float
    n: int

    @property
    def level(self) -> float:
        """The least chance that the interval covers the median of the distribution: 0.75 for the range of 3 values."""
        fewer = sum(math.comb(self.n, below) for below in range(outer_rank(self.n)))
        return float(1.0 - 2.0 * fewer / 2**self.n)

    def columns(self, value: str, low: str = "low", high: str = "high") -> dict[str, float]:
        """Return the interval as cells of a table's row: the median in the column `value`, then low, high and n."""
        return {value: self.value, low: self.low, high: self.high, "n": self.n}


def median_interval(values: ArrayLike) -> ConfidenceInterval:
    """Return the median of `values`, shape (n,), with its interval between two order statistics.

    The ends are the k-th value from below and from above, with the largest k that covers the median of any continuous
    distribution with at least 95 % (`outer_rank`). Fewer than `FEWEST` values have no such pair, and get their range.

    Raises:
        InputError: no value, or one that is not finite.
    """
    sample: NDArray[np.float64] = np.sort(np.asarray(values, dtype=np.float64).ravel())
    good = np.ndim(values) == 1 and sample.size > 0 and bool(np.isfinite(sample).all())
    expected, action = "a row of finite numbers, at least one", "Check what the runs returned."
    require(None, f"values of shape {np.shape(values)}", good, expected, action)
    rank = outer_rank(sample.size)
    return ConfidenceInterval(float(np.median(sample)), float(sample[rank - 1]), float(sample[-rank]), sample.size)


def outer_rank(n: int) -> int:
    """Return the largest k for which the k-th of n values from below and from above cover their median with 95 %.

    The pair misses it if fewer than k values lie on one side: twice P(B < k), B binomial(n, 1/2). At least 1.
    """
    fewer = accumulate(math.comb(n, below) for below in range(n // 2))
    return max(1, len([cases for cases in fewer if 20 * 2 * cases <= 2**n]))


def change_pct(ours: ArrayLike, theirs: ArrayLike) -> ConfidenceInterval:
    """Return the median change of `ours` against `theirs`, paired by seed, %; -30 is a reduction of 30 %.

    `ours` and `theirs` have shape (n,), one value a seed, those of `theirs` above zero.

    Raises:
        InputError: the shapes differ, or `theirs` holds a value that is not above zero.
    """
    left, right = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    good, found = left.shape == right.shape and bool((right > 0).all()), f"shapes {left.shape} and {right.shape}"
    expected = "paired values of one shape, the second above zero"
    require(None, found, good, expected, "Compare policies over the same seeds.")
    return median_interval(100.0 * (left / right - 1.0))
