"""Fronts of queues and sums of fronts against brute force, and what thinning keeps."""

from __future__ import annotations

from itertools import product

import numpy as np

from heshare.lab.plus.batch_table import BatchOptions
from heshare.lab.plus.fronts import suffix_fronts, sum_fronts, thinned_front
from heshare.scheduling.pareto import non_dominated


def test_suffix_fronts() -> None:
    """The suffix fronts of one task have both of its options."""
    values = np.array([[1.0, 5.0, 0.0], [2.0, 3.0, 0.0]])
    options = BatchOptions(np.array([0, 2, 2]), values, np.full(2, 1000), np.full((2, 2), 100))
    fronts = suffix_fronts(1, 2, options, 8)
    assert fronts.of(1).tolist() == [[1.0, 5.0], [2.0, 3.0]]
    assert [fronts.options(point) for point in (1, 2)] == [[0], [1]]


def test_sum_fronts(rng: np.random.Generator) -> None:
    """The sum of fronts is the front of all sums."""
    fronts = [np.stack((np.sort(rng.random(6)), np.sort(rng.random(6))[::-1]), axis=1) for _ in range(3)]
    sums = np.array([np.sum(points, axis=0) for points in product(*fronts)])
    expected = sums[non_dominated(sums)]
    points, chosen = sum_fronts(fronts, 1000)
    np.testing.assert_allclose(points, expected[np.argsort(expected[:, 0])])
    again = [sum(front[point] for front, point in zip(fronts, row, strict=True)) for row in chosen]
    np.testing.assert_allclose(again, points)

    nothing, chosen = sum_fronts([], 10)
    assert (nothing.tolist(), chosen.shape) == ([[0.0, 0.0]], (1, 0))


def test_thinned_front(rng: np.random.Generator) -> None:
    """A thinned front keeps both ends and the hull."""
    x = np.sort(rng.random(400))
    y = (1 - np.sqrt(x)) + 0.02 * rng.random(400)
    kept = thinned_front(x, y, 60, 0.0)
    whole = thinned_front(x, y, 1000, 0.0)
    assert len(kept) <= 61
    assert {whole[0], whole[-1]} <= set(kept)
    for weight in (0.1, 1.0, 10.0):
        assert (x + weight * y)[kept].min() <= (x + weight * y).min() * 1.001
    assert np.all(np.diff(y[kept]) < 0)
