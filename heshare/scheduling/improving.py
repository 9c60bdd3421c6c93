"""Local search over assignments for one weight on time: construct, relocate, swap (compiled).

Every move is priced exactly, by the batching recursion of `heshare.scheduling.queueing`.
"""

from __future__ import annotations

import numpy as np

from heshare.scheduling.departing import NOBODY, BoolArray, FloatArray, IntArray, bare, compiled
from heshare.scheduling.menus import Menus
from heshare.scheduling.queueing import Queues, enter, leave, price, trial

PARTNERS = 6
"""Exchanges tried for each task in a sweep."""
GAIN = 1e-9
"""A move must save more than this share of what the queues cost, so that rounding decides nothing."""


@bare
def assign(m: Menus, q: Queues, scheme: IntArray, weight: float) -> float:
    """Build the queues of a scheme, GPU of each task, shape (n,); returns what they cost."""
    for task in range(len(scheme)):
        enter(m, q, scheme[task], task)
    return reprice(m, q, weight)


@bare
def reprice(m: Menus, q: Queues, weight: float) -> float:
    """Price all queues for other weights; returns what they cost."""
    total = 0.0
    for gpu in range(len(q.kind)):
        total += price(m, q, gpu, weight)
    return total


@compiled
def construct(m: Menus, q: Queues, longest: IntArray, fits: BoolArray, groups: IntArray, weight: float) -> float:
    """Place tasks one by one, each where it costs least; on each type the GPU with the fewest tasks is asked.

    Args:
        m: the menus.
        q: empty queues; filled.
        longest: the tasks in the order of placing, longest first, shape (n,).
        fits: whether a task fits a type, shape (n, kinds).
        groups: GPUs of each type, `NOBODY` beyond, shape (kinds, most).
        weight: weight of the sum of JCTs against energy, J / s.

    Returns:
        What the queues cost.
    """
    held = q.head * 0
    for task in longest:
        best, target = 0.0, NOBODY
        for kind in range(len(groups)):
            if not fits[task, kind]:
                continue
            gpu = groups[kind, 0]
            for other in groups[kind]:
                if other == NOBODY or (held[gpu] == 0 and q.ready[gpu] == 0):
                    break
                if held[other] < held[gpu] or (held[other] == held[gpu] and q.ready[other] < q.ready[gpu]):
                    gpu = other
            now = q.best[q.head[gpu]] if q.head[gpu] != NOBODY else 0.0
            rise = trial(m, q, gpu, NOBODY, task, weight) - now + weight * q.ready[gpu]
            if target == NOBODY or rise < best:
                best, target = rise, gpu
        enter(m, q, target, task)
        price(m, q, target, weight)
        held[target] += 1
    return reprice(m, q, weight)


@bare
def cost_of(q: Queues, gpu: int) -> float:
    """What a GPU's queue costs from its begin on."""
    return float(q.best[q.head[gpu]]) if q.head[gpu] != NOBODY else 0.0


@bare
def waits(q: Queues, gpu: int, weight: float) -> float:
    """What it costs that a GPU's queue begins late."""
    return float(weight * q.ready[gpu] * q.length[q.head[gpu]]) if q.head[gpu] != NOBODY else 0.0


@bare
def move(m: Menus, q: Queues, task: int, target: int, weight: float) -> None:
    """Move a task to another GPU."""
    source = q.gpu[task]
    leave(q, task)
    enter(m, q, target, task)
    price(m, q, source, weight)
    price(m, q, target, weight)


@bare
def relocate(
    m: Menus,
    q: Queues,
    order: IntArray,
    targets: IntArray,
    fits: BoolArray,
    seen: IntArray,
    changed: IntArray,
    drop: FloatArray,
    rise: FloatArray,
    weight: float,
) -> int:
    """Move each task in turn to the GPU where it costs least; a pair that has not changed is not tried again.

    Args:
        m: the menus.
        q: the queues; changed.
        order: the tasks in the order of trying, shape (t,).
        targets: GPUs to try for each of them, shape (t, s).
        fits: whether a task fits a type, shape (n, kinds).
        seen: the moment at which each task was tried last, shape (n,); changed.
        changed: the moment at which each GPU's queue changed last, and now, shape (k + 1,); changed.
        drop: what each task's queue saves without it, shape (n,); filled.
        rise: what each task adds to the queue at each place of `targets`, shape (n, s); filled.
        weight: weight of the sum of JCTs against energy, J / s.

    Returns:
        How many tasks moved.
    """
    moved, k = 0, len(q.kind)
    for row in range(len(order)):
        task = order[row]
        source = q.gpu[task]
        saved, target, emptied = 0.0, NOBODY, 0
        asked = False
        for column in range(targets.shape[1]):
            gpu = targets[row, column]
            kind = q.kind[gpu]
            if gpu == source or not fits[task, kind] or max(changed[source], changed[gpu]) <= seen[task]:
                continue
            if q.head[gpu] == NOBODY and q.ready[gpu] == 0:
                if emptied >> kind & 1:
                    continue
                emptied |= 1 << kind
            if not asked:
                drop[task] = cost_of(q, source) - trial(m, q, source, task, NOBODY, weight) + weight * q.ready[source]
                asked = True
            rise[task, column] = trial(m, q, gpu, NOBODY, task, weight) - cost_of(q, gpu) + weight * q.ready[gpu]
            gain = drop[task] - rise[task, column]
            if gain > saved + GAIN * (cost_of(q, source) + cost_of(q, gpu)):
                saved, target = gain, gpu
        seen[task] = changed[k]
        if target != NOBODY:
            move(m, q, task, target, weight)
            changed[k] += 1
            changed[source] = changed[target] = changed[k]
            moved += 1
    return moved


@compiled
def swap(
    m: Menus,
    q: Queues,
    order: IntArray,
    fits: BoolArray,
    seen: IntArray,
    changed: IntArray,
    drop: FloatArray,
    rise: FloatArray,
    weight: float,
) -> int:
    """Exchange tasks of two GPUs wherever that saves; returns how many were exchanged.

    For each task the `PARTNERS` are tried that promise most if the two moves did not touch each other. Arguments as
    in `relocate`, whose targets were all GPUs.
    """
    swapped, k = 0, len(q.kind)
    promise = np.empty(len(q.gpu))
    for one in order:
        began, here = changed[k], q.gpu[one]
        for other in range(len(q.gpu)):
            there = q.gpu[other]
            promise[other] = drop[other] - rise[other, here] - rise[one, there]
            fit = fits[one, q.kind[there]] and fits[other, q.kind[here]]
            if here == there or not fit or max(changed[here], changed[there]) <= max(seen[one], seen[other]):
                promise[other] = -np.inf
        for _ in range(PARTNERS):
            other = int(promise.argmax())
            if promise[other] == -np.inf or exchanged(m, q, one, other, weight):
                break
            promise[other] = -np.inf
        if q.gpu[one] != here:
            changed[k] += 1
            changed[here] = changed[q.gpu[one]] = changed[k]
            swapped += 1
        seen[one] = began
    return swapped


@bare
def exchanged(m: Menus, q: Queues, one: int, other: int, weight: float) -> bool:
    """Exchange two tasks of different GPUs if that saves; whether it did."""
    here, there = q.gpu[one], q.gpu[other]
    now = cost_of(q, here) + cost_of(q, there)
    then = trial(m, q, here, one, other, weight)
    if then < now:
        then += trial(m, q, there, other, one, weight)
    if then >= now * (1 - GAIN):
        return False
    leave(q, one)
    leave(q, other)
    enter(m, q, there, one)
    enter(m, q, here, other)
    price(m, q, here, weight)
    price(m, q, there, weight)
    return True


@compiled
def descend(
    m: Menus, q: Queues, order: IntArray, targets: IntArray, fits: BoolArray, swaps: bool, passes: int, weight: float
) -> float:
    """Relocate and swap until no move saves anything: a local optimum. Returns what it costs.

    Args:
        m: the menus.
        q: priced queues; changed.
        order: the tasks in the order of trying, shape (t,).
        targets: GPUs to try for each of them, shape (t, s).
        fits: whether a task fits a type, shape (n, kinds).
        swaps: whether tasks are exchanged too.
        passes: stop after so many, even if the last one still moved tasks.
        weight: weight of the sum of JCTs against energy, J / s.
    """
    changed = np.zeros(len(q.kind) + 1, dtype=np.int64)
    relocated, swapped = np.full(len(q.gpu), -1), np.full(len(q.gpu), -1)
    drop, rise = np.zeros(len(q.gpu)), np.zeros((len(q.gpu), targets.shape[1]))
    moves = 1
    while moves and passes > 0:
        passes -= 1
        moves = relocate(m, q, order, targets, fits, relocated, changed, drop, rise, weight)
        if swaps and not moves:
            moves = swap(m, q, order, fits, swapped, changed, drop, rise, weight)
    total = 0.0
    for gpu in range(len(q.kind)):
        total += cost_of(q, gpu) + waits(q, gpu, weight)
    return total


@bare
def disturb(m: Menus, q: Queues, tasks: IntArray, targets: IntArray, fits: BoolArray, weight: float) -> None:
    """A kick: move tasks to other GPUs, whatever it costs; where one does not fit it stays."""
    for row in range(len(tasks)):
        task, gpu = tasks[row], targets[row]
        if gpu != q.gpu[task] and fits[task, q.kind[gpu]]:
            move(m, q, task, gpu, weight)
