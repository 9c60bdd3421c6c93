"""Pareto fronts of energy and average JCT (Eq. 10): which points no other dominates, thinning, knee."""

import math
from typing import cast

import numpy as np

from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiled import njit

_SIGNIFICANT_BITS = 33
"""About ten decimal digits. The last bits of a sum differ with the order of its terms, and must decide nothing."""


def round_significant(values: FloatArray) -> FloatArray:
    """Return the values rounded to about ten significant digits, any shape; zeros and infinities stay.

    Comparisons of rounded values do not depend on the last bits of a sum, which differ with the order of its terms.
    """
    mantissa, exponent = np.frexp(values)
    scale = 2.0**_SIGNIFICANT_BITS
    rounded: FloatArray = np.ldexp(np.rint(mantissa * scale) / scale, exponent)
    return rounded


@njit(cache=True)
def rounded_values(values: FloatArray) -> FloatArray:
    """Return m values rounded as by `round_significant`, shape (m,), for compiled functions."""
    scale = 2.0**_SIGNIFICANT_BITS
    rounded = np.empty(len(values))
    for place in range(len(values)):
        mantissa, exponent = math.frexp(values[place])
        rounded[place] = math.ldexp(np.rint(mantissa * scale) / scale, exponent)
    return rounded


@njit(cache=True)
def ascending(values: FloatArray) -> IntArray:
    """Return the indices of m values in ascending order, equal ones by index, shape (m,): a bottom-up merge sort.

    For compiled functions: numba takes seconds to compile its own sorts, and every assignment to a slice.
    """
    count = len(values)
    order = np.arange(count)
    merged = np.empty(count, dtype=np.int64)

    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            middle = min(begin + width, count)
            end = min(begin + 2 * width, count)
            left = begin
            right = middle
            for place in range(begin, end):
                take_left = right == end or (left < middle and values[order[left]] <= values[order[right]])
                if take_left:
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        for place in range(count):
            order[place] = merged[place]
        width *= 2
    return order


@njit(cache=True)
def in_order(places: IntArray, values: FloatArray) -> IntArray:
    """Return some places of an array of values in ascending order of the values there, equal ones as given."""
    own = np.empty(len(places))
    for index in range(len(places)):
        own[index] = values[places[index]]

    order = ascending(own)
    found = np.empty(len(places), dtype=np.int64)
    for index in range(len(places)):
        found[index] = places[order[index]]
    return found


@njit(cache=True)
def non_dominated_indices(energy_j: FloatArray, jct_s: FloatArray, tolerance: float = 0.0) -> IntArray:
    """Return the indices of the points that no other point dominates, in order of energy.

    The sweep goes through the points in order of energy and keeps each one whose JCT is below all JCTs before it. Of
    equal points it keeps the first.

    Args:
        energy_j: energy of each point, J, shape (m,).
        jct_s: average JCT or sum of JCTs of each point, s, shape (m,).
        tolerance: a point must be better in JCT by more than this share of it.
    """
    order = ascending(energy_j)
    kept = np.empty(len(order), dtype=np.int64)
    count = 0
    lowest_s = np.inf

    place = 0
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
            kept[count] = point
            count += 1
    return kept[:count].copy()


def non_dominated(objectives: FloatArray) -> BoolArray:
    """Return which of m points no other point dominates, shape (m, 2) -> (m,); of equal points the first."""
    rounded = round_significant(objectives)
    mask = np.zeros(len(rounded), dtype=bool)
    mask[non_dominated_indices(rounded[:, 0].copy(), rounded[:, 1].copy())] = True
    return mask


def thin(objectives: FloatArray, limit: int) -> IntArray:
    """Return the indices of at most `limit` points of a front, in order of energy, evenly spaced, with both ends.

    The objectives are mutually non-dominated, shape (m, 2); `limit` is at least 2.
    """
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    return thin_ordered(objectives[:, 0].copy(), objectives[:, 1].copy(), order, limit)


@njit(cache=True)
def thin_ordered(energy_j: FloatArray, jct_s: FloatArray, order: IntArray, limit: int) -> IntArray:
    """Return those indices of a front's points, given in order of energy, that `thin` keeps."""
    count = len(order)
    if count <= limit:
        return order

    # The length along the front up to each point, both objectives scaled to the range of the front.
    first = order[0]
    last = order[count - 1]
    range_j = energy_j[last] - energy_j[first]
    range_s = jct_s[first] - jct_s[last]
    along = np.zeros(count)
    for place in range(1, count):
        step_j = energy_j[order[place]] - energy_j[order[place - 1]]
        step_s = jct_s[order[place - 1]] - jct_s[order[place]]
        step = 0.0
        if range_j > 0.0:
            step += abs(step_j) / range_j
        if range_s > 0.0:
            step += abs(step_s) / range_s
        along[place] = along[place - 1] + step

    # The first point at or behind each of `limit` evenly spaced marks.
    kept = np.empty(limit, dtype=np.int64)
    number = 0
    place = 0
    for mark in range(limit):
        at = mark * (along[count - 1] / (limit - 1))
        if mark == limit - 1:
            at = along[count - 1]
        while place < count - 1 and along[place] < at:
            place += 1
        if number == 0 or kept[number - 1] != place:
            kept[number] = place
            number += 1
    found = np.empty(number, dtype=np.int64)
    for index in range(number):
        found[index] = order[kept[index]]
    return found


def ideal(objectives: FloatArray) -> FloatArray:
    """Return the ideal point, the best value of each objective, shape (2,)."""
    return cast(FloatArray, objectives.min(axis=0))


def nadir(objectives: FloatArray) -> FloatArray:
    """Return the nadir point, the worst value of each objective on the front of these points, shape (2,)."""
    return cast(FloatArray, objectives[non_dominated(objectives)].max(axis=0))


def normalised(objectives: FloatArray) -> FloatArray:
    """Return the objectives scaled to ideal point (0, 0) and nadir (1, 1); an objective without a range becomes 0."""
    best = ideal(objectives)
    span = nadir(objectives) - best
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
