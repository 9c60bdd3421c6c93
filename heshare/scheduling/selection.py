"""Selection in stage 1, compiled: which schemes survive a generation, and which are its parents."""

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import compiled

Individuals = tuple[IntArray, FloatArray, FloatArray, FloatArray]
"""Schemes (p, n), segment costs (p, k, 2), objectives and rounded objectives (p, 2)."""


@compiled
def _sorted(indices: IntArray, values: FloatArray) -> IntArray:
    """Return indices in order of their values, then of themselves."""
    ascending = np.sort(indices)
    return ascending[np.argsort(values[ascending], kind="mergesort")]


@compiled
def environmental_selection(
    objectives: FloatArray, rounded: FloatArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Select the `count` of m points that stay: by front, then by crowding distance, then by index.

    The crowding distance of a point is the sum over both objectives of the gap between its neighbours in its front,
    over the front's span; at both ends it is infinite. The objectives of parents and offspring, and those `rounded` by
    `round_significant`, have the shape (m, 2). Returned are the indices, fronts (0 is the best) and crowding distances
    of those that stay, each of shape (count,).
    """
    m = len(rounded)
    order, rank, begins = _fronts(rounded)
    columns = objectives.T.copy()
    distance = np.zeros(m)
    for front in range(len(begins) - 1):
        begin, end = begins[front], begins[front + 1]
        if begin >= count:
            break
        members = order[begin:end]
        for column in range(2):
            values = columns[column]
            along = _sorted(members, values)
            span = values[along[-1]] - values[along[0]]
            for place in range(end - begin):
                if place == 0 or place == end - begin - 1 or not span > 0:
                    distance[along[place]] = np.inf
                else:
                    distance[along[place]] += (values[along[place + 1]] - values[along[place - 1]]) / span
        members[:] = _sorted(members, -distance)
    kept = order[:count].copy()
    return kept, rank[kept], distance[kept]


@compiled
def _fronts(rounded: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    # M points by front, the front of each, and where the fronts begin. Points of one front are in order of energy. In
    # that order, each goes to the first front whose last point does not dominate it. Duplicates of a point rank behind
    # all other points, so that selection keeps them only for lack of others.
    m = len(rounded)
    columns = rounded.T.copy()
    by_jct = np.argsort(columns[1], kind="mergesort")
    sorted_points = by_jct[np.argsort(columns[0][by_jct], kind="mergesort")]
    rank, lowest_s = np.empty(m, dtype=np.int64), np.full(m + 1, np.inf)
    for place in range(m):
        point = sorted_points[place]
        before = sorted_points[place - 1] if place else point
        if place and columns[0, point] == columns[0, before] and columns[1, point] == columns[1, before]:
            rank[point] = rank[before] if rank[before] >= m else rank[before] + m
        else:
            front = 0
            while lowest_s[front] <= columns[1, point]:
                front += 1
            rank[point], lowest_s[front] = front, columns[1, point]
    order = sorted_points[np.argsort(rank[sorted_points], kind="mergesort")]
    begins = np.append(0, np.append(np.flatnonzero(np.diff(rank[order])) + 1, m))
    return order, rank, begins


@compiled
def tournament_winners(rank: IntArray, distance: FloatArray, drawn: IntArray) -> IntArray:
    """Return the winner of each pair of indices, by front, then crowding distance, then place, (2, c) -> (c,)."""
    winners: IntArray = drawn[0].copy()
    for pair in range(len(winners)):
        first, second = drawn[0, pair], drawn[1, pair]
        if rank[second] < rank[first] or (rank[second] == rank[first] and distance[second] > distance[first]):
            winners[pair] = second
    return winners


@compiled
def joined(first: Individuals, second: Individuals, rows: IntArray) -> Individuals:
    """Return some rows of two sets of individuals, one behind the other."""
    a, m = len(first[0]), len(rows)
    gpus, costs = np.empty((m, first[0].shape[1]), dtype=np.int64), np.empty((m, *first[1].shape[1:]))
    objectives, rounded = np.empty((m, 2)), np.empty((m, 2))
    for place in range(m):
        source, row = (first, rows[place]) if rows[place] < a else (second, rows[place] - a)
        gpus[place], costs[place] = source[0][row], source[1][row]
        objectives[place], rounded[place] = source[2][row], source[3][row]
    return gpus, costs, objectives, rounded
