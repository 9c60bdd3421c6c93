"""Selection, compiled: the same operations in the same order as `operators.environmental_selection` and `pareto`."""

from __future__ import annotations

import numpy as np

from heshare.compiling import compiled
from heshare.scheduling.objectives import BoolArray, FloatArray, IntArray


@compiled
def select(objectives: FloatArray, rounded: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Compiled form of `operators.environmental_selection`; `rounded` are the objectives as `significant` has them."""
    rank = _ranks(rounded)
    distance = _crowding(objectives, rank)
    kept = np.argsort(-distance, kind="mergesort")
    kept = kept[np.argsort(rank[kept], kind="mergesort")][:count]
    return kept, rank[kept], distance[kept]


@compiled
def _ranks(rounded: FloatArray) -> IntArray:
    """Compiled form of `pareto.ranks`: each point goes to the first front whose last member does not dominate it."""
    m = len(rounded)
    order = np.argsort(rounded[:, 1], kind="mergesort")
    order = order[np.argsort(rounded[order, 0], kind="mergesort")]
    rank = np.empty(m, dtype=np.int64)
    lowest = np.full(m, np.inf)
    doubled = np.zeros(m, dtype=np.bool_)
    for at in range(m):
        point = order[at]
        if at > 0:
            before = order[at - 1]
            if rounded[point, 0] == rounded[before, 0] and rounded[point, 1] == rounded[before, 1]:
                doubled[point] = True
                rank[point] = rank[before]
                continue
        front = 0
        while lowest[front] <= rounded[point, 1]:
            front += 1
        rank[point] = front
        lowest[front] = rounded[point, 1]
    for point in range(m):
        if doubled[point]:
            rank[point] += m
    return rank


@compiled
def _crowding(objectives: FloatArray, rank: IntArray) -> FloatArray:
    """Compiled form of `pareto.crowding`."""
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
            for at in range(begin, end):
                if at == begin or at == end - 1 or not span > 0:
                    distance[order[at]] = np.inf
                else:
                    gap = objectives[order[at + 1], column] - objectives[order[at - 1], column]
                    distance[order[at]] += gap / span
            begin = end
    return distance


@compiled
def non_dominated(rounded: FloatArray) -> BoolArray:
    """Compiled form of `pareto.non_dominated`, of objectives as `significant` has them."""
    m = len(rounded)
    order = np.argsort(rounded[:, 1], kind="mergesort")
    order = order[np.argsort(rounded[order, 0], kind="mergesort")]
    kept = np.zeros(m, dtype=np.bool_)
    lowest = np.inf
    for point in order:
        if rounded[point, 1] < lowest:
            kept[point] = True
            lowest = rounded[point, 1]
    return kept
