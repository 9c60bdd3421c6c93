"""Batch generation (Algorithm 1, lines 3-5): SPT queues of the GPUs and their split into batches (Eqs. 11-12)."""

from dataclasses import dataclass

import numpy as np

from heshare.scheduling.batch_model import EMPTY, Batches, BatchModel, unconfigured_batches
from heshare.scheduling.objectives import Instance
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.caches.row_table import distinct_rows
from heshare.shared.compiling import compiled


@dataclass(frozen=True, slots=True)
class SptQueues:
    """q queues of tasks, each on a type of GPU, shortest processing time first (Algorithm 1, line 4).

    Attributes:
        kind: index in the instance's `kinds`, shape (q,).
        tasks: task indices in SPT order, `EMPTY` after the last task, shape (q, w).
        length: number of tasks of each, shape (q,).
    """

    kind: IntArray
    tasks: IntArray
    length: IntArray


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """Queues split into batches (Eqs. 11-12).

    Attributes:
        batches: all batches, queue by queue in order of execution, shape (b, w).
        queue: the queue of each batch, shape (b,).
        behind: number of tasks in later batches of the queue, shape (b,).
    """

    batches: Batches
    queue: IntArray
    behind: IntArray


def distinct_queues(schemes: IntArray, instance: Instance) -> tuple[SptQueues, IntArray]:
    """Return the distinct queues of p schemes, shape (p, n) (Algorithm 1, lines 3 and 4).

    GPUs of one type with the same tasks have the same queue, in one scheme or in several. The second array
    is the index of the queue of each GPU of each scheme, `EMPTY` for none, shape (p, k).
    """
    p, n = schemes.shape
    kind = instance.kind_of[schemes]
    spt_position = np.argsort(instance.order_of_kind, axis=1)[kind, np.arange(n)]
    # Sorted by scheme, then GPU, then SPT, the tasks of a queue stand together.
    order = np.lexsort((spt_position.ravel(), schemes.ravel(), np.repeat(np.arange(p), n)))
    task, owner = order % n, (order // n) * instance.k + schemes.ravel()[order]
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    length = np.diff(begin, append=len(owner))
    table = np.full((len(begin), int(length.max()) + 1), EMPTY)
    table[:, 0] = kind.ravel()[order[begin]]
    table[np.repeat(np.arange(len(begin)), length), np.arange(len(task)) - np.repeat(begin, length) + 1] = task
    first, inverse = distinct_rows(table)
    # Queues are numbered in order of first appearance.
    by_appearance = np.argsort(first)
    queue_of_gpu = np.full((p, instance.k), EMPTY)
    queue_of_gpu.ravel()[owner[begin]] = np.argsort(by_appearance)[inverse]
    kept = first[by_appearance]
    return SptQueues(table[kept, 0], table[kept, 1:], length[kept]), queue_of_gpu


def split_for_jct(queues: SptQueues, model: BatchModel) -> BatchSplit:
    """Split queues where that lowers the average JCT (Algorithm 1, line 5).

    Each next task either joins the current batch or starts a new one. Joining slows the whole batch down; splitting
    makes the task wait for the batch's end. The tasks behind wait for both in either case, so the sum of all JCTs
    decides. All tasks have 100 % and the default clock. A task that does not fit the batch's memory, or would exceed
    the number of MPS clients, starts a new batch.
    """
    count, width = queues.tasks.shape
    starts = np.tile(np.arange(width) == 0, (count, 1))
    begin = np.zeros(count, dtype=np.int64)
    current = model.execute(unconfigured_batches(queues.kind, queues.tasks[:, :1]))
    jct_s, end_s = current.time_s.sum(axis=1), current.end_s.copy()
    for step in range(1, width):
        rows = np.flatnonzero(queues.length > step)
        alone = model.execute(unconfigured_batches(queues.kind[rows], queues.tasks[rows, step : step + 1]))
        behind = queues.length[rows] - step - 1
        split_s = jct_s[rows] + (1 + behind) * (end_s[rows] + alone.end_s)
        fits = _fits(queues, rows, begin[rows], step, model.instance)
        joined = model.execute(_interval(queues, rows[fits], begin[rows[fits]], step))
        split = np.ones(len(rows), dtype=bool)
        split[fits] = split_s[fits] < joined.jct_s(behind[fits])
        starts[rows, step] = split
        begin[rows] = np.where(split, step, begin[rows])
        jct_s[rows], end_s[rows] = alone.end_s, alone.end_s
        joins = ~split[fits]
        jct_s[rows[fits][joins]] = joined.time_s.sum(axis=1)[joins]
        end_s[rows[fits][joins]] = joined.end_s[joins]
    return _split_at(queues, starts)


def split_for_memory(queues: SptQueues, instance: Instance) -> BatchSplit:
    """Split queues into as few batches as memory and the MPS clients allow, in SPT order."""
    count, width = queues.tasks.shape
    starts = np.tile(np.arange(width) == 0, (count, 1))
    begin = np.zeros(count, dtype=np.int64)
    for step in range(1, width):
        rows = np.flatnonzero(queues.length > step)
        split = ~_fits(queues, rows, begin[rows], step, instance)
        starts[rows, step] = split
        begin[rows] = np.where(split, step, begin[rows])
    return _split_at(queues, starts)


def split_every_task(queues: SptQueues) -> BatchSplit:
    """Split queues into batches of one task, the sequential execution of stage 1 (Sched-only)."""
    return _split_at(queues, np.ones(queues.tasks.shape, dtype=bool))


def _interval(queues: SptQueues, rows: IntArray, begin: IntArray, last: int) -> Batches:
    width = int(last + 1 - begin.min(initial=last))
    position = begin[:, None] + np.arange(width)
    tasks = np.where(position <= last, queues.tasks[rows[:, None], np.minimum(position, last)], EMPTY)
    return unconfigured_batches(queues.kind[rows], tasks)


def _fits(queues: SptQueues, rows: IntArray, begin: IntArray, last: int, instance: Instance) -> BoolArray:
    memory_mib = np.array([gpu.memory_mib for gpu in instance.kinds])[queues.kind[rows]]
    clients = np.array([gpu.mps_clients for gpu in instance.kinds])[queues.kind[rows]]
    result: BoolArray = _needed_mib(queues.tasks, rows, begin, last, instance.needs_mib) <= memory_mib
    return result & (last + 1 - begin <= clients)


@compiled
def _needed_mib(tasks: IntArray, rows: IntArray, begin: IntArray, last: int, needs_mib: FloatArray) -> FloatArray:
    # The memory of the tasks at positions begin .. last of some queues, MiB, shape (rows,). They are added up as
    # numpy adds a whole row with zeros outside the positions: in blocks of 64 to 128 values, each in eight columns.
    # That order decides for tasks that need just the memory that there is. It is numpy's for up to 64 positions, more
    # than MPS has clients.
    result = np.zeros(len(rows))
    for index in range(len(rows)):
        row, place = rows[index], begin[index]
        while place <= last:
            low, high = 0, tasks.shape[1]
            while high - low > 128:
                middle = low + (high - low) // 16 * 8
                low, high = (middle, high) if place >= middle else (low, middle)
            columns, end = np.zeros(8), low + (high - low) // 8 * 8
            while place < min(end, last + 1):
                columns[(place - low) % 8] += needs_mib[tasks[row, place]]
                place += 1
            total = (columns[0] + columns[1]) + (columns[2] + columns[3])
            total += (columns[4] + columns[5]) + (columns[6] + columns[7])
            while place < min(high, last + 1):
                total += needs_mib[tasks[row, place]]
                place += 1
            result[index] += total
    return result


def _split_at(queues: SptQueues, starts: BoolArray) -> BatchSplit:
    queue, begin = np.nonzero(starts & (queues.tasks != EMPTY))
    last_of_queue = np.append(queue[1:] != queue[:-1], True)
    end = np.where(last_of_queue, queues.length[queue], np.append(begin[1:], 0))
    position = begin[:, None] + np.arange(int((end - begin).max()))
    tasks = np.where(
        position < end[:, None], queues.tasks[queue[:, None], np.minimum(position, end[:, None] - 1)], EMPTY
    )
    return BatchSplit(unconfigured_batches(queues.kind[queue], tasks), queue, queues.length[queue] - end)
