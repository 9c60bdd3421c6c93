"""Quality indicators of fronts: hypervolume, IGD+, extent, spacing."""

from __future__ import annotations

import numpy as np
import pytest
from support.toy_predictor import instance_from_tables

from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean

ONE = np.array([[0.0, 4.0], [2.0, 2.0]])
OTHER = np.array([[4.0, 0.0], [3.0, 3.0]])
REFERENCE = np.array([8.0, 8.0])


def test_hypervolume() -> None:
    """Hypervolume of two fronts, by hand."""
    indicators = FrontIndicators.of([ONE, OTHER], REFERENCE)
    np.testing.assert_allclose(indicators.union, [[0.0, 0.5], [0.25, 0.25], [0.5, 0.0]])
    square = 1 - 0.5 * 0.25 - 0.25 * 0.25  # the unit square without two strips
    assert indicators.hypervolume(ONE) == pytest.approx((0.5 + 0.75 * 0.25) / square)
    assert indicators.hypervolume(np.concatenate((ONE, OTHER))) == pytest.approx(1.0)
    assert indicators.hypervolume(np.array([[9.0, 9.0]])) == 0.0


def test_no_hypervolume() -> None:
    """Fronts of which none is better than the mean of random plans in both measures are equal."""
    indicators = FrontIndicators.of([np.array([[0.0, 9.0], [9.0, 0.0]])], REFERENCE)
    assert indicators.hypervolume(np.array([[0.0, 9.0]])) == 1.0


def test_ratio_of_hypervolumes() -> None:
    """The ratio of hypervolumes does not depend on other fronts."""
    alone = FrontIndicators.of([ONE, OTHER], REFERENCE)
    beside = FrontIndicators.of([ONE, OTHER, np.array([[-1.0, 1.0]])], REFERENCE)
    ratios = [each.hypervolume(ONE) / each.hypervolume(OTHER) for each in (alone, beside)]
    assert ratios[0] == pytest.approx(ratios[1])


def test_igd_plus() -> None:
    """IGD+ of two fronts, by hand."""
    indicators = FrontIndicators.of([ONE, OTHER], REFERENCE)
    # The point (4, 0) of the union is 2 of 8 better in JCT than (2, 2); the others are reached.
    assert indicators.igd_plus(ONE) == pytest.approx(0.25 / 3)
    assert indicators.igd_plus(np.concatenate((ONE, OTHER))) == 0.0


def test_units() -> None:
    """Indicators do not depend on units."""
    unit = np.array([1e6, 1e-3])
    plain = FrontIndicators.of([ONE, OTHER], REFERENCE)
    scaled = FrontIndicators.of([ONE * unit, OTHER * unit], REFERENCE * unit)
    assert scaled.hypervolume(OTHER * unit) == pytest.approx(plain.hypervolume(OTHER))
    assert scaled.igd_plus(OTHER * unit) == pytest.approx(plain.igd_plus(OTHER))
    assert scaled.extent(OTHER * unit) == pytest.approx(plain.extent(OTHER))
    assert scaled.spacing(OTHER * unit) == pytest.approx(plain.spacing(OTHER))


def test_extent_and_spacing() -> None:
    """Extent and spacing of fronts by hand."""
    even = np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
    uneven = even[[0, 1, 4]]
    indicators = FrontIndicators.of([10 * even + 3], np.array([20.0, 20.0]))
    assert indicators.extent(10 * even + 3) == pytest.approx(2**0.5)
    assert indicators.extent(10 * even[1:4] + 3) == pytest.approx(2**0.5 / 2)
    assert indicators.spacing(10 * even + 3) == pytest.approx(0.0)
    assert indicators.spacing(10 * uneven + 3) == pytest.approx(0.5)  # gaps of 1 and 3: 1 over 2
    assert indicators.spacing(10 * even[:2] + 3) == 0.0


def test_random_plan_mean() -> None:
    """The mean of random plans of one task is that of its two GPUs."""
    instance = instance_from_tables([[10.0, 30.0]], [[100.0, 50.0]], "1xT4,1xA100")
    np.testing.assert_allclose(random_plan_mean(instance, np.random.default_rng(0), 4000), [75.0, 20.0], rtol=0.03)
