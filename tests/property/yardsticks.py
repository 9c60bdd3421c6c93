"""What the tests of exact fronts and bounds have in common: small instances, and plans added up by hand."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.costs import BatchCosts, Freedom
from heshare.scheduling.objectives import FloatArray, instance
from heshare.scheduling.plan import Plan
from heshare.scheduling.sharing import NOBODY, Batches, Sharing
from heshare.world.cluster import Cluster

SMALL = Freedom(width=3, variants=2, clocks=5, mps_pcts=(50, 100))


def costs_of(n: int, cluster: str, freedom: Freedom = SMALL, seed: int = 0) -> BatchCosts:
    """Menus of a small instance that a toy predictor answers for; `seed` shifts which tasks are drawn."""
    tasks = mixed_tasks(n + seed)[seed:]
    renumbered = tuple(type(one)(at, one.workload, one.iterations) for at, one in enumerate(tasks))
    predictor = Toy(demand=DEMANDS)
    return BatchCosts(instance(renumbered, Cluster.parse(cluster), predictor), predictor, freedom)


def lowest(points: FloatArray) -> FloatArray:
    """The points that no other dominates, by a double loop's definition, sorted by energy."""
    ahead = points[np.lexsort((points[:, 1], points[:, 0]))]
    kept: list[FloatArray] = []
    for point in ahead:
        if not kept or point[1] < kept[-1][1] * (1 - 1e-10):
            kept.append(point)
    return np.array(kept)


def every_queue(costs: BatchCosts, kind: int, tasks: tuple[int, ...]) -> FloatArray:
    """All ways to batch a queue, all options, shape (m, 2): no dynamic program, every cut tried."""
    queue = sorted(tasks, key=lambda task: costs.rank[kind, task])
    points = [] if queue else [np.zeros((1, 2))]
    for cuts in product((False, True), repeat=max(len(queue) - 1, 0)) if queue else ():
        marks = [0, *(at + 1 for at, cut in enumerate(cuts) if cut), len(queue)]
        parts = [queue[a:b] for a, b in pairwise(marks)]
        if max(map(len, parts)) > costs.freedom.width:
            continue
        sets = np.full((len(parts), costs.freedom.width), NOBODY)
        for row, part in enumerate(parts):
            sets[row, : len(part)] = part
        rows = costs.options(kind, sets)
        total, behind = np.zeros((1, 2)), len(queue)
        for row, part in enumerate(parts):
            behind -= len(part)
            own = slice(rows.begin[row], rows.begin[row + 1])
            adds = np.stack((rows.energy_j[own], rows.spent_s[own] + behind * rows.end_s[own]), axis=1)
            total = (total[:, None] + adds[None]).reshape(-1, 2)
        points.append(total)
    return np.concatenate(points) if points else np.zeros((0, 2))


def every_plan(costs: BatchCosts) -> FloatArray:
    """The front of all assignments with all batchings and options, [J, sum of JCTs in s]."""
    n, kinds = costs.world.n, costs.world.kind_of.tolist()

    @cache
    def queue(kind: int, tasks: tuple[int, ...]) -> FloatArray:
        found = every_queue(costs, kind, tasks)
        return lowest(found) if len(found) else found

    points = [np.zeros((0, 2))]
    for scheme in product(range(len(kinds)), repeat=n):
        total = np.zeros((1, 2))
        for gpu, kind in enumerate(kinds):
            own = queue(kind, tuple(task for task in range(n) if scheme[task] == gpu))
            total = (total[:, None] + own[None]).reshape(-1, 2)
        points.append(total)
    return lowest(np.concatenate(points))


def added_up(plan: Plan, costs: BatchCosts, predictor: Toy) -> tuple[float, float]:
    """Energy, J, and average JCT, s, of a plan by `Sharing`, which knows nothing of menus."""
    world, sharing = costs.world, Sharing(costs.world, predictor)
    energy_j = jct_s = 0.0
    for kind, queue in zip(world.kind_of.tolist(), plan.queues, strict=True):
        behind = sum(len(batch.tasks) for batch in queue)
        for batch in queue:
            behind -= len(batch.tasks)
            asked = Batches(
                np.array([kind]), np.array([batch.tasks]), np.array([batch.mps_pct]), np.array([batch.sm_mhz or 0])
            )
            run = sharing.execute(asked, piecewise=True)
            energy_j += run.energy_j[0]
            jct_s += run.jct_s(np.array([behind]))[0]
    return energy_j, jct_s / world.n
