"""Local search over assignments for one weight on time: exact batching of every queue, relocations and swaps.

For a weight w >= 0 (J / s) a plan costs E + w T, with the energy E and the sum of JCTs T. Both are sums over GPUs
(`heshare.lab.plus.costs`), so an assignment costs the sum of its queues' costs, and a move changes only the two queues
that it touches. A queue of m tasks in SPT order is cut into batches at least cost by dynamic programming from its end:

    best[m] = 0
    best[j] = min over l = 1 .. width, options o of the tasks j .. j + l - 1, of
              E_o + w (sum_o + (m - j - l) end_o) + best[j + l]

since a batch delays the m - j - l tasks behind it by its end and needs nothing else of the rest. This is exact: an
optimal queue without its first batch is an optimal queue of the others (Bellman's principle). A GPU that begins at
r > 0 adds w r for each task. best[j] depends on the tasks behind j only. So the cost of a queue with one task more or
less follows from the stored best[j] behind the change, and the recursion continues from there to the head.

The search is a descent: each task is relocated to the GPU where the total falls most; when no relocation improves,
pairs of tasks of different GPUs are swapped; it ends when no move improves. `perturb` moves a few tasks anywhere, from
where the next descent starts (iterated local search).

Example: tasks with 2 and 5 iterations as in `heshare.lab.plus.costs`, w = 10 J / s, two equal GPUs. One after the other
on one GPU they cost 770 J + 10 (2 + 7) s = 860; on two GPUs 770 J + 10 (2 + 5) s = 840.

>>> from heshare.lab.plus.option_tables import option_table
>>> from heshare.testing.toy import toy_instance
>>> costs = BatchCosts(*toy_instance([2.0, 5.0], gpus=2))
>>> costs.fill_tables()
>>> table, queues = option_table(costs), empty_assignment(costs)
>>> round(assign(table, queues, np.array([0, 0]), 10.0), 6)
860.0
>>> gpus = np.array([[0, 1], [0, 1]])
>>> round(descend(table, queues, np.arange(2), gpus, costs.fits, True, 10, 10.0), 6), queues.gpu_of.tolist()
(840.0, [1, 0])

Sources: iterated local search: Lourenco, Martin and Stuetzle 2003, doi:10.1007/0-306-48056-5_11. Relocate and exchange
moves between routes, evaluated from stored partial results: Savelsbergh 1992, doi:10.1287/ijoc.4.2.146.
"""

from typing import NamedTuple

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.option_tables import MAX_OPTIONS, OptionTable, find_options
from heshare.scheduling.batch_model import EMPTY
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import allocation_free, compiled, inlined

NO_GPU = -1
"""Marks a task that is not assigned, and places beyond a list of GPUs."""
SWAP_CANDIDATES = 6
"""Swaps that are evaluated for each task in a pass."""
MIN_GAIN = 1e-9
"""A move must save more than this share of its queues' cost, so that rounding does not make cycles."""


class Assignment(NamedTuple):
    """An assignment of tasks to GPUs: a linked list of tasks in SPT order for each GPU, with the cost of each suffix.

    Numba compiles a named tuple of arrays without boxing, which a class would need. Linked lists make an insertion cost
    as much as the search for its place, with no array to shift.

    Attributes:
        kind_of: type of each GPU, shape (k,).
        gpu_of: GPU of each task, `NO_GPU` before it is assigned, shape (n,).
        predecessor: the task before each one in its queue, `EMPTY` at the head, shape (n,).
        successor: the task after each one, `EMPTY` at the tail, shape (n,).
        head: first task of each GPU, shape (k,).
        tail: last task of each GPU, shape (k,).
        suffix_cost: least cost of the queue from each task on, `best` of the recursion, shape (n,).
        suffix_length: tasks from each task on, itself included, shape (n,).
        window_task: scratch: the first tasks of the suffix that is evaluated, shape (w + 1,).
        window_cost: scratch: the cost of the suffix from each of them on, shape (w + 1,).
        ready_s: when each GPU begins, s, shape (k,): every task of its queue waits so long in addition.
    """

    kind_of: IntArray
    gpu_of: IntArray
    predecessor: IntArray
    successor: IntArray
    head: IntArray
    tail: IntArray
    suffix_cost: FloatArray
    suffix_length: IntArray
    window_task: IntArray
    window_cost: FloatArray
    ready_s: FloatArray


def empty_assignment(costs: BatchCosts) -> Assignment:
    """Return the empty queues of a cluster, which begin when its GPUs are ready."""
    world, width = costs.world, costs.choices.width
    unlinked, no_task = np.full(world.n, EMPTY), np.full(world.k, EMPTY)
    return Assignment(
        kind_of=world.kind_of,
        gpu_of=np.full(world.n, NO_GPU),
        predecessor=unlinked,
        successor=unlinked.copy(),
        head=no_task,
        tail=no_task.copy(),
        suffix_cost=np.zeros(world.n),
        suffix_length=np.zeros(world.n, dtype=np.int64),
        window_task=np.full(width + 1, EMPTY),
        window_cost=np.zeros(width + 1),
        ready_s=world.begin_s,
    )


@allocation_free
def insert(table: OptionTable, queues: Assignment, gpu: int, task: int) -> None:
    """Insert a task into a GPU's queue at its place in SPT order; costs are not updated."""
    kind, before, after = queues.kind_of[gpu], queues.tail[gpu], EMPTY
    while before != EMPTY and table.rank[kind, before] > table.rank[kind, task]:
        after, before = before, queues.predecessor[before]
    queues.gpu_of[task], queues.predecessor[task], queues.successor[task] = gpu, before, after
    if before == EMPTY:
        queues.head[gpu] = task
    else:
        queues.successor[before] = task
    if after == EMPTY:
        queues.tail[gpu] = task
    else:
        queues.predecessor[after] = task


@allocation_free
def remove(queues: Assignment, task: int) -> None:
    """Remove a task from its queue; costs are not updated."""
    gpu, before, after = queues.gpu_of[task], queues.predecessor[task], queues.successor[task]
    if before == EMPTY:
        queues.head[gpu] = after
    else:
        queues.successor[before] = after
    if after == EMPTY:
        queues.tail[gpu] = before
    else:
        queues.predecessor[after] = before
    queues.gpu_of[task] = NO_GPU


@inlined
def _prepend(table: OptionTable, queues: Assignment, kind: int, task: int, length: int, weight: float) -> float:
    """Do one step of the recursion: put a task before the window, `length` tasks with it; return the suffix's cost."""
    width = table.members.shape[0]
    result, code, member = np.inf, 0, task
    for size in range(1, min(width, length) + 1):
        table.members[size - 1] = member
        code = code * (len(table.workload) + 1) + member + 1
        place = find_options(table, kind, size, code)
        behind, first = length - size, place // MAX_OPTIONS
        rest = queues.window_cost[size - 1] if behind else 0.0
        for option in range(first, first + place % MAX_OPTIONS):
            delay_s = table.values[option, 1] + behind * table.values[option, 2]
            cost = table.values[option, 0] + weight * delay_s + rest
            if cost < result:
                result = cost
        member = queues.window_task[size - 1]
    # A batch has at most w tasks, so the recursion looks back no further than the window.
    for i in range(width, 0, -1):
        queues.window_task[i], queues.window_cost[i] = queues.window_task[i - 1], queues.window_cost[i - 1]
    queues.window_task[0], queues.window_cost[0] = task, result
    return result


@inlined
def _start_window(table: OptionTable, queues: Assignment, task: int) -> int:
    """Load the window with the stored suffix from a task on (`EMPTY`: an empty one); return the suffix's length."""
    length = 0 if task == EMPTY else queues.suffix_length[task]
    for i in range(min(table.members.shape[0] + 1, length)):
        queues.window_task[i], queues.window_cost[i] = task, queues.suffix_cost[task]
        task = queues.successor[task]
    return length


@allocation_free
def evaluate_queue(table: OptionTable, queues: Assignment, gpu: int, weight: float) -> float:
    """Compute and store the cost of every suffix of a GPU's queue; return the cost of the whole queue."""
    task, length, cost = queues.tail[gpu], 0, 0.0
    while task != EMPTY:
        length += 1
        cost = _prepend(table, queues, queues.kind_of[gpu], task, length, weight)
        queues.suffix_cost[task], queues.suffix_length[task] = cost, length
        task = queues.predecessor[task]
    return cost


@allocation_free
def evaluate_change(
    table: OptionTable, queues: Assignment, gpu: int, removed: int, inserted: int, weight: float
) -> float:
    """Return what a GPU's queue would cost without one task and with another one; either may be `EMPTY`."""
    kind = queues.kind_of[gpu]
    task = queues.tail[gpu]
    if inserted != EMPTY:
        while task != EMPTY and table.rank[kind, task] > table.rank[kind, inserted]:
            task = queues.predecessor[task]
    # The suffix behind the later one of the two places is unchanged: its stored cost is where the recursion starts.
    if removed != EMPTY and (inserted == EMPTY or table.rank[kind, removed] > table.rank[kind, inserted]):
        length = _start_window(table, queues, queues.successor[removed])
        task = queues.predecessor[removed]
    elif inserted != EMPTY:
        length = _start_window(table, queues, queues.head[gpu] if task == EMPTY else queues.successor[task])
    else:
        return queue_cost(queues, gpu)
    cost = queues.window_cost[0] if length else 0.0
    pending = inserted != EMPTY
    while task != EMPTY or pending:
        if pending and (task == EMPTY or table.rank[kind, task] < table.rank[kind, inserted]):
            length += 1
            cost = _prepend(table, queues, kind, inserted, length, weight)
            pending = False
        else:
            if task != removed:
                length += 1
                cost = _prepend(table, queues, kind, task, length, weight)
            task = queues.predecessor[task]
    return cost


@allocation_free
def queue_cost(queues: Assignment, gpu: int) -> float:
    """Return the stored cost of a GPU's queue from its begin on."""
    return float(queues.suffix_cost[queues.head[gpu]]) if queues.head[gpu] != EMPTY else 0.0


@allocation_free
def ready_cost(queues: Assignment, gpu: int, weight: float) -> float:
    """Return the cost of the time that a GPU's tasks wait until it begins."""
    if queues.head[gpu] == EMPTY:
        return 0.0
    return float(weight * queues.ready_s[gpu] * queues.suffix_length[queues.head[gpu]])


@allocation_free
def assign(table: OptionTable, queues: Assignment, scheme: IntArray, weight: float) -> float:
    """Fill empty queues with a scheme, GPU of each task, shape (n,); return what the queues cost."""
    for task in range(len(scheme)):
        insert(table, queues, scheme[task], task)
    total = 0.0
    for gpu in range(len(queues.kind_of)):
        total += evaluate_queue(table, queues, gpu, weight)
    return total


@compiled
def construct(
    table: OptionTable, queues: Assignment, longest: IntArray, fits: BoolArray, groups: IntArray, weight: float
) -> None:
    """Assign tasks one by one to the GPU where the cost rises least; of each type, the one with the fewest is tried.

    `longest` has the tasks in the order of insertion, shape (n,), `fits` whether a task fits a type, (n, kinds),
    `groups` the GPUs of each type, `NO_GPU` beyond, (kinds, most). `weight` is that of the sum of JCTs against energy,
    J / s.
    """
    lengths = queues.head * 0
    for task in longest:
        least, target = 0.0, NO_GPU
        for kind in range(len(groups)):
            if not fits[task, kind]:
                continue
            gpu = groups[kind, 0]
            for other in groups[kind]:
                if other == NO_GPU or (lengths[gpu] == 0 and queues.ready_s[gpu] == 0):
                    break
                sooner = queues.ready_s[other] < queues.ready_s[gpu]
                if lengths[other] < lengths[gpu] or (lengths[other] == lengths[gpu] and sooner):
                    gpu = other
            now = queue_cost(queues, gpu)
            rise = evaluate_change(table, queues, gpu, EMPTY, task, weight) - now + weight * queues.ready_s[gpu]
            if target == NO_GPU or rise < least:
                least, target = rise, gpu
        insert(table, queues, target, task)
        evaluate_queue(table, queues, target, weight)
        lengths[target] += 1


@compiled
def descend(
    table: OptionTable,
    queues: Assignment,
    order: IntArray,
    targets: IntArray,
    fits: BoolArray,
    swaps: bool,
    passes: int,
    weight: float,
) -> float:
    """Relocate and swap tasks until no move lowers the cost (a local optimum); return its cost.

    `order` has the tasks in the order of trying, shape (t,), `targets` the GPUs to try for each, (t, s), `fits` whether
    a task fits a type, (n, kinds). With `swaps` tasks are swapped too, and `targets` are all GPUs. The search ends
    after `passes`, even if the last one still moved tasks; `weight` is that of the sum of JCTs against energy, J / s.
    """
    n = len(queues.gpu_of)
    relocated, swapped = np.full(n, -1), np.full(n, -1)
    changed = np.zeros(len(queues.kind_of) + 1, dtype=np.int64)
    history = _History(changed, np.zeros(n), np.zeros((n, targets.shape[1])))
    moves = 1
    while moves and passes > 0:
        passes -= 1
        moves = _relocate_tasks(table, queues, order, targets, fits, relocated, history, weight)
        if swaps and not moves:
            moves = _swap_tasks(table, queues, order, fits, swapped, history, weight)
    total = 0.0
    for gpu in range(len(queues.kind_of)):
        total += queue_cost(queues, gpu) + ready_cost(queues, gpu, weight)
    return total


class _History(NamedTuple):
    """The moves of a descent so far.

    Attributes:
        changed: the number of the move that changed each GPU's queue last, and the number of moves, shape (k + 1,).
        drop: what each task's queue saved without it when it was tried last, shape (n,).
        rise: what each task added to the queue at each place of its targets, shape (n, s).
    """

    changed: IntArray
    drop: FloatArray
    rise: FloatArray


@allocation_free
def _relocate_tasks(
    table: OptionTable,
    queues: Assignment,
    order: IntArray,
    targets: IntArray,
    fits: BoolArray,
    tried: IntArray,
    history: _History,
    weight: float,
) -> int:
    """Relocate each task in turn to the GPU where it costs least; return the number of relocated tasks.

    The arguments are those of `descend`, and `tried`: the number of moves made before each task was tried last, -1 for
    never, shape (n,).
    """
    moved, k = 0, len(queues.kind_of)
    changed, drop, rise = history
    for row in range(len(order)):
        task = order[row]
        source = queues.gpu_of[task]
        best_gain, target, empty_kinds = 0.0, NO_GPU, 0
        # A task or a queue that has not changed since the last trial cannot give another result.
        if changed[source] > tried[task]:
            without = evaluate_change(table, queues, source, task, EMPTY, weight)
            drop[task] = queue_cost(queues, source) - without + weight * queues.ready_s[source]
        for column in range(targets.shape[1]):
            gpu = targets[row, column]
            kind = queues.kind_of[gpu]
            if gpu == source or not fits[task, kind] or max(changed[source], changed[gpu]) <= tried[task]:
                continue
            # Empty GPUs of a type that begin at once are alike: only the first one is tried.
            if queues.head[gpu] == EMPTY and queues.ready_s[gpu] == 0:
                if empty_kinds >> kind & 1:
                    continue
                empty_kinds |= 1 << kind
            if changed[gpu] > tried[task] or queues.head[gpu] == EMPTY:
                with_task = evaluate_change(table, queues, gpu, EMPTY, task, weight)
                rise[task, column] = with_task - queue_cost(queues, gpu) + weight * queues.ready_s[gpu]
            gain = drop[task] - rise[task, column]
            if gain > best_gain + MIN_GAIN * (queue_cost(queues, source) + queue_cost(queues, gpu)):
                best_gain, target = gain, gpu
        tried[task] = changed[k]
        if target != NO_GPU:
            _relocate(table, queues, task, target, weight)
            changed[k] += 1
            changed[source] = changed[target] = changed[k]
            moved += 1
    return moved


@allocation_free
def _relocate(table: OptionTable, queues: Assignment, task: int, target: int, weight: float) -> None:
    source = queues.gpu_of[task]
    remove(queues, task)
    insert(table, queues, target, task)
    evaluate_queue(table, queues, source, weight)
    evaluate_queue(table, queues, target, weight)


@compiled
def _swap_tasks(
    table: OptionTable,
    queues: Assignment,
    order: IntArray,
    fits: BoolArray,
    tried: IntArray,
    history: _History,
    weight: float,
) -> int:
    """Swap tasks of two GPUs wherever that lowers the cost; return the number of swaps.

    The arguments are those of `_relocate_tasks`, whose targets were all GPUs. For each task, `SWAP_CANDIDATES` swaps
    are evaluated, those with the best estimates. The estimate adds what the two relocations would save alone.
    """
    swapped, k = 0, len(queues.kind_of)
    changed, drop, rise = history
    estimate = np.empty(len(queues.gpu_of))
    for task in order:
        moves, source = changed[k], queues.gpu_of[task]
        for other in range(len(queues.gpu_of)):
            gpu = queues.gpu_of[other]
            # Without `drop[task]`, which is the same for all: only the order of the estimates counts.
            estimate[other] = drop[other] - rise[other, source] - rise[task, gpu]
            fit = fits[task, queues.kind_of[gpu]] and fits[other, queues.kind_of[source]]
            if source == gpu or not fit or max(changed[source], changed[gpu]) <= max(tried[task], tried[other]):
                estimate[other] = -np.inf
        for _ in range(SWAP_CANDIDATES):
            other = int(estimate.argmax())
            if estimate[other] == -np.inf or _swap_if_better(table, queues, task, other, weight):
                break
            estimate[other] = -np.inf
        if queues.gpu_of[task] != source:
            changed[k] += 1
            changed[source] = changed[queues.gpu_of[task]] = changed[k]
            swapped += 1
        # The count from before the swap: the task may be tried again with the queues that it has just changed.
        tried[task] = moves
    return swapped


@allocation_free
def _swap_if_better(table: OptionTable, queues: Assignment, task: int, other: int, weight: float) -> bool:
    source, target = queues.gpu_of[task], queues.gpu_of[other]
    before = queue_cost(queues, source) + queue_cost(queues, target)
    after = evaluate_change(table, queues, source, task, other, weight)
    # Costs are positive: if one queue alone already costs as much as both did, the other one need not be evaluated.
    if after < before:
        after += evaluate_change(table, queues, target, other, task, weight)
    if after >= before * (1 - MIN_GAIN):
        return False
    remove(queues, task)
    remove(queues, other)
    insert(table, queues, target, task)
    insert(table, queues, source, other)
    evaluate_queue(table, queues, source, weight)
    evaluate_queue(table, queues, target, weight)
    return True


@allocation_free
def perturb(
    table: OptionTable, queues: Assignment, tasks: IntArray, targets: IntArray, fits: BoolArray, weight: float
) -> None:
    """Relocate tasks to given GPUs, whatever it costs; a task that does not fit its target stays."""
    for row in range(len(tasks)):
        task, gpu = tasks[row], targets[row]
        if gpu != queues.gpu_of[task] and fits[task, queues.kind_of[gpu]]:
            _relocate(table, queues, task, gpu, weight)
