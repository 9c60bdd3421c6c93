"""Brute force for the tests of HeShare+, exact fronts and bounds: every cut, option and assignment; numpy forms."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_execution import TIED
from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.search_settings import BatchChoices
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY, Batches, BatchModel
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.plan import Plan
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.cluster import Cluster

SMALL = BatchChoices(width=3, mps_variants=2, clocks=5, mps_pcts=(50, 100))


def costs_of(n: int, cluster: str, choices: BatchChoices = SMALL, seed: int = 0) -> BatchCosts:
    """Costs of a small instance by the toy predictor; `seed` shifts which tasks are drawn."""
    tasks = mixed_tasks(n + seed)[seed:]
    renumbered = tuple(type(task)(number, task.workload, task.iterations) for number, task in enumerate(tasks))
    predictor = Toy(demand=DEMANDS)
    return BatchCosts(make_instance(renumbered, Cluster.parse(cluster), predictor), predictor, choices)


def lowest(points: FloatArray) -> FloatArray:
    """The points that no other dominates, sorted by energy; the test's own form of `non_dominated_indices`."""
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))]
    kept: list[FloatArray] = []
    for point in ordered:
        if not kept or point[1] < kept[-1][1] * (1 - 1e-10):
            kept.append(point)
    return np.array(kept)


def every_queue(costs: BatchCosts, kind: int, tasks: tuple[int, ...]) -> FloatArray:
    """[J, sum of JCTs in s] of all ways to batch and configure a queue, shape (m, 2): every cut, no dynamic program."""
    queue = sorted(tasks, key=lambda task: costs.rank[kind, task])
    points = [] if queue else [np.zeros((1, 2))]
    for cuts in product((False, True), repeat=max(len(queue) - 1, 0)) if queue else ():
        marks = [0, *(position + 1 for position, cut in enumerate(cuts) if cut), len(queue)]
        parts = [queue[first:last] for first, last in pairwise(marks)]
        if max(map(len, parts)) > costs.choices.width:
            continue
        sets = np.full((len(parts), costs.choices.width), EMPTY)
        for row, part in enumerate(parts):
            sets[row, : len(part)] = part
        options = costs.options(kind, sets)
        total, behind = np.zeros((1, 2)), len(queue)
        for row, part in enumerate(parts):
            behind -= len(part)
            own = slice(options.begin[row], options.begin[row + 1])
            adds = options.values[own, :2] + behind * options.values[own, 2:] * [0.0, 1.0]
            total = (total[:, None] + adds[None]).reshape(-1, 2)
        points.append(total)
    return np.concatenate(points) if points else np.zeros((0, 2))


def every_plan(costs: BatchCosts) -> FloatArray:
    """The front of all assignments with all batchings and options, [J, sum of JCTs in s]."""
    n, kinds = costs.world.n, costs.world.kind_of.tolist()

    @cache
    def queue(kind: int, tasks: tuple[int, ...]) -> FloatArray:
        points = every_queue(costs, kind, tasks)
        return lowest(points) if len(points) else points

    points = [np.zeros((0, 2))]
    for scheme in product(range(len(kinds)), repeat=n):
        total = np.zeros((1, 2))
        for gpu, kind in enumerate(kinds):
            own = queue(kind, tuple(task for task in range(n) if scheme[task] == gpu))
            total = (total[:, None] + own[None]).reshape(-1, 2)
        points.append(total)
    return lowest(np.concatenate(points))


def executed(plan: Plan, world: Instance, predictor: Predictor) -> tuple[float, float]:
    """Energy, J, and average JCT, s, of a plan's batches run one after the other by `BatchModel`, without options."""
    model = BatchModel(world, predictor)
    index = {task.id: number for number, task in enumerate(plan.tasks)}
    energy_j = jct_s = 0.0
    for kind, queue in zip(world.kind_of.tolist(), plan.queues, strict=True):
        behind = sum(len(batch.tasks) for batch in queue)
        for batch in queue:
            behind -= len(batch.tasks)
            tasks = np.array([[index[task] for task in batch.tasks]])
            clock = np.array([batch.sm_mhz or 0])
            run = model.execute(Batches(np.array([kind]), tasks, np.array([batch.mps_pct]), clock), piecewise=True)
            energy_j += run.energy_j[0]
            jct_s += run.jct_s(np.array([behind]))[0]
    return energy_j, jct_s / world.n


def run_states(time_s: FloatArray, power_w: FloatArray, states: IntArray, iterations: FloatArray) -> FloatArray:
    """Run r batches through the states that they pass as their tasks end: the numpy form of `run_batches`.

    Args:
        time_s: seconds per iteration of the residents of each state, s, shape (states, w).
        power_w: power of each state, W, shape (states,).
        states: the state of every subset of each batch's members (bit i: member i runs), shape (r, 2**s).
        iterations: work of each member, above zero, shape (r, s).

    Returns:
        E_B in J, the sum of the members' execution times in s, and tau_B in s, shape (r, 3).
    """
    rows, size = iterations.shape
    remaining, running = iterations.copy(), np.full(rows, 2**size - 1)
    energy_j, sum_s, end_s = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    while (active := np.flatnonzero(running)).size:
        present = running[active, None] >> np.arange(size) & 1
        state = states[active, running[active]]
        # Times of a state are listed for its residents only: the place of a member among those that still run.
        place = np.maximum(np.cumsum(present, axis=1) - 1, 0)
        iteration_s = time_s[state[:, None], place]
        need_s = np.where(present == 1, remaining[active] * iteration_s, np.inf)
        step_s = need_s.min(axis=1)
        energy_j[active] += power_w[state] * step_s
        end_s[active] += step_s
        ended = need_s <= step_s[:, None] * TIED
        # Member by member, as in the compiled form: another order of additions would give other last bits.
        for member in range(size):
            sum_s[active] += np.where(ended[:, member], end_s[active], 0.0)
        after = remaining[active] - step_s[:, None] / iteration_s
        remaining[active] = np.where((present == 1) & ~ended, after, remaining[active])
        running[active] &= ~(ended << np.arange(size)).sum(axis=1)
    return np.stack((energy_j, sum_s, end_s), axis=1)
