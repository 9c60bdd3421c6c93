"""Plain forms of the survivors' selection, by sorting: what `heshare.scheduling.selection` is compared with."""

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray


def front_ranks(rounded: FloatArray) -> IntArray:
    """Return the front (0 is the best) of each of m points by non-dominated sorting, shape (m, 2) -> (m,)."""
    m = len(rounded)
    order = np.argsort(rounded[:, 1], kind="mergesort")
    order = order[np.argsort(rounded[order, 0], kind="mergesort")]
    rank = np.empty(m, dtype=np.int64)
    lowest_s = np.full(m, np.inf)
    duplicate = np.zeros(m, dtype=np.bool_)
    for index in range(m):
        point = order[index]
        if index > 0:
            before = order[index - 1]
            if rounded[point, 0] == rounded[before, 0] and rounded[point, 1] == rounded[before, 1]:
                duplicate[point] = True
                rank[point] = rank[before]
                continue
        front = 0
        while lowest_s[front] <= rounded[point, 1]:
            front += 1
        rank[point] = front
        lowest_s[front] = rounded[point, 1]
    for point in range(m):
        if duplicate[point]:
            rank[point] += m
    return rank


def crowding_distance(objectives: FloatArray, rank: IntArray) -> FloatArray:
    """Return the crowding distance of each of m points within its front, shape (m,); infinite at both ends."""
    m = len(objectives)
    distance = np.zeros(m)
    for column in range(objectives.shape[1]):
        order = np.argsort(objectives[:, column], kind="mergesort")
        order = order[np.argsort(rank[order], kind="mergesort")]
        begin = 0
        while begin < m:
            end = begin
            while end < m and rank[order[end]] == rank[order[begin]]:
                end += 1
            span = objectives[order[end - 1], column] - objectives[order[begin], column]
            for index in range(begin, end):
                if index == begin or index == end - 1 or not span > 0:
                    distance[order[index]] = np.inf
                else:
                    gap = objectives[order[index + 1], column] - objectives[order[index - 1], column]
                    distance[order[index]] += gap / span
            begin = end
    return distance


def environmental_selection(
    objectives: FloatArray, rounded: FloatArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Select the `count` of m points that stay: by front, then by crowding distance, then by index."""
    rank = front_ranks(rounded)
    distance = crowding_distance(objectives, rank)
    survivors = np.argsort(-distance, kind="mergesort")
    survivors = survivors[np.argsort(rank[survivors], kind="mergesort")][:count]
    return survivors, rank[survivors], distance[survivors]
