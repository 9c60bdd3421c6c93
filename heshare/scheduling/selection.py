"""Selection in stage 1, compiled: which schemes survive a generation, and which stay in the archive."""

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import compiled

Individuals = tuple[IntArray, FloatArray, FloatArray, FloatArray]
"""Schemes (p, n), segment costs (p, k, 2), objectives and rounded objectives (p, 2)."""


@compiled
def _sort(order: IntArray, spare: IntArray, first: FloatArray, second: FloatArray) -> None:
    # Sort indices by `first`, then `second`, then index, in place; `spare` has the same length at least.
    size, run = len(order), 12
    for begin in range(0, size, run):
        for place in range(begin + 1, min(begin + run, size)):
            item, hole = order[place], place
            while hole > begin and _before(item, order[hole - 1], first, second):
                order[hole] = order[hole - 1]
                hole -= 1
            order[hole] = item
    while run < size:
        for begin in range(0, size - run, 2 * run):
            middle, end = begin + run, min(begin + 2 * run, size)
            if not _before(order[middle], order[middle - 1], first, second):
                continue
            spare[begin:middle] = order[begin:middle]
            left, right = begin, middle
            for place in range(begin, end):
                if left == middle:
                    break
                if right < end and _before(order[right], spare[left], first, second):
                    order[place] = order[right]
                    right += 1
                else:
                    order[place] = spare[left]
                    left += 1
        run *= 2


@compiled
def _before(item: int, other: int, first: FloatArray, second: FloatArray) -> bool:
    if first[item] != first[other]:
        return bool(first[item] < first[other])
    if second[item] != second[other]:
        return bool(second[item] < second[other])
    return item < other


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
    order, rank, begins, spare = _fronts(rounded)
    columns = np.empty((2, m))
    columns[0], columns[1] = objectives[:, 0], objectives[:, 1]
    distance = np.zeros(m)
    for front in range(len(begins) - 1):
        begin, end = begins[front], begins[front + 1]
        if begin >= count:
            break
        members = order[begin:end]
        for column in range(2):
            values = columns[column]
            # A front in order of energy is in order of JCT from its end.
            along = members.copy() if column == 0 else members[::-1].copy()
            _sort(along, spare, values, values)
            span = values[along[-1]] - values[along[0]]
            for place in range(end - begin):
                if place == 0 or place == end - begin - 1 or not span > 0:
                    distance[along[place]] = np.inf
                else:
                    distance[along[place]] += (values[along[place + 1]] - values[along[place - 1]]) / span
        closeness = -distance
        _sort(members, spare, closeness, closeness)
    kept = order[:count].copy()
    return kept, rank[kept], distance[kept]


@compiled
def _fronts(rounded: FloatArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    # M points by front, the front of each, where the fronts begin among the points, and a spare array, (m,).
    # Points of one front are in order of energy. In that order, each point goes to the first front whose last point
    # does not dominate it. Duplicates of a point rank behind all other points, so that selection keeps them only for
    # lack of others.
    m = len(rounded)
    columns = np.empty((2, m))
    columns[0], columns[1] = rounded[:, 0], rounded[:, 1]
    sorted_points, spare = np.arange(m), np.empty(m, dtype=np.int64)
    _sort(sorted_points, spare, columns[0], columns[1])
    rank, sizes = np.empty(m, dtype=np.int64), np.zeros(2 * m, dtype=np.int64)
    lowest_s, fronts = np.full(m + 1, np.inf), 0
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
            fronts = max(fronts, front + 1)
        sizes[rank[point]] += 1
    begins, last = np.zeros(2 * fronts + 1, dtype=np.int64), 0
    for index in range(2 * fronts):
        front = index if index < fronts else m + index - fronts
        if sizes[front]:
            begins[last + 1] = begins[last] + sizes[front]
            sizes[front] = begins[last]
            last += 1
    order = np.empty(m, dtype=np.int64)
    for point in sorted_points:
        order[sizes[rank[point]]] = point
        sizes[rank[point]] += 1
    return order, rank, begins[: last + 1], spare


@compiled
def archive_order(archived: FloatArray, rounded: FloatArray) -> IntArray:
    """Return the non-dominated of archived and new points in order of energy; empty if no new one is among them.

    The archived points do not dominate each other and are in order of energy, so a search finds the only one that can
    dominate a new point. `archived` (a, 2) and `rounded` (p, 2) are rounded objectives; the new points have the indices
    a .. a + p - 1.
    """
    a, p = len(archived), len(rounded)
    new, columns = np.empty(p, dtype=np.int64), np.empty((2, p))
    columns[0], columns[1] = rounded[:, 0], rounded[:, 1]
    count = 0
    for point in range(p):
        low, high = 0, a
        while low < high:
            middle = (low + high) // 2
            if archived[middle, 0] <= rounded[point, 0]:
                low = middle + 1
            else:
                high = middle
        if low == 0 or archived[low - 1, 1] > rounded[point, 1]:
            new[count] = point
            count += 1
    new = new[:count]
    if not count:
        return new
    _sort(new, np.empty(count, dtype=np.int64), columns[0], columns[1])
    order = np.empty(a + count, dtype=np.int64)
    kept, old, lowest_s, place = 0, 0, np.inf, 0
    while old < a or place < count:
        takes_old = place == count
        if not takes_old and old < a:
            takes_old = archived[old, 0] < columns[0, new[place]]
        # A new point of the same energy as an archived one is here because its JCT is less.
        jct_s = archived[old, 1] if takes_old else columns[1, new[place]]
        if jct_s < lowest_s:
            lowest_s, order[kept] = jct_s, old if takes_old else a + new[place]
            kept += 1
        old, place = (old + 1, place) if takes_old else (old, place + 1)
    return order[:kept]


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
