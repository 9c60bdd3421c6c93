"""Selection in stage 1: which schemes survive a generation, and which of them are the parents of the next.

The paper names neither rule. Both are those of NSGA-II (Deb et al. 2002, DOI 10.1109/4235.996017).
"""

import numpy as np
from numba import njit

from heshare.scheduling.pareto import ascending
from heshare.shared.arrays import FloatArray, IntArray


@njit(cache=True)
def environmental_selection(
    objectives: FloatArray, rounded: FloatArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Select the `count` of m points that stay: by front, then by crowding distance, then by index.

    The crowding distance of a point is the sum over both objectives of the gap between its neighbours in its front,
    over the front's span; at both ends it is infinite.

    Args:
        objectives: those of parents and offspring, shape (m, 2).
        rounded: the same by `round_significant`, shape (m, 2), by which points dominate each other.
        count: how many stay.

    Returns:
        The indices, the rank (`front_ranks`) and the crowding distance of those that stay, each of shape (count,).
    """
    m = len(rounded)
    rank = front_ranks(rounded)
    distance = np.zeros(m)
    kept = np.empty(m, dtype=np.int64)
    filled = 0

    # The points by front; within a front by index.
    by_front = ascending(rank.astype(np.float64))
    begin = 0
    while begin < m and filled < count:
        end = begin
        while end < m and rank[by_front[end]] == rank[by_front[begin]]:
            end += 1
        members = by_front[begin:end]

        for column in range(2):
            along = members[ascending(objectives[members, column])]
            span = objectives[along[-1], column] - objectives[along[0], column]
            for place in range(len(along)):
                is_end = place == 0 or place == len(along) - 1
                if is_end or not span > 0:
                    distance[along[place]] = np.inf
                else:
                    gap = objectives[along[place + 1], column] - objectives[along[place - 1], column]
                    distance[along[place]] += gap / span

        # The least crowded first.
        for point in members[ascending(-distance[members])]:
            kept[filled] = point
            filled += 1
        begin = end

    kept = kept[:count].copy()
    return kept, rank[kept], distance[kept]


@njit(cache=True)
def front_ranks(rounded: FloatArray) -> IntArray:
    """Return the front of each of m points, shape (m, 2) -> (m,); 0 is that of the non-dominated points.

    In order of energy, then JCT, a point goes to the first front whose last point does not dominate it. Duplicates of a
    point rank behind all other points, so that selection keeps them only for lack of others.
    """
    m = len(rounded)
    by_jct = ascending(rounded[:, 1])
    in_order = by_jct[ascending(rounded[by_jct, 0])]
    rank = np.empty(m, dtype=np.int64)
    lowest_s = np.full(m + 1, np.inf)  # of each front

    for place in range(m):
        point = in_order[place]
        before = in_order[max(place - 1, 0)]
        is_duplicate = place > 0 and rounded[point, 0] == rounded[before, 0] and rounded[point, 1] == rounded[before, 1]
        if is_duplicate:
            rank[point] = rank[before] if rank[before] >= m else rank[before] + m
            continue

        front = 0
        while lowest_s[front] <= rounded[point, 1]:
            front += 1
        rank[point] = front
        lowest_s[front] = rounded[point, 1]
    return rank


@njit(cache=True)
def tournament_winners(rank: IntArray, distance: FloatArray, drawn: IntArray) -> IntArray:
    """Return the winner of each pair of indices, by front, then crowding distance, then place, (2, c) -> (c,)."""
    winners: IntArray = drawn[0].copy()
    for pair in range(len(winners)):
        first = drawn[0, pair]
        second = drawn[1, pair]
        if rank[second] < rank[first] or (rank[second] == rank[first] and distance[second] > distance[first]):
            winners[pair] = second
    return winners
