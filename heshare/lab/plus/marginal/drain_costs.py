"""Cost and time until the tasks of a GPU have ended, for one GPU or many at once, in compiled code.

Example: two tasks on the toy GPU, of sets that `SetTables` numbers.

>>> import numpy as np
>>> from heshare.lab.plus.marginal.set_predictions import SetPredictions
>>> from heshare.lab.plus.marginal.set_tables import SetTables
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> from heshare.world.workload import Workload
>>> tables = SetTables(SetPredictions(ToyPredictor(), clocks=2, price_w=10.0), (toy_gpu(),), most=2)
>>> both = tables.number(0, (Workload("mobilenet", 4), Workload("resnet18", 4)))
>>> drain(tables.arrays, both, np.array([2.0, 5.0]))
(810.0, 7.0)
"""

from typing import NamedTuple

import numpy as np

from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import allocation_free

_TIED = 1 + 1e-9
"""Ends that differ by rounding alone are one: otherwise a step of almost no length would follow."""


class SetArrays(NamedTuple):
    """Facts about s numbered sets of at most m of v numbered workloads; set k is the empty one of the k-th GPU type.

    Attributes:
        size: number of members, shape (s,).
        time_s: seconds per iteration of each member at the cheapest clock without queued tasks, shape (s, m).
        rate_w: cost per second at that clock: power above idle and the price of each member's time, W, shape (s,).
        without: the set that remains when a member ends, shape (s, m).
        member: the workload of each member, ascending in the order of workloads (not of their numbers), shape (s, m).
        joined: the set with one more workload, -1 if it has not been predicted, shape (s, v).
        place: the first place of that workload in the joined set, shape (s, v).
        bound: coefficients of the lower bound on what joining costs, see `SetTables`, shape (s, v, 5).
        above_w: power above idle at each of c clocks, W, shape (s, c).
        relative_time: time relative to that at the top clock, shape (s, c).
        clock: index of the cheapest clock without queued tasks, shape (s,).
    """

    size: IntArray
    time_s: FloatArray
    rate_w: FloatArray
    without: IntArray
    member: IntArray
    joined: IntArray
    place: IntArray
    bound: FloatArray
    above_w: FloatArray
    relative_time: FloatArray
    clock: IntArray


class GpuArrays(NamedTuple):
    """The GPUs as the last event left them, by index.

    Attributes:
        kind: type of GPU.
        set: what runs there.
        row: the row of `Paces` of each member, shape (g, m).
        free_mib: free memory, MiB.
        sm_mhz: requested clock, MHz; -1 for the default.
        gang: whether a gang runs there.
        held: the row of the waiting gang that holds it, or -1.
        block: the block of the GPU, up to 32 GPUs of one type.
        members: the GPUs of each block, ascending, -1 behind the last, shape (blocks, 32).
    """

    kind: IntArray
    set: IntArray
    row: IntArray
    free_mib: FloatArray
    sm_mhz: IntArray
    gang: BoolArray
    held: IntArray
    block: IntArray
    members: IntArray


class Paces(NamedTuple):
    """Progress of running tasks; see `heshare.policies.policy.Pace`. All have the shape (rows,)."""

    left: FloatArray
    done: FloatArray
    read_s: FloatArray
    time_s: FloatArray


class Moment(NamedTuple):
    """The GPUs while an event is processed, by index.

    Attributes:
        set: what runs there, with what has been started at this event.
        left: iterations left of each member, shape (g, m).
        free_mib: free memory, MiB.
        cost_j: cost until everything that runs has ended, J.
        end_s: when it has ended, s from now.
        first_s: when the first member ends, s from now.
        last_s: the longest time that a member would take at its present pace, s.
        queued: number of tasks that wait for this GPU.
        queued_s: by how much they delay the tasks behind them, s.
        gang: whether a gang runs there.
        started: the place in the order of the gang that has been started there at this event, or -1.
        ahead_s: end_s + queued_s, infinite where nothing runs and nothing is queued, s.
        least_s: the least `ahead_s` of each block, s, shape (blocks,).
        open: GPUs that run something and may take more, in any order, among some that no longer may.
        total: the number of them, shape (1,).
    """

    set: IntArray
    left: FloatArray
    free_mib: FloatArray
    cost_j: FloatArray
    end_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray
    queued: IntArray
    queued_s: FloatArray
    gang: BoolArray
    started: IntArray
    ahead_s: FloatArray
    least_s: FloatArray
    open: IntArray
    total: IntArray


def new_moment(gpus: int, most: int, blocks: int = 1) -> Moment:
    """Return the arrays of a moment for so many GPUs, members and blocks of GPUs."""
    whole, number = np.zeros(gpus, dtype=np.int64), np.zeros(gpus)
    return Moment(
        set=whole.copy(),
        left=np.zeros((gpus, most)),
        free_mib=number.copy(),
        cost_j=number.copy(),
        end_s=number.copy(),
        first_s=number.copy(),
        last_s=number.copy(),
        queued=whole.copy(),
        queued_s=number.copy(),
        gang=np.zeros(gpus, dtype=np.bool_),
        started=np.full(gpus, -1),
        ahead_s=np.full(gpus, np.inf),
        least_s=np.full(blocks, np.inf),
        open=whole.copy(),
        total=np.zeros(1, dtype=np.int64),
    )


@allocation_free
def drain(sets: SetArrays, number: int, left: FloatArray) -> tuple[float, float]:
    """Return the cost, J, and the time, s, until every task has ended, with no further start.

    Args:
        sets: the tables.
        number: the set that runs.
        left: iterations left of each member, by (workload, iterations); overwritten, shape (m,).
    """
    cost_j, now_s = 0.0, 0.0
    size = sets.size[number]
    while size:
        time_s = sets.time_s[number]
        step_s = left[0] * time_s[0]
        for i in range(1, size):
            step_s = min(step_s, left[i] * time_s[i])
        cost_j += step_s * sets.rate_w[number]
        now_s += step_s
        if size == 1:
            break
        tied_s, kept, after = step_s * _TIED, 0, number
        for i in range(size):
            if left[i] * time_s[i] > tied_s:
                left[kept] = left[i] - step_s / time_s[i]
                kept += 1
            else:
                # The members before this one that stay are `kept` in number, so that is its place in what remains.
                after = sets.without[after, kept]
        number, size = after, kept
    return cost_j, now_s


@allocation_free
def set_times(sets: SetArrays, gpu: int, left: FloatArray, moment: Moment) -> None:
    """Set when the first member on a GPU ends, and the longest time of one; 0 for the empty set."""
    number, first_s, last_s = moment.set[gpu], 0.0, 0.0
    for i in range(sets.size[number]):
        own_s = left[i] * sets.time_s[number, i]
        first_s = own_s if i == 0 else min(first_s, own_s)
        last_s = max(last_s, own_s)
    moment.first_s[gpu], moment.last_s[gpu] = first_s, last_s


@allocation_free
def set_ahead(sets: SetArrays, gpus: GpuArrays, moment: Moment, gpu: int) -> None:
    """Set how long a task would wait behind a GPU, and the least of its block."""
    busy = sets.size[moment.set[gpu]] or moment.queued[gpu]
    moment.ahead_s[gpu] = moment.end_s[gpu] + moment.queued_s[gpu] if busy else np.inf
    least_s = np.inf
    block = gpus.block[gpu]
    for place in range(gpus.members.shape[1]):
        member = gpus.members[block, place]
        if member >= 0:
            least_s = min(least_s, moment.ahead_s[member])
    moment.least_s[block] = least_s


@allocation_free
def list_open(sets: SetArrays, gpus: GpuArrays, moment: Moment) -> None:
    """Fill in what is kept of all GPUs together: those that are open, and how long each block has tasks."""
    moment.total[0] = 0
    for block in range(len(moment.least_s)):
        moment.least_s[block] = np.inf
    for gpu in range(len(gpus.set)):
        running = sets.size[moment.set[gpu]] > 0
        queued, block = moment.queued[gpu], gpus.block[gpu]
        moment.ahead_s[gpu] = moment.end_s[gpu] + moment.queued_s[gpu] if running or queued else np.inf
        moment.least_s[block] = min(moment.least_s[block], moment.ahead_s[gpu])
        if running and not queued and not moment.gang[gpu]:
            moment.open[moment.total[0]] = gpu
            moment.total[0] += 1


@allocation_free
def begin_moment(
    now_s: float, sets: SetArrays, gpus: GpuArrays, progress: Paces, moment: Moment, costs: bool, work: FloatArray
) -> None:
    """Fill in a moment before any start; without `costs`, only what clocks need; `work` is scratch, (m,)."""
    for gpu in range(len(gpus.set)):
        number = gpus.set[gpu]
        moment.set[gpu], moment.free_mib[gpu], moment.gang[gpu] = number, gpus.free_mib[gpu], gpus.gang[gpu]
        moment.queued[gpu] = 1 if gpus.held[gpu] >= 0 else 0
        moment.queued_s[gpu], moment.started[gpu] = 0.0, -1
        size = sets.size[number]
        if size == 0 or not costs:
            moment.cost_j[gpu] = moment.end_s[gpu] = moment.first_s[gpu] = moment.last_s[gpu] = 0.0
            continue
        left = moment.left[gpu]
        for i in range(size):
            row = gpus.row[gpu, i]
            done = progress.done[row] + (now_s - progress.read_s[row]) / progress.time_s[row]
            here = max(progress.left[row] - done, 0.0)
            # Members of one workload are in the order of the iterations left, as a sorted list of both has them.
            place = i
            while place and sets.member[number, place - 1] == sets.member[number, i] and left[place - 1] > here:
                left[place] = left[place - 1]
                place -= 1
            left[place] = here
        for i in range(size):
            work[i] = left[i]
        set_times(sets, gpu, work, moment)
        moment.cost_j[gpu], moment.end_s[gpu] = drain(sets, number, work)
    if costs:
        list_open(sets, gpus, moment)


@allocation_free
def cheapest_clock(sets: SetArrays, number: int, queued: int, price_w: float) -> int:
    """Return the index of the cheapest clock of a set with so many tasks queued behind it."""
    if queued == 0:
        return int(sets.clock[number])
    best, best_cost = 0, np.inf
    for clock in range(sets.above_w.shape[1]):
        rate_w = sets.above_w[number, clock] + price_w * (sets.size[number] + queued)
        cost = rate_w * sets.relative_time[number, clock]
        if cost < best_cost:
            best, best_cost = clock, cost
    return best


@allocation_free
def changed_clocks(
    sets: SetArrays, gpus: GpuArrays, moment: Moment, grids_mhz: IntArray, price_w: float, changed: IntArray
) -> int:
    """List the GPUs whose clock is to change, and the clocks, in `changed`, shape (g, 2); return their number.

    The GPUs of a gang keep one clock, so that none slows the others down: what is queued behind them changes nothing.
    """
    count = 0
    for gpu in range(len(gpus.set)):
        number = moment.set[gpu]
        if sets.size[number]:
            queued = 0 if moment.gang[gpu] else moment.queued[gpu]
            sm_mhz = grids_mhz[gpus.kind[gpu], cheapest_clock(sets, number, queued, price_w)]
            if sm_mhz != gpus.sm_mhz[gpu]:
                changed[count, 0], changed[count, 1] = gpu, sm_mhz
                count += 1
    return count
