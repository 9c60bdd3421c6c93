"""Queues of GPUs that a local search changes task by task, each priced by exact batching (compiled).

For a weight on time, the best way to cut an SPT queue into batches and to configure them is an exact backward
recursion: `best[j] = min over l, options of E_B + weight (spent + behind end) + best[j + l]`. What a suffix costs does
not depend on what stands before it, so a task that comes or goes changes only what is before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heshare.scheduling.departing import NOBODY, FloatArray, IntArray, bare, inlined
from heshare.scheduling.menus import MOST, Menus, find


class Queues(NamedTuple):
    """An assignment as one chain of tasks a GPU, with what each suffix costs.

    Attributes:
        kind: type of each GPU, shape (k,).
        gpu: GPU of each task, `NOBODY` before it is placed, shape (n,).
        before: the task before each one, shape (n,).
        after: the task after each one, shape (n,).
        head: first task of each GPU, shape (k,).
        tail: last task of each GPU, shape (k,).
        best: least cost of the queue from each task on, shape (n,).
        length: tasks from each task on, itself included, shape (n,).
        task: scratch: the next tasks of a walk, shape (w + 1,).
        cost: scratch: what the queue costs from each of them on, shape (w + 1,).
        ready: when each GPU begins, s, shape (k,): what every task of its queue waits besides.
    """

    kind: IntArray
    gpu: IntArray
    before: IntArray
    after: IntArray
    head: IntArray
    tail: IntArray
    best: FloatArray
    length: IntArray
    task: IntArray
    cost: FloatArray
    ready: FloatArray


def empty_queues(kind: IntArray, n: int, width: int, ready_s: FloatArray | None = None) -> Queues:
    """Queues of k GPUs, types of shape (k,), that begin at `ready_s` or at once, without any of the n tasks yet."""
    nobody = np.full(n, NOBODY)
    heads = np.full(len(kind), NOBODY)
    return Queues(
        kind, nobody, nobody.copy(), nobody.copy(), heads, heads.copy(), np.zeros(n), np.zeros(n, dtype=np.int64),
        np.full(width + 1, NOBODY), np.zeros(width + 1), np.zeros(len(kind)) if ready_s is None else ready_s,
    )  # fmt: skip


@inlined
def push(m: Menus, q: Queues, kind: int, task: int, count: int, weight: float) -> float:
    """Put a task before the window's tasks, of `count` in the queue with it; returns what the queue costs from it."""
    width = m.some.shape[0]
    result, code, member = np.inf, 0, task
    for size in range(1, min(width, count) + 1):
        m.some[size - 1] = member
        code = code * (len(m.workload) + 1) + member + 1
        place = find(m, kind, size, code)
        behind, first = count - size, place // MOST
        rest = q.cost[size - 1] if behind else 0.0
        for at in range(first, first + place % MOST):
            cost = m.value[at, 0] + weight * (m.value[at, 1] + behind * m.value[at, 2]) + rest
            if cost < result:
                result = cost
        member = q.task[size - 1]
    for i in range(width, 0, -1):
        q.task[i], q.cost[i] = q.task[i - 1], q.cost[i - 1]
    q.task[0], q.cost[0] = task, result
    return result


@inlined
def window(m: Menus, q: Queues, task: int) -> int:
    """Begin a walk before a task (`NOBODY`: at the queue's end); returns how many tasks are behind."""
    count = 0 if task == NOBODY else q.length[task]
    for i in range(min(m.some.shape[0] + 1, count)):
        q.task[i], q.cost[i] = task, q.best[task]
        task = q.after[task]
    return count


@bare
def trial(m: Menus, q: Queues, gpu: int, gone: int, come: int, weight: float) -> float:
    """What a GPU's queue would cost if a task went and another one came (either may be `NOBODY`)."""
    kind = q.kind[gpu]
    at = q.tail[gpu]
    if come != NOBODY:
        while at != NOBODY and m.rank[kind, at] > m.rank[kind, come]:
            at = q.before[at]
    if gone != NOBODY and (come == NOBODY or m.rank[kind, gone] > m.rank[kind, come]):
        count = window(m, q, q.after[gone])
        here = q.before[gone]
    elif come != NOBODY:
        count = window(m, q, q.head[gpu] if at == NOBODY else q.after[at])
        here = at
    else:
        return q.best[q.head[gpu]] if q.head[gpu] != NOBODY else 0.0
    result = q.cost[0] if count else 0.0
    waits = come != NOBODY
    while here != NOBODY or waits:
        if waits and (here == NOBODY or m.rank[kind, here] < m.rank[kind, come]):
            count += 1
            result = push(m, q, kind, come, count, weight)
            waits = False
        else:
            if here != gone:
                count += 1
                result = push(m, q, kind, here, count, weight)
            here = q.before[here]
    return result


@bare
def price(m: Menus, q: Queues, gpu: int, weight: float) -> float:
    """Work out what every suffix of a GPU's queue costs; returns the cost of all of it."""
    here, count, result = q.tail[gpu], 0, 0.0
    while here != NOBODY:
        count += 1
        result = push(m, q, q.kind[gpu], here, count, weight)
        q.best[here], q.length[here] = result, count
        here = q.before[here]
    return result


@bare
def enter(m: Menus, q: Queues, gpu: int, task: int) -> None:
    """Put a task into a GPU's queue at its place in SPT order; prices are not touched."""
    kind, at, behind = q.kind[gpu], q.tail[gpu], NOBODY
    while at != NOBODY and m.rank[kind, at] > m.rank[kind, task]:
        behind, at = at, q.before[at]
    q.gpu[task], q.before[task], q.after[task] = gpu, at, behind
    if at == NOBODY:
        q.head[gpu] = task
    else:
        q.after[at] = task
    if behind == NOBODY:
        q.tail[gpu] = task
    else:
        q.before[behind] = task


@bare
def leave(q: Queues, task: int) -> None:
    """Take a task out of its queue; prices are not touched."""
    gpu, at, behind = q.gpu[task], q.before[task], q.after[task]
    if at == NOBODY:
        q.head[gpu] = behind
    else:
        q.after[at] = behind
    if behind == NOBODY:
        q.tail[gpu] = at
    else:
        q.before[behind] = at
    q.gpu[task] = NOBODY
