"""Nonlinear least squares whose last bit does not depend on where the arrays lie in memory (no BLAS, no LAPACK).

Levenberg's method (1944, doi:10.1090/qam/10666) between bounds. A step d from constants q with residuals r and slopes
J = dr/dq solves (J'J + lambda D) d = -J'r, D the diagonal of J'J. Where the step lowers the cost, lambda falls and the
search continues from there; otherwise lambda grows, which shortens the step. With a finite `scale` s the cost of a
residual is 2 s^2 (sqrt(1 + (r / s)^2) - 1): r^2 where r is small, 2 s |r| where it is large, so single odd rows count
little; each row then has the weight 1 / sqrt(1 + (r / s)^2).

>>> x = np.array([0.0, 1.0, 2.0])
>>> line = lambda q: q[0] + q[1] * x - np.array([1.0, 3.0, 5.0])
>>> bounds = np.full(2, -9.0), np.full(2, 9.0)
>>> least_squares(line, np.zeros(2), *bounds).round(3)
array([1., 2.])
"""

from collections.abc import Callable

import numpy as np

from heshare.shared.arrays import FloatArray

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
    """Return the constants between bounds that minimise the cost of the residuals, shape (n,), rounded to 8 digits.

    `residuals` maps constants to residuals (rows,). At most `rounds` steps are tried from `start`. Residuals well above
    `scale` count by their size rather than its square; infinite: none of them.
    """
    point, damping = np.clip(start, low, high), 1e-2
    now = residuals(point)
    cost = _cost(now, scale)
    for _ in range(rounds):
        weights = 1 / np.sqrt(1 + (now / scale) ** 2)
        slopes = _slopes(residuals, point, now, high)
        weighted = [weights * a for a in slopes]
        products = [[float((a * b).sum()) for b in slopes] for a in weighted]
        gradient = [float((a * now).sum()) for a in weighted]
        for _ in range(6):
            damped = [
                [value + (i == j) * damping * (value + 1e-9) for j, value in enumerate(row)]
                for i, row in enumerate(products)
            ]
            new_point = np.clip(point - np.array(_solve(damped, gradient)), low, high)
            new = residuals(new_point)
            if (new_cost := _cost(new, scale)) < cost:
                break
            damping *= 8
        else:
            break
        converged = cost - new_cost < 1e-5 * cost
        point, now, cost, damping = new_point, new, new_cost, damping / 5
        if converged:
            break
    return point.round(_DIGITS)


def _cost(values: FloatArray, scale: float) -> float:
    squares = values**2 if np.isinf(scale) else 2 * scale**2 * (np.sqrt(1 + (values / scale) ** 2) - 1)
    return float(squares.sum())


def _slopes(residuals: Residuals, point: FloatArray, now: FloatArray, high: FloatArray) -> list[FloatArray]:
    """Return finite differences of the residuals, one array for each constant; a step never leaves the bounds."""
    slopes = []
    for index in range(len(point)):
        step = _STEP if point[index] + _STEP <= high[index] else -_STEP
        moved = point.copy()
        moved[index] += step
        slopes.append((residuals(moved) - now) / step)
    return slopes


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for pivot in range(size):
        for other in range(pivot + 1, size):
            factor = rows[other][pivot] / rows[pivot][pivot]
            rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    solution = [0.0] * size
    for row in reversed(range(size)):
        others = sum(rows[row][other] * solution[other] for other in range(row + 1, size))
        solution[row] = (rows[row][size] - others) / rows[row][row]
    return solution
