"""The batch model (Section III-C 1, Eqs. 11-12): SPT queues and where they are split (Algorithm 1, lines 3-5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heshare.scheduling.objectives import BoolArray, Instance, IntArray
from heshare.scheduling.sharing import NOBODY, Batches, Sharing, batches, distinct_rows


@dataclass(frozen=True, slots=True)
class Lines:
    """q queues of tasks, each on its type of GPU, shortest first.

    Attributes:
        kind: index in the instance's `kinds`, shape (q,).
        tasks: task indices in SPT order, `NOBODY` beyond a queue's length, shape (q, w).
        length: tasks in each, shape (q,).
    """

    kind: IntArray
    tasks: IntArray
    length: IntArray


@dataclass(frozen=True, slots=True)
class Split:
    """Queues cut into batches.

    Attributes:
        batches: all batches, queue by queue in order of execution, shape (b, w).
        line: the queue of each batch, shape (b,).
        behind: how many tasks of the queue wait for the batch to end, shape (b,).
    """

    batches: Batches
    line: IntArray
    behind: IntArray


def distinct_lines(schemes: IntArray, world: Instance) -> tuple[Lines, IntArray]:
    """The different queues among p schemes, shape (p, n): GPUs of one type with the same tasks have the same queue.

    Returns:
        The queues, and the queue's index of each GPU of each scheme, `NOBODY` where a GPU has none, shape (p, k).
    """
    p, n = schemes.shape
    kind = world.kind_of[schemes]
    place = np.argsort(world.order_of_kind, axis=1)[kind, np.arange(n)]
    # Every queue as one stretch of a long row: by scheme, then GPU, then SPT.
    order = np.lexsort((place.ravel(), schemes.ravel(), np.repeat(np.arange(p), n)))
    task, owner = order % n, (order // n) * world.k + schemes.ravel()[order]
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    length = np.diff(begin, append=len(owner))
    table = np.full((len(begin), int(length.max()) + 1), NOBODY)
    table[:, 0] = kind.ravel()[order[begin]]
    table[np.repeat(np.arange(len(begin)), length), np.arange(len(task)) - np.repeat(begin, length) + 1] = task
    first, inverse = distinct_rows(table)
    seen = np.argsort(first)
    which = np.full((p, world.k), NOBODY)
    which.ravel()[owner[begin]] = np.argsort(seen)[inverse]
    kept = first[seen]
    return Lines(table[kept, 0], table[kept, 1:], length[kept]), which


def split_for_jct(lines: Lines, sharing: Sharing) -> Split:
    """Batch generation (Algorithm 1, line 5): take each next task into the batch unless a split gives a lower JCT.

    Joining slows the batch down for all of its tasks; splitting makes the task wait for the batch's end. Either way
    the tasks behind wait for both, and the sum of all their JCTs decides. Everybody runs at 100 % and the default
    clock. A task that does not fit the batch's memory or would be one MPS client too many starts a new batch.

    Returns:
        The queues cut into batches.
    """
    count, width = lines.tasks.shape
    starts = np.zeros((count, width), dtype=bool)
    starts[:, 0] = True
    begin = np.zeros(count, dtype=np.int64)
    open_batch = sharing.execute(batches(lines.kind, lines.tasks[:, :1]))
    jct_s, end_s = open_batch.time_s.sum(axis=1), open_batch.end_s.copy()
    for step in range(1, width):
        rows = np.flatnonzero(lines.length > step)
        alone = sharing.execute(batches(lines.kind[rows], lines.tasks[rows, step : step + 1]))
        behind = lines.length[rows] - step - 1
        split_s = jct_s[rows] + (1 + behind) * (end_s[rows] + alone.end_s)
        fits = _fits(lines, rows, begin[rows], step, sharing.world)
        joined = sharing.execute(_interval(lines, rows[fits], begin[rows[fits]], step))
        split = np.ones(len(rows), dtype=bool)
        split[fits] = split_s[fits] < joined.jct_s(behind[fits])
        starts[rows, step] = split
        begin[rows] = np.where(split, step, begin[rows])
        jct_s[rows], end_s[rows] = alone.end_s, alone.end_s
        stays = ~split[fits]
        jct_s[rows[fits][stays]] = joined.time_s.sum(axis=1)[stays]
        end_s[rows[fits][stays]] = joined.end_s[stays]
    return _cut(lines, starts)


def split_for_memory(lines: Lines, world: Instance) -> Split:
    """As few batches as memory and the MPS clients allow, in SPT order (Sched-only)."""
    count, width = lines.tasks.shape
    starts = np.zeros((count, width), dtype=bool)
    starts[:, 0] = True
    begin = np.zeros(count, dtype=np.int64)
    for step in range(1, width):
        rows = np.flatnonzero(lines.length > step)
        split = ~_fits(lines, rows, begin[rows], step, world)
        starts[rows, step] = split
        begin[rows] = np.where(split, step, begin[rows])
    return _cut(lines, starts)


def split_all(lines: Lines) -> Split:
    """One task a batch: the sequential execution of stage 1."""
    return _cut(lines, np.ones(lines.tasks.shape, dtype=bool))


def _interval(lines: Lines, rows: IntArray, begin: IntArray, last: int) -> Batches:
    """Batches made of the tasks at positions begin .. last of some queues."""
    width = int(last + 1 - begin.min(initial=last))
    at = begin[:, None] + np.arange(width)
    tasks = np.where(at <= last, lines.tasks[rows[:, None], np.minimum(at, last)], NOBODY)
    return batches(lines.kind[rows], tasks)


def _fits(lines: Lines, rows: IntArray, begin: IntArray, last: int, world: Instance) -> BoolArray:
    """Whether positions begin .. last of some queues fit their GPU together (memory, MPS clients), shape (rows,)."""
    needs = np.where(lines.tasks == NOBODY, 0.0, world.needs_mib[lines.tasks])[rows]
    inside = (np.arange(needs.shape[1]) >= begin[:, None]) & (np.arange(needs.shape[1]) <= last)
    size = np.array([gpu.memory_mib for gpu in world.kinds])[lines.kind[rows]]
    clients = np.array([gpu.mps_clients for gpu in world.kinds])[lines.kind[rows]]
    result: BoolArray = ((needs * inside).sum(axis=1) <= size) & (last + 1 - begin <= clients)
    return result


def _cut(lines: Lines, starts: BoolArray) -> Split:
    """Cut queues before every position where `starts` is true."""
    present = lines.tasks != NOBODY
    line, begin = np.nonzero(starts & present)
    end = np.append(begin[1:], 0)
    last_of_line = np.append(line[1:] != line[:-1], True)
    end = np.where(last_of_line, lines.length[line], end)
    size = end - begin
    at = begin[:, None] + np.arange(int(size.max()))
    tasks = np.where(at < end[:, None], lines.tasks[line[:, None], np.minimum(at, end[:, None] - 1)], NOBODY)
    return Split(batches(lines.kind[line], tasks), line, lines.length[line] - end)
