"""The improved search within a time: a first front at once, then searches block by block until the deadline.

    wall time = first plans + searches + sum of the blocks' fronts <= budget

First plans (`quick_plans`) take milliseconds and give every block of GPUs a front. Then, stage by stage, each block
gets the constructions of a few weights, the coarse round, and further rounds of `WeightedSearch`; blocks that the
deadline leaves without them keep what they have. The time to add up the fronts of the blocks is measured once, first,
and kept free at the end. Predictor tables are filled for what the search asks for, the most frequent sets first, in a
share of the time that is left (`heshare.lab.plus.costs.FILL_SHARE`); a set without prediction is no batch. Plans are
built when they are looked at.

A small task set, or a small cluster, is one block.

Example: the two tasks of the example in `heshare.lab.plus.timed.quick_plans`, with no time left for more than first
plans.

>>> from heshare.lab.plus.search_settings import DEFAULT_SETTINGS
>>> from heshare.testing.toy import toy_instance
>>> costs, block = BatchCosts(*toy_instance([2.0, 5.0], gpus=2)), np.zeros(2, dtype=np.int64)
>>> search = TimedSearch(costs, DEFAULT_SETTINGS, np.random.default_rng(0), block, block, until_s=perf_counter())
>>> search.run()
>>> search.front().objectives.round(6).tolist()
[[770.0, 3.5]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from time import perf_counter

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.fronts import FrontArchive, sum_fronts, thinned_front
from heshare.lab.plus.search_settings import SearchSettings
from heshare.lab.plus.timed.deadline import Cancel, Deadline
from heshare.lab.plus.timed.plans_on_demand import PlansOnDemand
from heshare.lab.plus.timed.quick_plans import QuickPlans, quick_plans, quick_queues
from heshare.lab.plus.weighted_search import Progress, WeightedSearch
from heshare.scheduling.pareto import Front, non_dominated, thin
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.arrays import FloatArray, IntArray

QUICK_WEIGHTS = 13
"""Weights of the first plans, over six decades."""
_LABELS, _SUM_POINTS = 16, 48
"""Limits of `SearchSettings` of the same names for task sets that are too large to be searched as a whole."""
_SUMS, _RELEASE_S = 3.0, 3e-4
"""What is kept free at the end: so often the time of the first sum of fronts, and so long for each block, s."""


class TimedBlock:
    """One block of GPUs: its part of the first plans, and its search once there is time for it.

    Args:
        costs: the options of batches, of the whole task set on the whole cluster.
        tasks: the block's tasks, ascending, shape (n,).
        gpus: the block's GPUs, ascending, shape (k,).
        quick: the first plans.
        block: the block's number in them.
    """

    def __init__(self, costs: BatchCosts, tasks: IntArray, gpus: IntArray, quick: QuickPlans, block: int) -> None:
        self.tasks, self.gpus = tasks, gpus
        self._costs, self._quick, self._quick_points = costs, quick, quick.points[:, block]
        self._archive: FrontArchive | None = None
        self._search: WeightedSearch | None = None

    def advance(
        self, stage: int, settings: SearchSettings, rng: np.random.Generator, seeds: Sequence[IntArray]
    ) -> None:
        """Do one stage: constructions, then the rounds of the search from 0 on."""
        if self._search is None:
            whole = len(self.tasks) == self._costs.world.n
            costs = self._costs if whole else self._costs.part(self.tasks, self.gpus)
            self._search = WeightedSearch(costs, settings, rng, seeds)
            self._archive = self._search.archive
        if stage:
            self._search.advance(stage - 1, self._costs.deadline)
        else:
            self._search.begin(self._costs.deadline)
        if len(self.tasks) < self._costs.world.n:
            # One table for all blocks at a time: 100 of them would take gigabytes.
            self._search.release_table()

    def front(self, limit: int | None = None) -> tuple[FloatArray, IntArray]:
        """Return the front so far, by energy, shape (m, 2), about `limit` points of it, and their places."""
        points = self._quick_points
        if self._archive is not None:
            points = np.concatenate((self._archive.points, points))
        kept = thinned_front(points[:, 0].copy(), points[:, 1].copy(), limit or len(points))
        return points[kept], kept

    def release(self, places: IntArray) -> None:
        """End the search, and release what the points at these places do not need."""
        self._search = None
        if self._archive is not None:
            self._archive.release(places[places < len(self._archive.points)].tolist())

    def queues(self, place: int) -> Sequence[tuple[Batch, ...]]:
        """Return the batches of each of the block's GPUs at a point."""
        found = 0 if self._archive is None else len(self._archive.points)
        if self._archive is not None and place < found:
            return self._archive.queues(place)
        return quick_queues(self._quick, place - found, self._costs, self.tasks, self.gpus)


class TimedSearch:
    """The searches of all blocks of a cluster until a deadline; with its construction there is a front.

    Args:
        costs: the options of batches, of the whole task set on the whole cluster.
        settings: the limits of the search of every block.
        rng: the only source of chance, besides the clock.
        block_of_gpu: block of each GPU, shape (k,).
        block_of_task: block of each task, shape (n,).
        until_s: the moment of `perf_counter` at which the front has to be there, s.
        cancel: asked whether to stop earlier.
        seeds: assignments to begin with in addition, of a cluster of one block.
    """

    def __init__(
        self,
        costs: BatchCosts,
        settings: SearchSettings,
        rng: np.random.Generator,
        block_of_gpu: IntArray,
        block_of_task: IntArray,
        *,
        until_s: float,
        cancel: Cancel | None = None,
        seeds: Sequence[IntArray] = (),
    ) -> None:
        costs.deadline = Deadline(until_s, cancel)
        self._costs, self._rng, self._seeds = costs, rng, seeds
        labels, sum_points = settings.front_limits(costs.world.k)
        if costs.world.n > settings.undivided_tasks:
            labels, sum_points = min(labels, _LABELS), min(sum_points, _SUM_POINTS)
        self._settings = replace(settings, labels=labels, sum_points=sum_points)
        weights = costs.balanced_weight() * 10.0 ** np.linspace(-3, 3, QUICK_WEIGHTS)
        quick = quick_plans(costs, block_of_gpu, block_of_task, weights)
        tasks, gpus = _members(block_of_task), _members(block_of_gpu)
        self._blocks = [
            TimedBlock(costs, *pair, quick, block) for block, pair in enumerate(zip(tasks, gpus, strict=True))
        ]
        self._streams = [rng] if len(self._blocks) == 1 else rng.spawn(len(self._blocks))

    def run(self, progress: Progress | None = None) -> None:
        """Search stage by stage until the deadline.

        Args:
            progress: called with the first plans and after every stage; False stops the search.
        """
        start_s, deadline = perf_counter(), self._costs.deadline
        objectives, _ = self._sum()
        at_the_end_s = _SUMS * (perf_counter() - start_s) + _RELEASE_S * len(self._blocks)
        self._costs.deadline = deadline.sooner(at_the_end_s)
        for stage in count():
            if progress is not None and progress(stage + 1, objectives if stage == 0 else self._sum()[0]) is False:
                return
            for block, stream in zip(self._blocks, self._streams, strict=True):
                if self._costs.deadline.over():
                    return
                block.advance(stage, self._settings, stream, self._seeds)

    def front(self) -> Front:
        """End the search; return the front, thinned to at most `settings.front_plans` plans, built when looked at."""
        objectives, places = self._sum()
        kept = np.flatnonzero(non_dominated(objectives))
        kept = kept[thin(objectives[kept], self._settings.front_plans)]
        objectives, places = objectives[kept], places[kept]
        for block, of_block in zip(self._blocks, places.T, strict=True):
            block.release(np.unique(of_block))
        world = self._costs.world

        def plan(index: int) -> Plan:
            queues: list[tuple[Batch, ...]] = [()] * world.k
            for block, place in zip(self._blocks, places[index].tolist(), strict=True):
                for gpu, queue in zip(block.gpus.tolist(), block.queues(place), strict=True):
                    queues[gpu] = queue
            energy_j, jct_s = objectives[index].tolist()
            return Plan(world.cluster, world.tasks, tuple(queues), energy_j, jct_s)

        return Front(PlansOnDemand(len(objectives), plan), objectives)

    def _sum(self) -> tuple[FloatArray, IntArray]:
        """Return [energy in J, average JCT in s] of the front so far, and the place in each block, (m, blocks)."""
        per_task = np.array([1.0, self._costs.world.n])
        if len(self._blocks) == 1:
            points, places = self._blocks[0].front()
            return points / per_task, places[:, None]
        limit = self._settings.sum_points
        fronts = [block.front(limit) for block in self._blocks]
        points, chosen = sum_fronts([points for points, _ in fronts], limit)
        places = np.column_stack([places[chosen[:, block]] for block, (_, places) in enumerate(fronts)])
        return points / per_task, places


def _members(block_of: IntArray) -> list[IntArray]:
    """Return the indices in each block, ascending."""
    order = np.argsort(block_of, kind="stable")
    return np.split(order, np.searchsorted(block_of[order], np.arange(1, int(block_of.max()) + 1)))
