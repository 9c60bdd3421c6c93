"""Large clusters in blocks: the tasks are dealt to blocks of about the same GPUs, whose fronts add up.

Both objectives are sums over GPUs, so the front of a cluster whose tasks are bound to blocks is the sum of the blocks'
fronts. Every block is as hard to search as a small cluster, so the work grows with the number of blocks and no faster.
What is given up is moving tasks between blocks; blocks of the same mix with tasks of the same mix have little to gain
from it.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from heshare.scheduling.assembly import Shared
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.departing import FloatArray, IntArray
from heshare.scheduling.effort import Effort
from heshare.scheduling.merging import merge
from heshare.scheduling.objectives import BoolArray
from heshare.scheduling.pareto import thin
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.searching import Progress, Search


class Divided:
    """The searches of all blocks of a cluster.

    Args:
        costs: what batches cost, of the whole task set on the whole cluster.
        effort: how hard to search every block.
        rng: the only source of chance; every block gets a stream of its own.
    """

    def __init__(self, costs: BatchCosts, effort: Effort, rng: np.random.Generator) -> None:
        self._world, self._effort = costs.world, effort
        kind = costs.world.kind_of
        block_of_gpu = gpu_blocks(kind, max(1, costs.world.k // effort.block))
        block_of_task = deal(costs.time_s, costs.fits, kind, block_of_gpu)
        labels, most = effort.limits(costs.world.k)
        inside = replace(effort, labels=labels, merge=most)
        self._gpus: list[IntArray] = []
        self._searches: list[Search] = []
        blocks = np.unique(block_of_task)
        for block, stream in zip(blocks.tolist(), rng.spawn(len(blocks)), strict=True):
            tasks, gpus = np.flatnonzero(block_of_task == block), np.flatnonzero(block_of_gpu == block)
            self._gpus.append(gpus)
            self._searches.append(Search(costs.part(tasks, gpus), inside, stream))

    def run(self, until_s: float | None = None, progress: Progress | None = None) -> None:
        """Search all blocks round by round, until the rounds are done or the time is up.

        Args:
            until_s: stop at this moment of `perf_counter`, s; None to do `effort.rounds` rounds.
            progress: told of the front of the whole cluster after every round; False stops the search.
        """
        self._advance(0, None)
        done = 1
        while progress is None or progress(done, self.objectives()) is not False:
            if done >= self._effort.rounds if until_s is None else perf_counter() >= until_s:
                break
            self._advance(done, until_s)
            done += 1

    def _advance(self, number: int, until_s: float | None) -> None:
        for search in self._searches:
            if until_s is not None and perf_counter() >= until_s:
                break
            search.advance(number, until_s)
            search.rest()

    def objectives(self) -> FloatArray:
        """[energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        energy_j, jct_s, _ = self._sum()
        return np.stack((energy_j, jct_s / self._world.n), axis=1)

    def plans(self) -> tuple[tuple[Plan, ...], FloatArray]:
        """The plans of the front in order of energy, at most `effort.front`, and their objectives, shape (m, 2)."""
        energy_j, jct_s, chosen = self._sum()
        value = np.stack((energy_j, jct_s / self._world.n), axis=1)
        kept = thin(value, self._effort.front)
        shared: list[Shared] = [{} for _ in self._searches]
        plans = []
        for at in kept.tolist():
            queues: list[tuple[Batch, ...]] = [()] * self._world.k
            for search, gpus, point, known in zip(self._searches, self._gpus, chosen[at], shared, strict=True):
                for gpu, queue in zip(gpus.tolist(), search.archive.queues(int(point), known), strict=True):
                    queues[gpu] = queue
            energy, jct = float(value[at, 0]), float(value[at, 1])
            plans.append(Plan(self._world.cluster, self._world.tasks, tuple(queues), energy, jct))
        return tuple(plans), value[kept]

    def _sum(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """The sum of the blocks' fronts, as `merge` gives it."""
        return merge([search.archive.totals() for search in self._searches], self._effort.merge)


def gpu_blocks(kind: IntArray, blocks: int) -> IntArray:
    """The block of each GPU, types of shape (k,): every type is dealt out evenly, and so are all GPUs together."""
    result = np.empty(len(kind), dtype=np.int64)
    result[np.argsort(kind, kind="stable")] = np.arange(len(kind)) % blocks
    return result


def deal(time_s: FloatArray, fits: BoolArray, kind: IntArray, block_of: IntArray) -> IntArray:
    """Deal tasks to blocks, so that every block has its share of their number and of their work.

    The tasks that fit the fewest types come first, then the longest; each goes to the block that is furthest behind
    its share of the tasks so far, among equals to the one with the least work.

    Args:
        time_s: time alone of each task on each type of GPU, s, infinite where it does not fit, shape (n, kinds).
        fits: whether a task fits each type, shape (n, kinds).
        kind: type of each GPU, shape (k,).
        block_of: block of each GPU, shape (k,).

    Returns:
        The block of each task, shape (n,).
    """
    work_s = time_s.min(axis=1)
    speed = np.where(fits, work_s[:, None] / time_s, 0.0).mean(axis=0)
    held = np.zeros((int(block_of.max()) + 1, len(speed)), dtype=np.int64)
    np.add.at(held, (block_of, kind), 1)
    share = held @ speed
    count, load = np.zeros(len(held)), np.zeros(len(held))
    result = np.empty(len(work_s), dtype=np.int64)
    for task in np.lexsort((-work_s, fits.sum(axis=1))).tolist():
        open_to = np.flatnonzero(held[:, fits[task]].any(axis=1))
        after = (count[open_to] + 1) / share[open_to]
        level = open_to[after == after.min()]
        block = int(level[np.argmin(load[level] / share[level])])
        result[task] = block
        count[block] += 1
        load[block] += work_s[task]
    return result
