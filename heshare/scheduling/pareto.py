"""Pareto fronts of energy and average JCT (Eq. 10): filters, thinning, knee."""

from typing import cast

import numpy as np

from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled

_LARGEST = 308
with np.errstate(over="ignore", under="ignore"):
    _POWERS_OF_10 = 10.0 ** np.arange(-_LARGEST, 2 * _LARGEST + 1.0)


def round_significant(values: FloatArray, digits: int = 10) -> FloatArray:
    """Return the values rounded to significant digits, any shape; zeros stay.

    Comparisons of rounded values do not depend on the last bits of a sum, which differ with the order of its terms.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).ravel()
    return rounded_values(flat, digits).reshape(np.shape(values))


@compiled
def rounded_values(values: FloatArray, digits: int = 10) -> FloatArray:
    """Return m values rounded as by `round_significant`, shape (m,), for compiled functions."""
    rounded = np.empty(len(values))
    for place in range(len(values)):
        value = values[place]
        magnitude = int(np.floor(np.log10(np.abs(value)))) if value != 0.0 and np.isfinite(value) else 0
        scale = _POWERS_OF_10[_LARGEST + digits - 1 - magnitude]
        rounded[place] = np.rint(value * scale) / scale
    return rounded


@compiled
def non_dominated_indices(energy_j: FloatArray, jct_s: FloatArray, tolerance: float = 0.0) -> IntArray:
    """Return the indices of the points that no other point dominates, in order of energy.

    The sweep goes through the points in order of energy and keeps each one whose JCT is below all JCTs before it. Of
    equal points it keeps the first. Compiled, so that other compiled functions can call it. A point must be better in
    JCT by more than the share `tolerance` of it.
    """
    order = np.argsort(energy_j, kind="mergesort")
    kept, place, lowest_s = 0, 0, np.inf
    while place < len(order):
        # Of points with equal energy, only the first one with the least JCT can stay.
        point = order[place]
        place += 1
        while place < len(order) and energy_j[order[place]] == energy_j[point]:
            if jct_s[order[place]] < jct_s[point]:
                point = order[place]
            place += 1
        if jct_s[point] < lowest_s * (1 - tolerance):
            lowest_s = jct_s[point]
            order[kept] = point
            kept += 1
    return order[:kept].copy()


def non_dominated(objectives: FloatArray) -> BoolArray:
    """Return which of m points no other point dominates, shape (m, 2) -> (m,); of equal points the first."""
    rounded = round_significant(objectives)
    mask = np.zeros(len(rounded), dtype=bool)
    mask[non_dominated_indices(rounded[:, 0], rounded[:, 1])] = True
    return mask


def thin(objectives: FloatArray, limit: int) -> IntArray:
    """Return the indices of at most `limit` points of a front, in order of energy, evenly spaced, with both ends.

    The objectives are mutually non-dominated, shape (m, 2); `limit` is at least 2.
    """
    energy_j, jct_s = objectives[:, 0].copy(), objectives[:, 1].copy()
    return thin_ordered(energy_j, jct_s, np.lexsort((jct_s, energy_j)), limit)


@compiled
def thin_ordered(energy_j: FloatArray, jct_s: FloatArray, order: IntArray, limit: int) -> IntArray:
    """Return those indices of a front's points, given in order of energy, that `thin` keeps."""
    count = len(order)
    if count <= limit:
        return order
    points_j, points_s = energy_j[order], jct_s[order]
    least_j, least_s = points_j.min(), points_s.min()
    span_j, span_s = points_j.max() - least_j, points_s.max() - least_s
    along, before_j, before_s = np.zeros(count), 0.0, 0.0
    for place in range(count):
        scaled_j = (points_j[place] - least_j) / span_j if span_j > 0.0 else 0.0
        scaled_s = (points_s[place] - least_s) / span_s if span_s > 0.0 else 0.0
        if place > 0:
            along[place] = along[place - 1] + (abs(scaled_j - before_j) + abs(scaled_s - before_s))
        before_j, before_s = scaled_j, scaled_s
    kept, number, place = np.zeros(limit, dtype=np.int64), 0, 0
    for mark in range(limit):
        at = along[-1] if mark == limit - 1 else mark * (along[-1] / (limit - 1))
        while place < count - 1 and along[place] < at:
            place += 1
        if number == 0 or kept[number - 1] != place:
            kept[number] = place
            number += 1
    return order[kept[:number]]


def ideal(objectives: FloatArray) -> FloatArray:
    """Return the ideal point, the best value of each objective, shape (2,)."""
    return cast(FloatArray, objectives.min(axis=0))


def nadir(objectives: FloatArray) -> FloatArray:
    """Return the nadir point, the worst value of each objective on the front of these points, shape (2,)."""
    return cast(FloatArray, objectives[non_dominated(objectives)].max(axis=0))


def normalised(objectives: FloatArray) -> FloatArray:
    """Return the objectives scaled to ideal point (0, 0) and nadir (1, 1); an objective without a range becomes 0."""
    return _scaled(objectives, nadir(objectives))


def _scaled(objectives: FloatArray, worst: FloatArray) -> FloatArray:
    best = ideal(objectives)
    span = worst - best
    scaled: FloatArray = np.divide(objectives - best, span, out=np.zeros(objectives.shape), where=span > 0)
    return scaled


def knee(objectives: FloatArray) -> int:
    """Return the index of the knee, the point nearest to the ideal point; of equally near ones the least energy.

    The distance is Euclidean between normalised objectives. The paper does not define how Trade-off is chosen.

    Example:
        >>> import numpy as np
        >>> knee(np.array([[1.0, 9.0], [2.0, 3.0], [8.0, 1.0]]))
        1
    """
    distance = round_significant(np.linalg.norm(normalised(objectives), axis=1))
    return int(np.lexsort((objectives[:, 0], distance))[0])
