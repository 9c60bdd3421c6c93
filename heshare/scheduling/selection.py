"""Selection in stage 1: which schemes survive a generation, and which of them are the parents of the next.

The paper names neither rule. Both are those of NSGA-II (Deb et al. 2002, DOI 10.1109/4235.996017).
"""

import numpy as np

from heshare.scheduling.pareto import ascending, in_order
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit


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
    rank_value = np.empty(m)
    value = np.empty((2, m))
    for point in range(m):
        rank_value[point] = rank[point]
        value[0, point] = objectives[point, 0]
        value[1, point] = objectives[point, 1]

    # The points by front; within a front by index.
    by_front = ascending(rank_value)
    distance = np.zeros(m)
    less_crowded = np.empty(m)
    kept = np.empty(m, dtype=np.int64)
    filled = 0
    while filled < m and filled < count:
        begin = filled
        end = begin
        while end < m and rank[by_front[end]] == rank[by_front[begin]]:
            end += 1
        members = by_front[begin:end]

        for goal in range(2):
            along = in_order(members, value[goal])
            last = len(along) - 1
            span = value[goal, along[last]] - value[goal, along[0]]
            for place in range(len(along)):
                if place == 0 or place == last or not span > 0:
                    distance[along[place]] = np.inf
                else:
                    gap = value[goal, along[place + 1]] - value[goal, along[place - 1]]
                    distance[along[place]] += gap / span

        # The least crowded first.
        for point in members:
            less_crowded[point] = -distance[point]
        for point in in_order(members, less_crowded):
            kept[filled] = point
            filled += 1

    size = min(count, filled)
    places = np.empty(size, dtype=np.int64)
    ranks = np.empty(size, dtype=np.int64)
    distances = np.empty(size)
    for place in range(size):
        places[place] = kept[place]
        ranks[place] = rank[kept[place]]
        distances[place] = distance[kept[place]]
    return places, ranks, distances


@njit(cache=True)
def front_ranks(rounded: FloatArray) -> IntArray:
    """Return the front of each of m points, shape (m, 2) -> (m,); 0 is that of the non-dominated points.

    In order of energy, then JCT, a point goes to the first front whose last point does not dominate it. Duplicates of a
    point rank behind all other points, so that selection keeps them only for lack of others.
    """
    m = len(rounded)
    energy = np.empty(m)
    jct = np.empty(m)
    for point in range(m):
        energy[point] = rounded[point, 0]
        jct[point] = rounded[point, 1]
    points = in_order(ascending(jct), energy)
    rank = np.empty(m, dtype=np.int64)
    lowest_s = np.full(m + 1, np.inf)  # JCT of each front's last point

    for place in range(m):
        point = points[place]
        before = points[max(place - 1, 0)]
        is_duplicate = place > 0 and energy[point] == energy[before] and jct[point] == jct[before]
        if is_duplicate:
            rank[point] = rank[before] if rank[before] >= m else rank[before] + m
            continue

        front = 0
        while lowest_s[front] <= jct[point]:
            front += 1
        rank[point] = front
        lowest_s[front] = jct[point]
    return rank


@njit(cache=True)
def tournament_winners(rank: IntArray, distance: FloatArray, drawn: IntArray) -> IntArray:
    """Return the winner of each pair of indices, by front, then crowding distance, then place, (2, c) -> (c,)."""
    winners = np.empty(drawn.shape[1], dtype=np.int64)
    for pair in range(len(winners)):
        first = drawn[0, pair]
        second = drawn[1, pair]
        winners[pair] = first
        if rank[second] < rank[first] or (rank[second] == rank[first] and distance[second] > distance[first]):
            winners[pair] = second
    return winners
