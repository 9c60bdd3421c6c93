"""Filters, crowding, knee, hypervolume."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.scheduling.pareto import (
    Front,
    crowding,
    hypervolume,
    ideal,
    knee,
    nadir,
    non_dominated,
    normalised,
    ranks,
    significant,
    thin,
)

POINTS = np.array([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0], [3.0, 4.0], [5.0, 5.0]])


def test_non_dominated_by_hand() -> None:
    assert non_dominated(POINTS).tolist() == [True, True, True, False, False]


def test_of_equal_points_only_the_first_counts() -> None:
    assert non_dominated(np.array([[1.0, 2.0], [1.0, 2.0], [1.0 + 1e-13, 2.0]])).tolist() == [True, False, False]


def test_ranks_by_hand_with_doubles_behind_everybody() -> None:
    assert ranks(POINTS).tolist() == [0, 0, 0, 1, 2]
    doubled = ranks(np.vstack((POINTS, POINTS[:1])))
    assert doubled[:5].tolist() == [0, 0, 0, 1, 2]
    assert doubled[5] > 2


def test_crowding_by_hand() -> None:
    line = np.array([[0.0, 10.0], [1.0, 6.0], [4.0, 1.0], [10.0, 0.0]])
    distance = crowding(line, np.zeros(4, dtype=int))
    assert np.isinf(distance[[0, 3]]).all()
    np.testing.assert_allclose(distance[1:3], [4 / 10 + 9 / 10, 9 / 10 + 6 / 10])


def test_crowding_keeps_fronts_apart() -> None:
    both = np.vstack((POINTS[:3], POINTS[:3] + 10))
    distance = crowding(both, np.array([0, 0, 0, 1, 1, 1]))
    np.testing.assert_allclose(distance[:3], distance[3:])


def test_thin_keeps_both_ends_and_order() -> None:
    x = np.linspace(0, 1, 101)
    front = np.column_stack((x, 1 - x))[::-1]
    kept = front[thin(front, 5)]
    np.testing.assert_allclose(kept[:, 0], [0, 0.25, 0.5, 0.75, 1.0])
    assert thin(front, 200).tolist() == list(range(100, -1, -1))


def test_ideal_and_nadir_and_normalised() -> None:
    np.testing.assert_allclose(ideal(POINTS), [1, 1])
    np.testing.assert_allclose(nadir(POINTS), [4, 5])
    np.testing.assert_allclose(normalised(POINTS)[:3], [[0, 1], [1 / 3, 0.5], [1, 0]])
    np.testing.assert_allclose(normalised(np.array([[2.0, 3.0]])), [[0, 0]])


def test_knee_is_nearest_to_the_ideal_point() -> None:
    assert knee(POINTS[:3]) == 1  # distances 1, 0.60, 1


def test_knee_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((50, 2))
    front = points[non_dominated(points)]
    assert knee(front) == knee(front * np.array([1e6, 1e-3]))


def test_a_tie_at_the_knee_goes_to_the_least_energy() -> None:
    assert knee(np.array([[3.0, 1.0], [1.0, 3.0]])) == 1


def test_hypervolume_by_hand() -> None:
    assert hypervolume(POINTS[:3], np.array([5.0, 6.0])) == pytest.approx(1 * 1 + 2 * 3 + 1 * 5)


def test_significant_rounds_relatively_and_leaves_infinity() -> None:
    values = np.array([123456.0 * (1 + 1e-13), 0.0, np.inf, 1e-7 * (1 + 1e-13)])
    assert significant(values).tolist() == [123456.0, 0.0, np.inf, 1e-7]


def test_an_empty_front_is_refused() -> None:
    with pytest.raises(InputError, match="at least one plan"):
        Front((), np.zeros((0, 2)))
