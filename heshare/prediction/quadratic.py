"""The smooth part of the schedulers' predictor: a quadratic function of a row's load, fitted by ridge regression."""

from typing import Any

import numpy as np

from heshare.shared.arrays import FloatArray
from heshare.shared.compiled import njit

PENALTY = 3.0
"""Of the squared weights, chosen by cross-validation inside the training part, of 3, 10 and 30."""


class Quadratic:
    """Outputs as weighted sums of columns and of their products, two at a time.

    Columns and products are held within the range of the training rows, so that a row far from them is predicted like
    the nearest. Without it for products, a type of GPU between two trained ones has squares that none of them has.
    """

    def fit(self, columns: FloatArray, outputs: FloatArray) -> "Quadratic":
        """Learn outputs, shape (rows, k), from columns, shape (rows, c); returns itself."""
        self._range = np.array([columns.min(axis=0), columns.max(axis=0)])
        self._centre = columns.mean(axis=0)
        self._scale = columns.std(axis=0) + 1e-9
        scaled = np.column_stack([np.ones(len(columns)), (columns - self._centre) / self._scale])

        # A term for each pair of columns; the first column is 1, so that the columns themselves are among them.
        first, second = (places[1:] for places in np.tril_indices(scaled.shape[1]))
        products = scaled[:, first] * scaled[:, second]
        middle = products.mean(axis=0)
        spread = products.std(axis=0) + 1e-9
        terms = (products - middle) / spread

        # Ridge regression; ten digits, since the last bits depend on the processor.
        means = outputs.mean(axis=0)
        weights = np.linalg.solve(terms.T @ terms + PENALTY * np.eye(len(middle)), terms.T @ (outputs - means))
        weights = (weights / spread[:, None]).round(10)

        size = scaled.shape[1]
        self._weights = np.zeros((size, size, outputs.shape[1]))
        self._weights[first, second] = weights
        self._weights[0, 0] = (means - (middle[:, None] * weights).sum(axis=0)).round(10)
        self._products = np.ones((2, size, size))
        self._products[:, first, second] = products.min(axis=0), products.max(axis=0)
        return self

    def predict(self, columns: FloatArray) -> FloatArray:
        """Return the outputs of columns, shape (rows, c), as (rows, k)."""
        scaled = (np.clip(columns, *self._range) - self._centre) / self._scale
        found: FloatArray = _sums(np.column_stack([np.ones(len(columns)), scaled]), self._weights, *self._products)
        return found


@njit(cache=True)
def _sums(rows: Any, weights: Any, least: Any, most: Any) -> Any:
    # In one order for every row, which a BLAS product does not promise, so that no bit depends on the other rows.
    total = np.zeros((len(rows), weights.shape[2]))
    for row in range(len(rows)):
        for first in range(weights.shape[0]):
            for second in range(first + 1):
                product = rows[row, first] * rows[row, second]
                product = min(max(product, least[first, second]), most[first, second])
                for output in range(weights.shape[2]):
                    total[row, output] += product * weights[first, second, output]
    return total
