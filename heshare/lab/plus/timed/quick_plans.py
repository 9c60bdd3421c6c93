"""First plans of a task set in milliseconds: every task alone in its batch, assigned by marginal costs.

For a weight w (J / s), a task that begins a queue of m others adds, at clock c of that type of GPU,

    p_c t_c + w (m + 1) t_c + w r

to the cost E + w T, with its time t_c, the power p_c and the begin r of the GPU: it delays m tasks and itself. Tasks
are assigned longest first, each to the GPU and clock where it adds least. On one type of GPU at one clock this is the
optimal schedule for the sum of completion times (Conway, Maxwell and Miller 1967); otherwise it is a heuristic, whose
work grows with n k. Then every queue is put into SPT order, and each clock is chosen again for its place. A plan is two
numbers for each task, so that fronts of many such plans need little memory.

Example: tasks with 2 and 5 iterations of 1 s at 110 W at the higher of two clocks. Energy counts little at this weight,
so they use both GPUs.

>>> from heshare.lab.plus.costs import BatchCosts
>>> from heshare.testing.toy import toy_instance
>>> costs = BatchCosts(*toy_instance([2.0, 5.0], gpus=2))
>>> plans = quick_plans(costs, np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64), np.array([1e3]))
>>> sorted(plans.gpu_of[0].tolist()), plans.points[0].round(6).tolist()
([0, 1], [[770.0, 7.0]])

Source: longest tasks first for the sum of completion times on parallel machines: Conway, Maxwell and Miller 1967,
Theory of Scheduling.
"""

from typing import NamedTuple

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.local_search import NO_GPU
from heshare.scheduling.plan import Batch
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled


class QuickPlans(NamedTuple):
    """Plans for W weights in which every task is alone in its batch.

    Attributes:
        gpu_of: GPU of each task, shape (W, n).
        clock_of: index of each task's clock in `Rates.clocks_mhz` of its GPU's type, shape (W, n).
        points: energy in J and sum of JCTs in s of each block of GPUs, shape (W, blocks, 2).
    """

    gpu_of: IntArray
    clock_of: IntArray
    points: FloatArray


def quick_plans(costs: BatchCosts, block_of_gpu: IntArray, block_of_task: IntArray, weights: FloatArray) -> QuickPlans:
    """Return a plan for each weight; tasks stay in their block of GPUs.

    Args:
        costs: the options of batches; those of single tasks are predicted, whatever the deadline.
        block_of_gpu: block of each GPU, shape (k,).
        block_of_task: block of each task, which must fit one of its GPUs, shape (n,).
        weights: weights of the sum of JCTs against energy, J / s, shape (W,).
    """
    world, kinds = costs.world, len(costs.rates)
    alone_s, alone_w = _alone(costs)
    # GPUs by block and then by type, so that equal GPUs of a block are neighbours.
    order = np.lexsort((world.kind_of, block_of_gpu))
    blocks = int(block_of_gpu.max()) + 1
    first = np.searchsorted(block_of_gpu[order], np.arange(blocks + 1))
    longest = np.argsort(-costs.time_s.min(axis=1), kind="stable")
    gpu_of = np.full((len(weights), world.n), NO_GPU)
    clock_of, points = np.zeros_like(gpu_of), np.zeros((len(weights), blocks, 2))
    for row, weight in enumerate(weights.tolist()):
        of_workload = costs.workload
        _assign(
            gpu_of[row], longest, order, first, block_of_task, world.kind_of, costs.fits, of_workload, costs.iterations,
            alone_s, alone_w, world.begin_s, weight,
        )  # fmt: skip
        for kind in range(kinds):
            _choose_clocks(
                gpu_of[row], clock_of[row], points[row], costs.order[kind], kind, block_of_gpu, world.kind_of,
                of_workload, costs.iterations, alone_s[kind], alone_w[kind], world.begin_s, weight,
            )  # fmt: skip
    return QuickPlans(gpu_of, clock_of, points)


def quick_queues(
    plans: QuickPlans, row: int, costs: BatchCosts, tasks: IntArray, gpus: IntArray
) -> list[tuple[Batch, ...]]:
    """Return the queues of some GPUs, which have all of some tasks, in one plan."""
    world, result = costs.world, []
    for gpu in gpus.tolist():
        kind = int(world.kind_of[gpu])
        of_gpu = tasks[plans.gpu_of[row, tasks] == gpu]
        queue = of_gpu[np.argsort(costs.rank[kind, of_gpu])]
        mhz = costs.rates[kind].clocks_mhz[plans.clock_of[row, queue]]
        pairs = zip(queue.tolist(), mhz.tolist(), strict=True)
        result.append(tuple([Batch((world.tasks[task].id,), (100,), clock) for task, clock in pairs]))
    return result


def _alone(costs: BatchCosts) -> tuple[FloatArray, FloatArray]:
    """Return time (s) and power (W) of an iteration of each workload alone, each (kinds, workloads, clocks).

    A type of GPU with fewer clocks repeats its top one.
    """
    used = np.unique(costs.workload)[:, None]
    clocks = max(len(rates.clocks_mhz) for rates in costs.rates)
    workloads = len(costs.rates[0].workloads)
    alone_s, alone_w = np.ones((len(costs.rates), workloads, clocks)), np.zeros((len(costs.rates), workloads, clocks))
    for kind, rates in enumerate(costs.rates):
        rates.fill(used)
        state = rates.tables.states[rates.tables.variant_begin[rates.number(used)], 1]
        place = np.minimum(np.arange(clocks), len(rates.clocks_mhz) - 1)
        alone_s[kind, used[:, 0]] = rates.tables.time_s[state][:, place, 0]
        alone_w[kind, used[:, 0]] = rates.tables.power_w[state][:, place]
    return alone_s, alone_w


@compiled
def _assign(
    gpu_of: IntArray,
    longest: IntArray,
    order: IntArray,
    first: IntArray,
    block_of_task: IntArray,
    kind_of: IntArray,
    fits: BoolArray,
    workload: IntArray,
    iterations: FloatArray,
    alone_s: FloatArray,
    alone_w: FloatArray,
    begin_s: FloatArray,
    weight: float,
) -> None:
    """Set the GPU of each task, longest first; the GPUs of block b are `order[first[b]:first[b + 1]]`."""
    lengths = np.zeros(len(kind_of), dtype=np.int64)
    for task in longest:
        block, least, target = block_of_task[task], np.inf, NO_GPU
        kind_before, shortest = -1, 0
        for place in range(first[block], first[block + 1]):
            gpu = order[place]
            kind = kind_of[gpu]
            if not fits[task, kind]:
                continue
            # Of GPUs of a type that begin at once, only one with the fewest tasks can be the best.
            if kind == kind_before and begin_s[gpu] == 0 and lengths[gpu] >= shortest:
                continue
            if begin_s[gpu] == 0:
                kind_before, shortest = kind, lengths[gpu]
            for clock in range(alone_s.shape[2]):
                time_s = iterations[task] * alone_s[kind, workload[task], clock]
                delay_s = (lengths[gpu] + 1) * time_s + begin_s[gpu]
                cost = alone_w[kind, workload[task], clock] * time_s + weight * delay_s
                if cost < least:
                    least, target = cost, gpu
        gpu_of[task] = target
        lengths[target] += 1


@compiled
def _choose_clocks(
    gpu_of: IntArray,
    clock_of: IntArray,
    points: FloatArray,
    order: IntArray,
    kind: int,
    block_of_gpu: IntArray,
    kind_of: IntArray,
    workload: IntArray,
    iterations: FloatArray,
    alone_s: FloatArray,
    alone_w: FloatArray,
    begin_s: FloatArray,
    weight: float,
) -> None:
    """Set the clock of each task on one type of GPU, from the ends of its queues; add up the objectives by block."""
    lengths = np.zeros(len(kind_of), dtype=np.int64)
    for place in range(len(order) - 1, -1, -1):
        task = order[place]
        gpu = gpu_of[task]
        if kind_of[gpu] != kind:
            continue
        least, energy_j, own_s = np.inf, 0.0, 0.0
        for clock in range(alone_s.shape[1]):
            time_s = iterations[task] * alone_s[workload[task], clock]
            used_j = alone_w[workload[task], clock] * time_s
            cost = used_j + weight * (lengths[gpu] + 1) * time_s
            if cost < least:
                least, energy_j, own_s = cost, used_j, time_s
                clock_of[task] = clock
        points[block_of_gpu[gpu], 0] += energy_j
        points[block_of_gpu[gpu], 1] += (lengths[gpu] + 1) * own_s + begin_s[gpu]
        lengths[gpu] += 1
