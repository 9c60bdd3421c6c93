"""Medians, their intervals, and paired changes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from heshare.lab.sweeps.statistics import FEWEST, change_pct, median_interval, outer_rank
from heshare.shared.errors import InputError


def test_change_pct_is_paired_by_seed() -> None:
    theirs = np.array([100.0, 1000.0, 10.0])
    found = change_pct(0.7 * theirs, theirs)
    assert found.value == pytest.approx(-30)
    assert (found.low, found.high) == (pytest.approx(-30), pytest.approx(-30))
    assert found.n == 3


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.randoms())
def test_median_interval_is_a_pair_of_order_statistics_around_the_median(values: list[float], draw: Random) -> None:
    found = median_interval(values)
    assert {found.low, found.high} <= {*values}
    assert found.low <= found.value == np.median(values) <= found.high
    draw.shuffle(values)
    assert median_interval(values) == found


@pytest.mark.parametrize(
    ("n", "rank", "covered"), [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609), (10, 2, 0.9785), (20, 6, 0.9586)]
)
def test_median_interval_is_the_narrowest_pair_that_covers_the_median_with_95_percent(n, rank, covered) -> None:
    assert outer_rank(n) == rank
    assert 1 - 2 * binom.cdf(rank - 1, n, 0.5) == pytest.approx(covered, abs=1e-4)
    assert n < FEWEST or 1 - 2 * binom.cdf(rank, n, 0.5) < 0.95 <= covered
    found = median_interval(np.arange(1.0, n + 1))
    assert (found.low, found.high) == (rank, n + 1 - rank)


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]], [np.inf]])
def test_median_interval_refuses_bad_values(values: list[object]) -> None:
    with pytest.raises(InputError):
        median_interval(values)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_change_pct_refuses_unpaired_values(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(InputError):
        change_pct(ours, theirs)
