"""Quality indicators of fronts: hypervolume, IGD+, paired tests."""

from __future__ import annotations

import numpy as np
import pytest
from support.toy_predictor import instance_from_tables

from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean, wilcoxon

ONE = np.array([[0.0, 4.0], [2.0, 2.0]])
OTHER = np.array([[4.0, 0.0], [3.0, 3.0]])


def test_hypervolume_of_two_fronts() -> None:
    indicators = FrontIndicators.of([ONE, OTHER], np.array([8.0, 8.0]))
    np.testing.assert_allclose(indicators.union, [[0.0, 0.5], [0.25, 0.25], [0.5, 0.0]])
    square = 1 - 0.5 * 0.25 - 0.25 * 0.25  # the unit square without two strips
    assert indicators.hypervolume(ONE) == pytest.approx((0.5 + 0.75 * 0.25) / square)
    assert indicators.hypervolume(np.concatenate((ONE, OTHER))) == pytest.approx(1.0)
    assert indicators.hypervolume(np.array([[9.0, 9.0]])) == 0.0


def test_igd_plus_of_two_fronts() -> None:
    indicators = FrontIndicators.of([ONE, OTHER], np.array([8.0, 8.0]))
    # The point (4, 0) of the union is 2 of 8 better in JCT than (2, 2); the others are reached.
    assert indicators.igd_plus(ONE) == pytest.approx(0.25 / 3)
    assert indicators.igd_plus(np.concatenate((ONE, OTHER))) == 0.0


def test_indicators_do_not_depend_on_units() -> None:
    unit = np.array([1e6, 1e-3])
    plain = FrontIndicators.of([ONE, OTHER], np.array([8.0, 8.0]))
    scaled = FrontIndicators.of([ONE * unit, OTHER * unit], np.array([8.0, 8.0]) * unit)
    assert scaled.hypervolume(OTHER * unit) == pytest.approx(plain.hypervolume(OTHER))
    assert scaled.igd_plus(OTHER * unit) == pytest.approx(plain.igd_plus(OTHER))


def test_random_plan_mean_of_one_task() -> None:
    instance = instance_from_tables([[10.0, 30.0]], [[100.0, 50.0]], "1xT4,1xA100")
    np.testing.assert_allclose(random_plan_mean(instance, np.random.default_rng(0), 4000), [75.0, 20.0], rtol=0.03)


def test_wilcoxon_is_paired() -> None:
    theirs = np.arange(10.0)
    assert wilcoxon(theirs + 0.5 + theirs / 100, theirs) == pytest.approx(2 / 2**10)
    assert wilcoxon(theirs, theirs) == 1.0
