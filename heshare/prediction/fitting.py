"""Least squares whose last bit does not depend on where the arrays lie in memory (no BLAS, no LAPACK)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heshare.prediction.predictor import FloatArray

Residuals = Callable[[FloatArray], FloatArray]
_STEP, _DIGITS = 1e-5, 8


def least_squares(
    residuals: Residuals,
    start: FloatArray,
    low: FloatArray,
    high: FloatArray,
    *,
    rounds: int = 15,
    scale: float = np.inf,
) -> FloatArray:
    """Levenberg's method between bounds, shape (n,), rounded to eight digits.

    Args:
        residuals: maps constants (n,) to residuals (rows,).
        start: where the search begins, (n,).
        low: lower bounds, (n,).
        high: upper bounds, (n,).
        rounds: how many steps are tried at most.
        scale: residuals well above it count by their size rather than its square; infinite: never.
    """
    at, damping = np.clip(start, low, high), 1e-2
    now = residuals(at)
    cost = _cost(now, scale)
    for _ in range(rounds):
        weights = 1 / np.sqrt(1 + (now / scale) ** 2)
        slopes = _slopes(residuals, at, now, high)
        products = [[float((weights * a * b).sum()) for b in slopes] for a in slopes]
        gradient = [float((weights * a * now).sum()) for a in slopes]
        for _ in range(6):
            damped = [
                [value + (i == j) * damping * (value + 1e-9) for j, value in enumerate(row)]
                for i, row in enumerate(products)
            ]
            new = np.clip(at - np.array(_solve(damped, gradient)), low, high)
            found = residuals(new)
            if (found_cost := _cost(found, scale)) < cost:
                break
            damping *= 8
        else:
            break
        done = cost - found_cost < 1e-5 * cost
        at, now, cost, damping = new, found, found_cost, damping / 5
        if done:
            break
    return at.round(_DIGITS)


def _cost(values: FloatArray, scale: float) -> float:
    """Sum of squares, or for a finite scale of 2 scale^2 (sqrt(1 + (r / scale)^2) - 1)."""
    squares = values**2 if np.isinf(scale) else 2 * scale**2 * (np.sqrt(1 + (values / scale) ** 2) - 1)
    return float(squares.sum())


def _slopes(residuals: Residuals, at: FloatArray, now: FloatArray, high: FloatArray) -> list[FloatArray]:
    slopes = []
    for index in range(len(at)):
        step = _STEP if at[index] + _STEP <= high[index] else -_STEP
        moved = at.copy()
        moved[index] += step
        slopes.append((residuals(moved) - now) / step)
    return slopes


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a symmetric positive system, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for pivot in range(size):
        for other in range(pivot + 1, size):
            factor = rows[other][pivot] / rows[pivot][pivot]
            rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][other] * found[other] for other in range(at + 1, size))
        found[at] = (rows[at][size] - known) / rows[at][at]
    return found
