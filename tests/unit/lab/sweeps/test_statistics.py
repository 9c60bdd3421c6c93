"""Medians, their intervals, and paired changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, group_means, median_interval
from heshare.shared.errors import InputError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_claim_arguments_are_the_interval_its_provenance_and_the_note() -> None:
    arguments = ConfidenceInterval(-5.0, -6.0, -4.0, 10).claim_arguments("why")
    assert arguments == {"measured": -5.0, "low": -6.0, "high": -4.0, "n": 10, "provenance": "emulated", "note": "why"}


def test_change_pct_is_paired_by_seed() -> None:
    theirs = np.array([100.0, 1000.0, 10.0])
    found = change_pct(0.7 * theirs, theirs, rng())
    assert found.value == pytest.approx(-30)
    assert (found.low, found.high) == (pytest.approx(-30), pytest.approx(-30))
    assert found.n == 3


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_median_interval_contains_the_median_and_lies_in_the_data(values: list[float]) -> None:
    found = median_interval(values, rng(), resamples=200)
    assert min(values) <= found.low <= found.high <= max(values)
    assert found.value == np.median(values)


def test_median_interval_covers_the_true_median_about_as_often_as_stated() -> None:
    source = np.random.default_rng(2)
    hits = [
        found.low <= 0 <= found.high
        for found in (median_interval(source.normal(size=10), source, resamples=400) for _ in range(200))
    ]
    assert 0.85 < np.mean(hits) <= 1.0


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]], [np.inf]])
def test_median_interval_refuses_bad_values(values: list[object]) -> None:
    with pytest.raises(InputError):
        median_interval(values, rng())


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_change_pct_refuses_unpaired_values(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(InputError):
        change_pct(ours, theirs, rng())


def test_group_means_are_those_of_pandas_to_the_last_bit() -> None:
    draw = rng()
    values, groups = np.exp(draw.normal(0.0, 9.0, size=300)), draw.integers(0, 20, size=300)
    groups[groups == 7] = 8
    expected = pd.Series(values).groupby(groups).mean().reindex(range(20)).to_numpy()
    np.testing.assert_array_equal(group_means(values, groups, 20), expected)
