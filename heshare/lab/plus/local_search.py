"""Local search over assignments for one weight on time: exact batching of every queue, relocations and swaps.

`docs/bound.md` has the recursion and its sources.
"""

from math import comb
from typing import NamedTuple

import numpy as np

from heshare.lab.plus.batch_table import BatchTable, TableArrays, fill_options
from heshare.scheduling.batch_model import EMPTY
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiled import njit

NO_GPU = -1
"""Marks a task that is not assigned, and places beyond a list of GPUs."""
SWAP_CANDIDATES = 6
"""Swaps that are evaluated for each task in a pass."""
MIN_GAIN = 1e-9
"""A move must save more than this share of its queues' cost, so that rounding does not make cycles."""
_MOST_SETS = 1 << 19
_OPTIONS_A_SET = 8


class Memo(NamedTuple):
    """A cache of the options of sets of tasks, by the number of the set; sets with one slot replace each other.

    Attributes:
        place: summand of the number of a set for its i-th task at SPT position p, shape (w, n).
        sets: sets of tasks on one type of GPU, shape (1,).
        kept: the number of the set cached in each slot (-1 for none), its first option, and the end of its options,
            shape (slots, 3).
        values: E_B in J, sum of execution times in s, tau_B in s of each option, shape (o, 3).
        used: how many options are cached, shape (1,).
        rows: scratch: the rows of the table, shape (most,).
        members: scratch: the members sorted by workload, shape (w,).
        left: scratch: iterations left, shape (w,).
    """

    place: IntArray
    sets: IntArray
    kept: IntArray
    values: FloatArray
    used: IntArray
    rows: IntArray
    members: IntArray
    left: FloatArray


def memo_of(table: BatchTable, most_sets: int = _MOST_SETS) -> Memo:
    """Return an empty memo with a slot for every set of tasks, or with `most_sets` slots."""
    n = table.instance.n
    width = table.width
    smaller = [0, *(comb(n, size) for size in range(1, width + 1))]
    before = np.cumsum(smaller)
    place = np.array([[comb(p, i + 1) for p in range(n)] for i in range(width)], dtype=np.int64)

    # All smaller sets come before those of a size.
    place += np.array(smaller[:width])[:, None]

    places = min(most_sets, int(before[-1]) * len(table.instance.kinds))
    most = table.most_options
    return Memo(
        place=place,
        sets=before[-1:].copy(),
        kept=np.full((places, 3), -1),
        values=np.empty((_OPTIONS_A_SET * places + most, 3)),
        used=np.zeros(1, dtype=np.int64),
        rows=np.empty(most, dtype=np.int64),
        members=np.zeros(width, dtype=np.int64),
        left=np.zeros(width),
    )


class Queues(NamedTuple):
    """The queues of all GPUs at one weight.

    Attributes:
        weight: of the sum of JCTs against energy, J / s, shape (1,).
        kind_of: type of each GPU, shape (k,).
        ready_s: when each GPU begins, s, shape (k,): every task of its queue waits so long in addition.
        fits: whether a task fits a type of GPU, shape (n, kinds).
        rank: SPT position of each task on each type, shape (kinds, n).
        gpu_of: GPU of each task, `NO_GPU` before it is assigned, shape (n,).
        length: tasks of each GPU, shape (k,).
        tasks: each GPU's tasks in SPT order, shape (k, n).
        best: least cost of each GPU's queue from a position on, `best` of the recursion, shape (k, n + 1).
        trial: scratch: the tasks of a changed queue, shape (n + 1,).
        trial_best: scratch: its costs, shape (n + 2,).
    """

    weight: FloatArray
    kind_of: IntArray
    ready_s: FloatArray
    fits: BoolArray
    rank: IntArray
    gpu_of: IntArray
    length: IntArray
    tasks: IntArray
    best: FloatArray
    trial: IntArray
    trial_best: FloatArray


def queues_of(table: BatchTable, weight: float) -> Queues:
    """Return the empty queues of a cluster, which begin when its GPUs are ready.

    Example:
        Tasks with 2 and 5 iterations as in `BatchTable`, a weight of 10 J/s, two equal GPUs. One after the other on one
        GPU they cost 770 J + 10 (2 + 7) s = 860 J; on two GPUs 770 J + 10 (2 + 5) s = 840 J.

        >>> from heshare.testing.toy import toy_instance
        >>> table = BatchTable(*toy_instance([2.0, 5.0], gpus=2))
        >>> memo, queues = memo_of(table), queues_of(table, 10.0)
        >>> assign(table.arrays, memo, queues, np.array([0, 0]))
        >>> round(queue_cost(queues, 0), 6)
        860.0
        >>> gpus = np.array([[0, 1], [0, 1]])
        >>> round(descend(table.arrays, memo, queues, np.arange(2), gpus, True, 10), 6), queues.gpu_of.tolist()
        (840.0, [1, 0])
    """
    instance = table.instance
    n = instance.n
    return Queues(
        weight=np.array([weight]),
        kind_of=instance.kind_of,
        ready_s=instance.begin_s,
        fits=np.ascontiguousarray(instance.fits_of_kind),
        rank=np.ascontiguousarray(table.rank),
        gpu_of=np.full(n, NO_GPU),
        length=np.zeros(instance.k, dtype=np.int64),
        tasks=np.full((instance.k, n), EMPTY),
        best=np.zeros((instance.k, n + 1)),
        trial=np.full(n + 1, EMPTY),
        trial_best=np.zeros(n + 2),
    )


@njit(cache=True)
def _keep(table: TableArrays, memo: Memo, kind: int, tasks: IntArray, size: int, number: int, place: int) -> None:
    """Compute the options of a set of tasks in SPT order and write them to a slot of the memo."""
    if memo.used[0] + len(memo.rows) > len(memo.values):
        for each in range(len(memo.kept)):
            memo.kept[each, 0] = -1
        memo.used[0] = 0
    first = memo.used[0]
    count = fill_options(table, kind, tasks, size, memo.values[first:], memo.rows, memo.members, memo.left)
    memo.kept[place, 0] = number
    memo.kept[place, 1] = first
    memo.kept[place, 2] = first + count
    memo.used[0] += count


@njit(cache=True)
def queue_cost(queues: Queues, gpu: int) -> float:
    """Return the stored cost of a GPU's queue, with the time that its tasks wait until it begins."""
    late = queues.weight[0] * queues.ready_s[gpu] * queues.length[gpu]
    return float(queues.best[gpu, 0] + late)


@njit(cache=True)
def changed_costs(table: TableArrays, memo: Memo, queues: Queues, changes: IntArray, costs: FloatArray) -> None:
    """Write what some queues would cost after a change of each, shape (c,).

    A row of `changes`, shape (c, 3), is a GPU, the task that its queue loses and the task that it gains; either may be
    `EMPTY`. With neither, the whole queue is evaluated anew. The last changed queue and its costs remain in `trial`
    and `trial_best`.
    """
    # Arrays as local variables: numba counts references at every access to an array of a tuple.
    rank = queues.rank
    tasks = queues.tasks
    best = queues.best
    trial = queues.trial
    trial_best = queues.trial_best
    weight = queues.weight[0]
    place_of = memo.place
    kept = memo.kept
    values = memo.values
    places = len(kept)
    width = len(memo.members)

    for row in range(len(changes)):
        gpu = changes[row, 0]
        removed = changes[row, 1]
        inserted = changes[row, 2]
        kind = queues.kind_of[gpu]
        length = queues.length[gpu]

        # The changed queue, and the last position whose cost has to be computed again.
        count = 0
        last = length - 1 if removed == EMPTY and inserted == EMPTY else -1
        pending = inserted != EMPTY
        for position in range(length):
            task = tasks[gpu, position]
            if pending and rank[kind, inserted] < rank[kind, task]:
                trial[count] = inserted
                last = count
                count += 1
                pending = False
            if task == removed:
                last = count - 1
            else:
                trial[count] = task
                count += 1
        if pending:
            trial[count] = inserted
            last = count
            count += 1
        trial_best[count] = 0.0
        for position in range(last + 1, count):
            trial_best[position] = best[gpu, position + length - count]

        # The recursion, from that position to the head.
        for position in range(last, -1, -1):
            least = np.inf
            number = kind * memo.sets[0]
            for size in range(1, min(width, count - position) + 1):
                number += place_of[size - 1, rank[kind, trial[position + size - 1]]]
                place = number if number < places else number % places
                if kept[place, 0] != number:
                    _keep(table, memo, kind, trial[position:], size, number, place)
                behind = count - position - size
                rest = trial_best[position + size]
                for option in range(kept[place, 1], kept[place, 2]):
                    cost = values[option, 0] + weight * (values[option, 1] + behind * values[option, 2]) + rest
                    if cost < least:
                        least = cost
            trial_best[position] = least
        costs[row] = trial_best[0] + weight * queues.ready_s[gpu] * count


@njit(cache=True)
def _set_change(changes: IntArray, row: int, gpu: int, removed: int, inserted: int) -> None:
    """Write a row of changes as in `changed_costs`: a GPU, the task that it loses and the one that it gains."""
    changes[row, 0] = gpu
    changes[row, 1] = removed
    changes[row, 2] = inserted


@njit(cache=True)
def _change(table: TableArrays, memo: Memo, queues: Queues, change: IntArray) -> None:
    """Apply a change, one row as in `changed_costs`, shape (1, 3)."""
    changed_costs(table, memo, queues, change, np.empty(1))

    gpu = change[0, 0]
    if change[0, 1] != EMPTY:
        queues.length[gpu] -= 1
    if change[0, 2] != EMPTY:
        queues.length[gpu] += 1
        queues.gpu_of[change[0, 2]] = gpu

    for position in range(queues.length[gpu]):
        queues.tasks[gpu, position] = queues.trial[position]
        queues.best[gpu, position] = queues.trial_best[position]
    queues.best[gpu, queues.length[gpu]] = 0.0


@njit(cache=True)
def _relocate(table: TableArrays, memo: Memo, queues: Queues, task: int, target: int) -> None:
    """Move a task to a GPU, from another one if it has been assigned."""
    change = np.empty((1, 3), dtype=np.int64)

    source = queues.gpu_of[task]
    if source != NO_GPU:
        _set_change(change, 0, source, task, EMPTY)
        _change(table, memo, queues, change)

    _set_change(change, 0, target, EMPTY, task)
    _change(table, memo, queues, change)


@njit(cache=True)
def assign(table: TableArrays, memo: Memo, queues: Queues, scheme: IntArray) -> None:
    """Fill the queues with a scheme, GPU of each task, shape (n,); their previous content is discarded."""
    for gpu in range(len(queues.kind_of)):
        queues.length[gpu] = 0

    order = np.empty(len(scheme), dtype=np.int64)
    for kind in range(len(queues.rank)):
        for task in range(len(scheme)):
            order[queues.rank[kind, task]] = task
        for position in range(len(scheme)):
            task = order[position]
            gpu = scheme[task]
            if queues.kind_of[gpu] == kind:
                queues.tasks[gpu, queues.length[gpu]] = task
                queues.length[gpu] += 1
                queues.gpu_of[task] = gpu

    whole = np.empty((1, 3), dtype=np.int64)
    for gpu in range(len(queues.kind_of)):
        _set_change(whole, 0, gpu, EMPTY, EMPTY)
        _change(table, memo, queues, whole)


@njit(cache=True)
def construct(table: TableArrays, memo: Memo, queues: Queues, longest: IntArray) -> None:
    """Assign tasks one by one to the GPU where the cost rises least; of each type, the one with the fewest is tried.

    `longest` has the tasks in the order of insertion, shape (n,); the queues are empty.
    """
    kinds = len(queues.rank)
    changes = np.empty((kinds, 3), dtype=np.int64)
    costs = np.empty(kinds)

    for task in longest:
        tried = 0
        for kind in range(kinds):
            if not queues.fits[task, kind]:
                continue
            gpu = NO_GPU
            for other in range(len(queues.kind_of)):
                if queues.kind_of[other] != kind:
                    continue
                longer = queues.length[other] - queues.length[gpu]
                if gpu == NO_GPU or longer < 0 or (longer == 0 and queues.ready_s[other] < queues.ready_s[gpu]):
                    gpu = other
            _set_change(changes, tried, gpu, EMPTY, task)
            tried += 1

        changed_costs(table, memo, queues, changes[:tried], costs)

        least = np.inf
        target = changes[0, 0]
        for row in range(tried):
            gpu = changes[row, 0]
            rise = costs[row] - queue_cost(queues, gpu)
            if rise < least:
                least = rise
                target = gpu
        _relocate(table, memo, queues, task, target)


@njit(cache=True)
def perturb(table: TableArrays, memo: Memo, queues: Queues, tasks: IntArray, targets: IntArray) -> None:
    """Relocate tasks to given GPUs, whatever it costs; a task that does not fit its target stays."""
    for row in range(len(tasks)):
        task = tasks[row]
        gpu = targets[row]
        if gpu != queues.gpu_of[task] and queues.fits[task, queues.kind_of[gpu]]:
            _relocate(table, memo, queues, task, gpu)


@njit(cache=True)
def descend(
    table: TableArrays, memo: Memo, queues: Queues, order: IntArray, targets: IntArray, swaps: bool, passes: int
) -> float:
    """Relocate and swap tasks until no move lowers the cost (a local optimum); return its cost.

    `order` has the tasks in the order of trying, shape (t,), `targets` the GPUs to try for each, (t, s). With `swaps`
    tasks are swapped too, and `targets` are all GPUs. The search ends after `passes`, even if the last pass
    moved tasks.
    """
    n = len(queues.gpu_of)
    k = len(queues.kind_of)
    # The number of the last move that changed each GPU's queue; a task that was tried after the last change of both
    # queues cannot give another result.
    moves = 0
    changed = np.zeros(k, dtype=np.int64)
    relocation_tried = np.full(n, -1)
    swap_tried = np.full(n, -1)
    # What each task's queue saved without it, and what it added to the queue at each index of its targets.
    drop = np.zeros(n)
    rise = np.zeros((n, targets.shape[1]))
    # The changes to evaluate, the indices of their targets, and the costs.
    changes = np.empty((1 + targets.shape[1], 3), dtype=np.int64)
    columns = np.empty(1 + targets.shape[1], dtype=np.int64)
    costs = np.empty(1 + targets.shape[1])
    estimate = np.empty(n)
    swap = np.empty((2 * SWAP_CANDIDATES, 3), dtype=np.int64)
    swap_costs = np.empty(2 * SWAP_CANDIDATES)

    for _ in range(passes):
        before = moves

        # Relocate each task in turn to the GPU where it costs least.
        for row in range(len(order)):
            task = order[row]
            source = queues.gpu_of[task]
            tried = relocation_tried[task]
            count = 0
            if changed[source] > tried:
                _set_change(changes, 0, source, task, EMPTY)
                count = 1
            empty_kinds = 0
            for column in range(targets.shape[1]):
                gpu = targets[row, column]
                kind = queues.kind_of[gpu]
                if gpu == source or not queues.fits[task, kind]:
                    continue
                # Empty GPUs of a type that begin at once are alike: only the first one is tried.
                if queues.length[gpu] == 0 and queues.ready_s[gpu] == 0.0:
                    if empty_kinds >> kind & 1:
                        rise[task, column] = np.inf
                        continue
                    empty_kinds |= 1 << kind
                if changed[gpu] > tried or queues.length[gpu] == 0:
                    _set_change(changes, count, gpu, EMPTY, task)
                    columns[count] = column
                    count += 1
            changed_costs(table, memo, queues, changes[:count], costs)
            for place in range(count):
                gain = costs[place] - queue_cost(queues, changes[place, 0])
                if changes[place, 0] == source:
                    drop[task] = -gain
                else:
                    rise[task, columns[place]] = gain

            best_gain = 0.0
            target = NO_GPU
            for column in range(targets.shape[1]):
                gpu = targets[row, column]
                if gpu == source or not queues.fits[task, queues.kind_of[gpu]]:
                    continue
                gain = drop[task] - rise[task, column]
                if gain > best_gain + MIN_GAIN * (queue_cost(queues, source) + queue_cost(queues, gpu)):
                    best_gain = gain
                    target = gpu
            relocation_tried[task] = moves

            if target != NO_GPU:
                _relocate(table, memo, queues, task, target)
                moves += 1
                changed[source] = moves
                changed[target] = moves

        if moves > before:
            continue
        if not swaps:
            break

        # Swap tasks of two GPUs wherever that lowers the cost. For each task the swaps with the best estimates are
        # evaluated; an estimate adds what the two relocations would save alone.
        for task in order:
            moves_before = moves
            source = queues.gpu_of[task]
            for other in range(n):
                gpu = queues.gpu_of[other]
                # Without `drop[task]`, which is the same for all: only the order of the estimates counts.
                estimate[other] = drop[other] - rise[other, source] - rise[task, gpu]
                fit = queues.fits[task, queues.kind_of[gpu]] and queues.fits[other, queues.kind_of[source]]
                tried = max(swap_tried[task], swap_tried[other])
                if source == gpu or not fit or max(changed[source], changed[gpu]) <= tried:
                    estimate[other] = -np.inf

            count = 0
            while count < 2 * SWAP_CANDIDATES:
                other = 0
                for candidate in range(n):
                    if estimate[candidate] > estimate[other]:
                        other = candidate
                if estimate[other] == -np.inf:
                    break
                estimate[other] = -np.inf
                _set_change(swap, count, source, task, other)
                _set_change(swap, count + 1, queues.gpu_of[other], other, task)
                count += 2
            changed_costs(table, memo, queues, swap[:count], swap_costs)

            for place in range(0, count, 2):
                target = swap[place + 1, 0]
                now = queue_cost(queues, source) + queue_cost(queues, target)
                if swap_costs[place] + swap_costs[place + 1] < now * (1 - MIN_GAIN):
                    _change(table, memo, queues, swap[place : place + 1])
                    _change(table, memo, queues, swap[place + 1 : place + 2])
                    moves += 1
                    changed[source] = moves
                    changed[target] = moves
                    break
            # The count from before the swap: the task may be tried again with the queues that it has just changed.
            swap_tried[task] = moves_before

        if moves == before:
            break

    total = 0.0
    for gpu in range(k):
        total += queue_cost(queues, gpu)
    return total
