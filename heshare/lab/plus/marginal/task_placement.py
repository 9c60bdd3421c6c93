"""Placement of the waiting tasks of one event, in compiled code: each where it adds least to the cost.

A GPU whose lower bound (`heshare.lab.plus.marginal.set_tables`) is above the cheapest place found so far is passed
over; every other place is computed in full. So the result is that of computing all of them.

Example: the two-task set of `drain_costs`, where a task with 2 iterations joins one with 5: 810 J and 7 s for both.

>>> import numpy as np
>>> from heshare.lab.plus.marginal.drain_costs import new_moment
>>> from heshare.lab.plus.marginal.set_predictions import SetPredictions
>>> from heshare.lab.plus.marginal.set_tables import SetTables
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> from heshare.world.workload import Workload
>>> tables = SetTables(SetPredictions(ToyPredictor(), clocks=2, price_w=10.0), (toy_gpu(),), most=2)
>>> long, short = Workload("mobilenet", 4), Workload("resnet18", 4)
>>> alone = tables.number(0, (long,))
>>> tables.join(tables.workload(short), [alone])
>>> moment = new_moment(1, 2)
>>> moment.set[0], moment.left[0, 0] = alone, 5.0
>>> joined_drain(tables.arrays, moment, 0, tables.workload(short), 2.0, np.empty(2))
(810.0, 7.0)
"""

from typing import NamedTuple

import numpy as np

from heshare.lab.plus.marginal.drain_costs import GpuArrays, Moment, SetArrays, drain, list_open, set_ahead, set_times
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import allocation_free, compiled

WAITS, UNKNOWN = -1, -2
"""What `place_tasks` writes for a task that waits, and returns as its place in the order where sets are missing."""
_MARGIN = 1e-6
"""By how much, relative to the costs, a bound must be above the best place: much more than ties and rounding add."""


class WaitingArrays(NamedTuple):
    """The waiting tasks, by row, with up to v inference batch sizes each.

    Attributes:
        workload: the number of the workload at each size, -1 for none, shape (rows, v).
        iterations: iterations left at each size, shape (rows, v).
        need_mib: memory at each size, MiB, shape (rows, v).
        gpus: number of GPUs, shape (rows,).
        aged: whether it is a gang that has waited so long that it goes first, shape (rows,).
    """

    workload: IntArray
    iterations: FloatArray
    need_mib: FloatArray
    gpus: IntArray
    aged: BoolArray


class Rules(NamedTuple):
    """What is constant in a run.

    Attributes:
        price_w: p, W.
        overlap: the share of its time alone by which a queued task delays those behind it.
        room: the largest number of tasks on each type of GPU, shape (kinds,).
        memory_mib: memory of each type of GPU, MiB, shape (kinds,).
    """

    price_w: float
    overlap: float
    room: IntArray
    memory_mib: FloatArray


class Missing(NamedTuple):
    """Sets without predictions that a placement needs: a workload joining the first few of `sets`.

    Attributes:
        total: how many they are, and the number of the workload, shape (2,).
        sets: sets, with repetitions, shape (kinds + g,).
    """

    total: IntArray
    sets: IntArray


@allocation_free
def joined_left(sets: SetArrays, moment: Moment, gpu: int, workload: int, iterations: float, left: FloatArray) -> None:
    """Write the iterations left of the members of a GPU's set with one more task into `left`."""
    number = moment.set[gpu]
    size, place = sets.size[number], sets.place[number, workload]
    while place < size and sets.member[number, place] == workload and moment.left[gpu, place] < iterations:
        place += 1
    for i in range(size, place, -1):
        left[i] = moment.left[gpu, i - 1]
    left[place] = iterations
    for i in range(place):
        left[i] = moment.left[gpu, i]


@allocation_free
def joined_drain(
    sets: SetArrays, moment: Moment, gpu: int, workload: int, iterations: float, work: FloatArray
) -> tuple[float, float]:
    """Return the cost, J, and the time, s, until everything on a GPU has ended with one more task."""
    joined_left(sets, moment, gpu, workload, iterations, work)
    return drain(sets, sets.joined[moment.set[gpu], workload], work)


@allocation_free
def alone_costs(
    sets: SetArrays, workload: int, iterations: float, costs: FloatArray, missing: Missing, work: FloatArray
) -> bool:
    """Write cost, J, and time, s, of a task alone on each type of GPU into `costs`; return False if one is missing."""
    missing.total[0], missing.total[1] = 0, workload
    for kind in range(len(costs)):
        number = sets.joined[kind, workload]
        if number < 0:
            missing.sets[missing.total[0]] = kind
            missing.total[0] += 1
        else:
            work[0] = iterations
            costs[kind, 0], costs[kind, 1] = drain(sets, number, work)
    return bool(missing.total[0] == 0)


@allocation_free
def cheapest_wait(
    gpus: GpuArrays, moment: Moment, rules: Rules, costs: FloatArray, need_mib: float
) -> tuple[float, int]:
    """Return the cost of the cheapest GPU to wait for, J, and the GPU; the first of equal ones, -1 for none.

    The cost rises with `ahead_s`, so that the least of a block has the least cost of the block, whatever rounding does.
    """
    best_j, best = np.inf, -1
    for block in range(len(moment.least_s)):
        kind = gpus.kind[gpus.members[block, 0]]
        if need_mib <= rules.memory_mib[kind]:
            best_j = min(best_j, costs[kind, 0] + rules.price_w * moment.least_s[block])
    if best_j == np.inf:
        return best_j, best
    for block in range(len(moment.least_s)):
        kind = gpus.kind[gpus.members[block, 0]]
        if need_mib > rules.memory_mib[kind] or costs[kind, 0] + rules.price_w * moment.least_s[block] > best_j:
            continue
        for place in range(gpus.members.shape[1]):
            gpu = gpus.members[block, place]
            if gpu >= 0 and costs[kind, 0] + rules.price_w * moment.ahead_s[gpu] == best_j:
                best = gpu if best < 0 else min(best, gpu)
                break
    return best_j, best


@allocation_free
def first_idle(sets: SetArrays, gpus: GpuArrays, moment: Moment, idle: IntArray) -> None:
    """Set the first idle GPU of each type for which nothing is queued; the number of GPUs where there is none.

    Within an event, one that is not idle does not become idle, so the search goes on from the last result.
    """
    for kind in range(len(idle)):
        gpu = idle[kind]
        while gpu < len(moment.set) and (
            gpus.kind[gpu] != kind or sets.size[moment.set[gpu]] or moment.queued[gpu] or moment.gang[gpu]
        ):
            gpu += 1
        idle[kind] = gpu


@allocation_free
def least_cost_j(sets: SetArrays, moment: Moment, gpu: int, workload: int, iterations: float) -> float:
    """Return the lower bound on what a task adds on a GPU beside what runs there, J; NaN is none."""
    bound = sets.bound[moment.set[gpu], workload]
    found_j: float = bound[0] * iterations + bound[1] * min(iterations, bound[2] * moment.last_s[gpu])
    found_j += bound[3] * min(iterations, bound[4] * moment.first_s[gpu])
    return found_j


@allocation_free
def cheapest_start(
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    rules: Rules,
    missing: Missing,
    task: tuple[int, float, float],
    limit_j: float,
    work: FloatArray,
    idle: IntArray,
) -> tuple[float, int, float]:
    """Return the cost of the cheapest GPU to start on at once, J, the GPU, and when it has ended everything, s.

    The first of equal ones; -1 for none. GPUs that cost more than `limit_j` may be passed over. No task overtakes one
    that is queued for the same GPU, and none joins a gang. Sets that are not predicted yet are listed in `missing`.
    Of the idle GPUs of a type, which cost the same, only the first one is looked at.
    """
    workload, iterations, need_mib = task
    best_j, best, best_s = np.inf, -1, 0.0
    at = -len(idle)
    while at < moment.total[0]:
        gpu = moment.open[at] if at >= 0 else idle[at]
        at += 1
        if gpu == len(moment.set):
            continue
        number = moment.set[gpu]
        if moment.queued[gpu] or sets.size[number] >= rules.room[gpus.kind[gpu]]:
            # It is open no longer.
            at -= 1
            moment.total[0] -= 1
            moment.open[at] = moment.open[moment.total[0]]
            continue
        if need_mib > moment.free_mib[gpu]:
            continue
        if sets.joined[number, workload] < 0:
            missing.sets[missing.total[0]] = number
            missing.total[0] += 1
            continue
        bound_j = least_cost_j(sets, moment, gpu, workload, iterations)
        if bound_j > limit_j + _MARGIN * (moment.cost_j[gpu] + abs(limit_j)):
            continue
        all_j, end_s = joined_drain(sets, moment, gpu, workload, iterations, work)
        cost_j = all_j - moment.cost_j[gpu]
        if cost_j < best_j or (cost_j == best_j and gpu < best):
            best_j, best, best_s = cost_j, gpu, end_s
            limit_j = min(limit_j, cost_j)
    return best_j, best, best_s


@allocation_free
def start(
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    gpu: int,
    task: tuple[int, float, float],
    cost_j: float,
    end_s: float,
    work: FloatArray,
) -> None:
    """Add a task to those of a GPU: it adds a cost, and everything has then ended at `end_s`."""
    if sets.size[moment.set[gpu]] == 0:
        moment.open[moment.total[0]] = gpu
        moment.total[0] += 1
    workload, iterations, need_mib = task
    joined_left(sets, moment, gpu, workload, iterations, work)
    for i in range(sets.size[moment.set[gpu]] + 1):
        moment.left[gpu, i] = work[i]
    moment.set[gpu] = sets.joined[moment.set[gpu], workload]
    moment.free_mib[gpu] -= need_mib
    moment.cost_j[gpu] += cost_j
    moment.end_s[gpu] = end_s
    set_times(sets, gpu, work, moment)
    set_ahead(sets, gpus, moment, gpu)


@allocation_free
def place_task(
    row: int,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    rules: Rules,
    missing: Missing,
    costs: FloatArray,
    work: FloatArray,
    idle: IntArray,
) -> tuple[int, int]:
    """Place a task for one GPU; return the GPU on which it starts, `WAITS` or `UNKNOWN`, and which size it has."""
    best_j, best, best_waits, best_size, best_s = np.inf, -1, False, 0, 0.0
    first_idle(sets, gpus, moment, idle)
    for size in range(waiting.workload.shape[1]):
        task = waiting.workload[row, size], waiting.iterations[row, size], waiting.need_mib[row, size]
        if task[0] < 0:
            break
        if not alone_costs(sets, task[0], task[1], costs, missing, work):
            return UNKNOWN, size
        wait_j, wait = cheapest_wait(gpus, moment, rules, costs, task[2])
        if wait >= 0 and (wait_j < best_j or (wait_j == best_j and best_waits and wait < best)):
            best_j, best, best_waits, best_size, best_s = wait_j, wait, True, size, costs[gpus.kind[wait], 1]
        start_j, first, end_s = cheapest_start(sets, gpus, moment, rules, missing, task, best_j, work, idle)
        if missing.total[0]:
            return UNKNOWN, size
        # Of equal costs, a start is better than waiting, and the first GPU better than the others.
        if first >= 0 and (start_j < best_j or (start_j == best_j and (best_waits or first < best))):
            best_j, best, best_waits, best_size, best_s = start_j, first, False, size, end_s
    if best < 0:
        return WAITS, 0
    if best_waits:
        moment.queued[best] += 1
        moment.queued_s[best] += rules.overlap * best_s
        set_ahead(sets, gpus, moment, best)
        return WAITS, best_size
    task = waiting.workload[row, best_size], waiting.iterations[row, best_size], waiting.need_mib[row, best_size]
    start(sets, gpus, moment, best, task, best_j, best_s, work)
    return best, best_size


@compiled
def gang_waits(row: int, kind: int, sets: SetArrays, gpus: GpuArrays, moment: Moment, wait_s: FloatArray) -> int:
    """Write how long a gang would wait for each GPU of a type into `wait_s`; return how many are idle.

    The time is -1 for an idle GPU, infinite for one of another type and for one that another gang holds, shape (g,).
    """
    idle = 0
    for gpu in range(len(wait_s)):
        held = gpus.held[gpu]
        if gpus.kind[gpu] != kind or (held >= 0 and held != row):
            wait_s[gpu] = np.inf
        elif sets.size[moment.set[gpu]] == 0 and moment.queued[gpu] == (held == row):
            wait_s[gpu] = -1.0
            idle += 1
        else:
            wait_s[gpu] = moment.end_s[gpu] + moment.queued_s[gpu]
    return idle


@compiled
def gang_choice(
    row: int,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    rules: Rules,
    costs: FloatArray,
) -> tuple[int, float, bool]:
    """Return the type of GPU on which a gang is cheapest, -1 for none, when it starts there, s, and whether at once.

    On each type it waits for the k GPUs that it would get first. A gang that has aged prefers a start to any wait.
    """
    width, wait_s = waiting.gpus[row], np.empty(len(moment.set))
    best_j, best, best_s, best_starts = np.inf, -1, 0.0, False
    for kind in range(len(costs)):
        if waiting.need_mib[row, 0] > rules.memory_mib[kind]:
            continue
        starts = gang_waits(row, kind, sets, gpus, moment, wait_s) >= width
        last_s = 0.0
        if not starts:
            last_s = np.partition(wait_s, width - 1)[width - 1] if width <= len(wait_s) else np.inf
        if last_s == np.inf:
            continue
        cost_j = width * (costs[kind, 0] + rules.price_w * max(last_s, 0.0))
        if starts and not best_starts and waiting.aged[row]:
            better = True
        else:
            better = cost_j < best_j and not (best_starts and not starts and waiting.aged[row])
        if better:
            best_j, best, best_s, best_starts = cost_j, kind, max(last_s, 0.0), starts
    return best, best_s, best_starts


@compiled
def start_gang(
    at: int,
    row: int,
    kind: int,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    alone: FloatArray,
) -> int:
    """Start a gang on the first idle GPUs of a type; return the first of them. What it held besides is free again."""
    first, count = -1, 0
    for gpu in range(len(moment.set)):
        own = gpus.held[gpu] == row
        idle = sets.size[moment.set[gpu]] == 0 and moment.queued[gpu] == own
        if own:
            gpus.held[gpu] = -1
            moment.queued[gpu] = 0
        if gpus.kind[gpu] != kind or not idle or count == waiting.gpus[row]:
            continue
        first = gpu if count == 0 else first
        count += 1
        moment.set[gpu] = sets.joined[kind, waiting.workload[row, 0]]
        moment.left[gpu, 0] = waiting.iterations[row, 0]
        moment.free_mib[gpu] -= waiting.need_mib[row, 0]
        moment.cost_j[gpu], moment.end_s[gpu] = alone[0], alone[1]
        moment.gang[gpu], moment.started[gpu] = True, at
    return first


@compiled
def queue_gang(
    row: int,
    kind: int,
    start_s: float,
    hold: bool,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    alone_s: float,
) -> None:
    """Queue a gang behind the GPUs of a type that it would get first, until it has run there; it may hold them."""
    wait_s = np.empty(len(moment.set))
    gang_waits(row, kind, sets, gpus, moment, wait_s)
    width = waiting.gpus[row]
    last_s = np.partition(wait_s, width - 1)[width - 1]
    ties = width - np.sum(wait_s < last_s)
    for gpu in range(len(wait_s)):
        if wait_s[gpu] > last_s or (wait_s[gpu] == last_s and ties == 0):
            continue
        ties -= wait_s[gpu] == last_s
        moment.queued[gpu] += 1
        moment.queued_s[gpu] = start_s + alone_s - moment.end_s[gpu]
        if hold:
            gpus.held[gpu] = row


@compiled
def place_gang(
    at: int,
    row: int,
    hold: bool,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    rules: Rules,
    costs: FloatArray,
) -> int:
    """Place a gang: start it and return the first of its GPUs, or queue it, or keep what it holds, and return `WAITS`.

    With `hold`, one that has aged and does not start now holds the GPUs that it waits for until it starts.
    """
    kind, start_s, starts = gang_choice(row, waiting, sets, gpus, moment, rules, costs)
    if kind < 0:
        return WAITS
    if starts:
        return start_gang(at, row, kind, waiting, sets, gpus, moment, costs[kind])
    end_s = -1.0
    for gpu in range(len(moment.set)):
        if gpus.held[gpu] == row:
            kind = gpus.kind[gpu]
            end_s = max(end_s, moment.end_s[gpu])
    if end_s < 0.0:
        queue_gang(row, kind, start_s, hold and waiting.aged[row], waiting, sets, gpus, moment, costs[kind, 1])
        return WAITS
    for gpu in range(len(moment.set)):
        if gpus.held[gpu] == row:
            moment.queued_s[gpu] = end_s + costs[kind, 1] - moment.end_s[gpu]
    return WAITS


@compiled
def aged_without_gpus(row: int, chosen: int, waiting: WaitingArrays, gpus: GpuArrays) -> bool:
    """Return whether a task is a gang that has aged, has not been started and holds no GPUs."""
    return bool(waiting.aged[row] and chosen == WAITS and not np.any(gpus.held == row))


@compiled
def place_tasks(
    first: int,
    rows: IntArray,
    waiting: WaitingArrays,
    sets: SetArrays,
    gpus: GpuArrays,
    moment: Moment,
    rules: Rules,
    missing: Missing,
    chosen: IntArray,
) -> int:
    """Place waiting tasks from a place in their order on; return the place of the first that lacks predictions.

    `chosen`, shape (n, 2), gets the GPU of each task, `WAITS` or `UNKNOWN`, and which size it has there.
    """
    costs, work = np.empty((len(rules.room), 2)), np.empty(moment.left.shape[1])
    hold, idle = True, np.zeros(len(rules.room), dtype=np.int64)
    for at in range(len(rows)):
        row = rows[at]
        # Those behind one that has aged and can hold no GPUs yet must not take them.
        hold = hold and not (at and aged_without_gpus(rows[at - 1], chosen[at - 1, 0], waiting, gpus))
        if at < first:
            continue
        if waiting.gpus[row] == 1:
            chosen[at, 0], chosen[at, 1] = place_task(
                row, waiting, sets, gpus, moment, rules, missing, costs, work, idle
            )
            if chosen[at, 0] == UNKNOWN:
                return at
            continue
        if not alone_costs(sets, waiting.workload[row, 0], waiting.iterations[row, 0], costs, missing, work):
            return at
        chosen[at, 0], chosen[at, 1] = place_gang(at, row, hold, waiting, sets, gpus, moment, rules, costs), 0
        # It may have changed many GPUs, and released some.
        list_open(sets, gpus, moment)
        idle[:] = 0
    return len(rows)
