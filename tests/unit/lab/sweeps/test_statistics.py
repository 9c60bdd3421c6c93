"""Medians, their intervals, and paired changes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from heshare.lab.sweeps.statistics import FEWEST, change_pct, interval_words, median_interval, outer_rank
from heshare.shared.errors import InputError


def test_change_pct() -> None:
    """`change_pct` is paired by seed."""
    theirs = np.array([100.0, 1000.0, 10.0])
    found = change_pct(0.7 * theirs, theirs)
    assert found.value == pytest.approx(-30)
    assert (found.low, found.high) == (pytest.approx(-30), pytest.approx(-30))
    assert found.n == 3


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.randoms())
def test_order_statistics(values: list[float], draw: Random) -> None:
    """The interval of a median is a pair of order statistics around it."""
    found = median_interval(values)
    assert {found.low, found.high} <= {*values}
    assert found.low <= found.value == np.median(values) <= found.high
    draw.shuffle(values)
    assert median_interval(values) == found


@pytest.mark.parametrize(
    ("n", "rank", "covered"), [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609), (10, 2, 0.9785), (20, 6, 0.9586)]
)
def test_coverage(n, rank, covered) -> None:
    """The interval is the narrowest pair that covers the median with 95 %."""
    assert outer_rank(n) == rank
    assert 1 - 2 * binom.cdf(rank - 1, n, 0.5) == pytest.approx(covered, abs=1e-4)
    assert n < FEWEST or 1 - 2 * binom.cdf(rank, n, 0.5) < 0.95 <= covered
    found = median_interval(np.arange(1.0, n + 1))
    assert (found.low, found.high) == (rank, n + 1 - rank)


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]], [np.inf]])
def test_bad_values(values: list[object]) -> None:
    """Values that have no median are refused."""
    with pytest.raises(InputError):
        median_interval(values)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_unpaired_values(ours: list[float], theirs: list[float]) -> None:
    """`change_pct` refuses unpaired values."""
    with pytest.raises(InputError):
        change_pct(ours, theirs)


@pytest.mark.parametrize("n", range(1, 21))
def test_level(n: int) -> None:
    """An interval has its level: 95 % or more from six values on, and captions call fewer a range."""
    found = median_interval(np.arange(1.0, n + 1))
    assert found.level == pytest.approx(binom.cdf(n - outer_rank(n), n, 0.5) - binom.cdf(outer_rank(n) - 1, n, 0.5))
    assert (found.level >= 0.95) == (n >= FEWEST)
    assert interval_words(n) == ("95 % intervals" if found.level >= 0.95 else f"range of {n}")
