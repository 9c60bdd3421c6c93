"""Pareto fronts: non-dominated points, ranks, crowding distance, knee."""

from __future__ import annotations

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.scheduling.front import Front
from heshare.scheduling.pareto import (
    ascending,
    ideal,
    knee,
    nadir,
    non_dominated,
    non_dominated_indices,
    normalised,
    round_significant,
    rounded_values,
    thin,
)
from heshare.shared.errors import InputError

POINTS = np.array([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0], [3.0, 4.0], [5.0, 5.0]])


def test_five_points() -> None:
    """Non-dominated of five points."""
    assert non_dominated(POINTS).tolist() == [True, True, True, False, False]


def test_equal_points() -> None:
    """Of equal points the first is kept."""
    assert non_dominated(np.array([[1.0, 2.0], [1.0, 2.0], [1.0 + 1e-13, 2.0]])).tolist() == [True, False, False]


def test_moocore(rng: np.random.Generator) -> None:
    """Non-dominated agrees with moocore."""
    for points in (rng.integers(1, 6, (60, 2)).astype(float), np.ones((9, 2)), rng.random((80, 2)), np.zeros((0, 2))):
        expected = moocore.is_nondominated(points) if len(points) else np.zeros(0, dtype=bool)
        np.testing.assert_array_equal(non_dominated(points), expected)


def test_tolerance() -> None:
    """Non-dominated indices are in order of energy and skip gains within the tolerance."""
    energy_j, jct_s = np.array([3.0, 1.0, 2.0, 2.0, 4.0]), np.array([2.0, 5.0, 4.0, 3.0, 2.0 * (1 - 1e-13)])
    assert non_dominated_indices(energy_j, jct_s).tolist() == [1, 3, 0, 4]
    assert non_dominated_indices(energy_j, jct_s, 1e-12).tolist() == [1, 3, 0]


def test_thin() -> None:
    """Thin keeps both ends in order of energy."""
    x = np.linspace(0, 1, 101)
    front = np.column_stack((x, 1 - x))[::-1]
    kept = front[thin(front, 5)]
    np.testing.assert_allclose(kept[:, 0], [0, 0.25, 0.5, 0.75, 1.0])
    assert thin(front, 200).tolist() == list(range(100, -1, -1))


def test_ideal_and_nadir() -> None:
    """Ideal, nadir and normalised points."""
    np.testing.assert_allclose(ideal(POINTS), [1, 1])
    np.testing.assert_allclose(nadir(POINTS), [4, 5])
    np.testing.assert_allclose(normalised(POINTS)[:3], [[0, 1], [1 / 3, 0.5], [1, 0]])
    np.testing.assert_allclose(normalised(np.array([[2.0, 3.0]])), [[0, 0]])


def test_units() -> None:
    """Knee does not depend on units."""
    rng = np.random.default_rng(3)
    points = rng.random((50, 2))
    front = points[non_dominated(points)]
    assert knee(front) == knee(front * np.array([1e6, 1e-3]))


def test_knee() -> None:
    """Knee is nearest to the ideal and of equally near points that of the least energy."""
    assert knee(POINTS[:3]) == 1  # distances 1, 0.60, 1
    assert knee(np.array([[3.0, 1.0], [1.0, 3.0]])) == 1


def test_rounding() -> None:
    """Values that differ behind the tenth digit are rounded alike."""
    values = np.array([123456.0, 0.0, np.inf, 1e-7, 1e300, 5e-324])
    near = values * (1 + 1e-13)
    assert round_significant(near).tolist() == round_significant(values).tolist()
    np.testing.assert_allclose(round_significant(values), values, rtol=1e-10)
    assert (round_significant(values[:1] * (1 + 1e-9)) > round_significant(values[:1])).all()
    np.testing.assert_array_equal(rounded_values(near), round_significant(near))


@given(st.lists(st.integers(0, 9), max_size=70))
def test_ascending(values: list[int]) -> None:
    """Ascending is a stable sort."""
    np.testing.assert_array_equal(ascending(np.array(values, dtype=float)), np.argsort(values, kind="stable"))


def test_no_plans() -> None:
    """Front rejects no plans."""
    with pytest.raises(InputError, match="at least one plan"):
        Front((), np.zeros((0, 2)))
