"""The quadratic part of the predictor: exact on quadratics, within the range of its rows, bit for bit row by row."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.prediction.quadratic import Quadratic


def _outputs(columns: np.ndarray) -> np.ndarray:
    return np.column_stack([1 + columns[:, 0] * columns[:, 1], columns[:, 2] ** 2 - 3 * columns[:, 0]])


def test_quadratic(rng: np.random.Generator) -> None:
    """A quadratic is reproduced, and no bit of a row depends on the other rows."""
    columns = rng.uniform(-1, 2, (4000, 3))
    fitted, asked = Quadratic().fit(columns, _outputs(columns)), rng.uniform(-0.9, 1.9, (50, 3))
    together = fitted.predict(asked)
    assert together == pytest.approx(_outputs(asked), abs=0.02)
    assert np.array_equal(together, np.vstack([fitted.predict(row[None]) for row in asked]))


def test_out_of_range(rng: np.random.Generator) -> None:
    """A row out of range is predicted like the nearest in range."""
    columns = rng.uniform(0, 1, (300, 3))
    fitted, low = Quadratic().fit(columns, _outputs(columns)), columns.min(axis=0)
    assert np.array_equal(fitted.predict(low[None] - 5), fitted.predict(low[None]))


def test_between() -> None:
    """A value between two trained ones is predicted between them."""
    columns = np.array([[-1.0], [1.0]] * 100 + [[1.001]])
    found = Quadratic().fit(columns, columns).predict(np.zeros((1, 1)))
    assert -1.1 < found[0, 0] < 1.1, "the square of every trained value is 1"
