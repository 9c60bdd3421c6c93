"""The quadratic part of the predictor: exact on quadratics, within the range of its rows, bit for bit row by row."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.prediction.quadratic import Quadratic


def _outputs(columns: np.ndarray) -> np.ndarray:
    return np.column_stack([1 + columns[:, 0] * columns[:, 1], columns[:, 2] ** 2 - 3 * columns[:, 0]])


def test_a_quadratic_is_reproduced(rng: np.random.Generator) -> None:
    columns = rng.uniform(-1, 2, (4000, 3))
    fitted, asked = Quadratic().fit(columns, _outputs(columns)), rng.uniform(-0.9, 1.9, (50, 3))
    assert fitted.predict(asked) == pytest.approx(_outputs(asked), abs=0.02)


def test_a_row_out_of_range_is_predicted_like_the_nearest_in_range(rng: np.random.Generator) -> None:
    columns = rng.uniform(0, 1, (300, 3))
    fitted, low = Quadratic().fit(columns, _outputs(columns)), columns.min(axis=0)
    assert np.array_equal(fitted.predict(low[None] - 5), fitted.predict(low[None]))


def test_no_bit_of_a_row_depends_on_the_other_rows(rng: np.random.Generator) -> None:
    columns = rng.uniform(0, 1, (300, 3))
    fitted = Quadratic().fit(columns, _outputs(columns))
    together = fitted.predict(columns)
    assert np.array_equal(together, np.vstack([fitted.predict(row[None]) for row in columns]))


def test_a_value_between_two_trained_ones_is_predicted_between_them() -> None:
    columns = np.array([[-1.0], [1.0]] * 100 + [[1.001]])
    found = Quadratic().fit(columns, columns).predict(np.zeros((1, 1)))
    assert -1.1 < found[0, 0] < 1.1, "the square of every trained value is 1"
