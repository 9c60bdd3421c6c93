"""Hypervolume and IGD+ against a union front, attainment surfaces, paired tests."""

from __future__ import annotations

import numpy as np
import pytest
from toy_predictor import table

from heshare.scheduling.indicators import Yardstick, attainment, random_level, wilcoxon

ONE = np.array([[0.0, 4.0], [2.0, 2.0]])
OTHER = np.array([[4.0, 0.0], [3.0, 3.0]])


def test_hypervolume_by_hand() -> None:
    stick = Yardstick.of([ONE, OTHER], np.array([8.0, 8.0]))
    np.testing.assert_allclose(stick.union, [[0.0, 0.5], [0.25, 0.25], [0.5, 0.0]])
    whole = 1 - 0.5 * 0.25 - 0.25 * 0.25  # all of the square but two strips
    assert stick.hypervolume(ONE) == pytest.approx((0.5 + 0.75 * 0.25) / whole)
    assert stick.hypervolume(np.concatenate((ONE, OTHER))) == pytest.approx(1.0)
    assert stick.hypervolume(np.array([[9.0, 9.0]])) == 0.0


def test_igd_plus_by_hand() -> None:
    stick = Yardstick.of([ONE, OTHER], np.array([8.0, 8.0]))
    # The point (4, 0) of the union lacks 2 of 8 in JCT against (2, 2); the others are met.
    assert stick.igd_plus(ONE) == pytest.approx(0.25 / 3)
    assert stick.igd_plus(np.concatenate((ONE, OTHER))) == 0.0


def test_units_do_not_matter() -> None:
    unit = np.array([1e6, 1e-3])
    plain = Yardstick.of([ONE, OTHER], np.array([8.0, 8.0]))
    scaled = Yardstick.of([ONE * unit, OTHER * unit], np.array([8.0, 8.0]) * unit)
    assert scaled.hypervolume(OTHER * unit) == pytest.approx(plain.hypervolume(OTHER))
    assert scaled.igd_plus(OTHER * unit) == pytest.approx(plain.igd_plus(OTHER))


def test_random_level_by_hand() -> None:
    world = table([[10.0, 30.0]], [[100.0, 50.0]], "1xT4,1xA100")
    np.testing.assert_allclose(random_level(world, np.random.default_rng(0), 4000), [75.0, 20.0], rtol=0.03)


def test_the_median_surface_is_what_half_of_the_runs_reach() -> None:
    runs = [np.array([[1.0, 3.0], [3.0, 1.0]]), np.array([[2.0, 2.0]]), np.array([[5.0, 5.0]])]
    np.testing.assert_allclose(attainment(runs, 1 / 3), [[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    np.testing.assert_allclose(attainment(runs), [[2.0, 3.0], [3.0, 2.0]])
    np.testing.assert_allclose(attainment(runs, 1.0), [[5.0, 5.0]])


def test_wilcoxon_is_paired() -> None:
    theirs = np.arange(10.0)
    assert wilcoxon(theirs + 0.5 + theirs / 100, theirs) == pytest.approx(2 / 2**10)
    assert wilcoxon(theirs, theirs) == 1.0
