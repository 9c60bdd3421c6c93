"""Brute force for the tests of HeShare+, exact fronts and bounds: every cut, option and assignment; numpy forms."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchChoices, BatchTable
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY, Batches, BatchModel
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.plan import Plan
from heshare.shared.arrays import FloatArray
from heshare.world.cluster import Cluster

SMALL = BatchChoices(width=3, mps_variants=2, clocks=5, mps_pcts=(50, 100))


def table_of(n: int, cluster: str, choices: BatchChoices = SMALL, seed: int = 0) -> BatchTable:
    """Table of a small instance by the toy predictor; `seed` shifts which tasks are drawn."""
    tasks = mixed_tasks(n + seed)[seed:]
    renumbered = tuple(type(task)(number, task.workload, task.iterations) for number, task in enumerate(tasks))
    predictor = Toy(demand=DEMANDS)
    return BatchTable(make_instance(renumbered, Cluster.parse(cluster), predictor), predictor, choices)


def lowest(points: FloatArray) -> FloatArray:
    """The points that no other dominates, sorted by energy; the test's own form of `non_dominated_indices`."""
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))]
    kept: list[FloatArray] = []
    for point in ordered:
        if not kept or point[1] < kept[-1][1] * (1 - 1e-10):
            kept.append(point)
    return np.array(kept)


def every_queue(table: BatchTable, kind: int, tasks: tuple[int, ...]) -> FloatArray:
    """[J, sum of JCTs in s] of all ways to batch and configure a queue, shape (m, 2): every cut, no dynamic program."""
    queue = sorted(tasks, key=lambda task: table.rank[kind, task])
    points = [] if queue else [np.zeros((1, 2))]
    for cuts in product((False, True), repeat=max(len(queue) - 1, 0)) if queue else ():
        marks = [0, *(position + 1 for position, cut in enumerate(cuts) if cut), len(queue)]
        parts = [queue[first:last] for first, last in pairwise(marks)]
        if max(map(len, parts)) > table.width:
            continue
        sets = np.full((len(parts), table.width), EMPTY)
        for row, part in enumerate(parts):
            sets[row, : len(part)] = part
        options = table.options(kind, sets)
        total, behind = np.zeros((1, 2)), len(queue)
        for row, part in enumerate(parts):
            behind -= len(part)
            own = slice(options.begin[row], options.begin[row + 1])
            adds = options.values[own, :2] + behind * options.values[own, 2:] * [0.0, 1.0]
            total = (total[:, None] + adds[None]).reshape(-1, 2)
        points.append(total)
    return np.concatenate(points) if points else np.zeros((0, 2))


def every_plan(table: BatchTable) -> FloatArray:
    """The front of all assignments with all batchings and options, [J, sum of JCTs in s]."""
    n, kinds = table.instance.n, table.instance.kind_of.tolist()

    @cache
    def queue(kind: int, tasks: tuple[int, ...]) -> FloatArray:
        points = every_queue(table, kind, tasks)
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
