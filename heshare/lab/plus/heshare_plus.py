"""The improved scheduler: plans a task set with a search that uses that both objectives add up over GPUs.

The total energy (Eq. 7) and the sum of JCTs (n times Eq. 9) are sums over GPUs. With the tasks S_g of GPU g,

    E = sum over g of E_g(S_g),    T = sum over g of T_g(S_g)

So, for a weight w, min E + w T is a minimum over assignments of a sum of queue costs, each of which is exact
(`heshare.lab.plus.local_search`), and the front of an assignment is the Minkowski sum of its queues' fronts
(`heshare.lab.plus.fronts`). `heshare.lab.plus.weighted_search` searches the assignments, weight by weight.

Large clusters are divided into blocks b of about the same GPUs, and the tasks are assigned to blocks. The front of all
plans that keep to the blocks is again a Minkowski sum, of the blocks' fronts F_b:

    F = non-dominated points of (F_1 + F_2 + ... + F_B),    work = B x work of a block

so the work grows linearly with the number of blocks. No task moves between blocks, which costs little where all blocks
have the same mix of GPUs and of tasks. Tasks are assigned longest first to the block
that is furthest behind its share (list scheduling, Graham 1969), so that numbers of tasks and work are even.

Example: four tasks of 8, 5, 4 and 3 s for two blocks of one GPU each: 8 + 3 s and 5 + 4 s.

>>> blocks = gpu_blocks(np.array([0, 0]), 2)
>>> time_s = np.array([[8.0], [5.0], [4.0], [3.0]])
>>> assign_to_blocks(time_s, np.ones((4, 1), dtype=bool), np.array([0, 0]), blocks).tolist()
[0, 1, 1, 0]

Sources: the paper, Section III-B and III-C. Lists of longest tasks: Graham 1969, doi:10.1137/0117039. Sources of the
parts are in their modules.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.deadline import NEVER, Cancel, Deadline
from heshare.lab.plus.fronts import front_of_queues, sum_fronts
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.lab.plus.weighted_search import Progress, RoundSearch, WeightedSearch
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import Front, thin
from heshare.scheduling.plan import Batch
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled
from heshare.shared.errors import require
from heshare.world.cluster import Cluster
from heshare.world.task import Task


def optimise(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: SearchSettings = DEFAULT_SETTINGS,
    budget_s: float | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    ready_s: FloatArray | None = None,
    seeds: Sequence[IntArray] = (),
) -> Front:
    """Return the front of a task set, planned with the improved scheduler.

    Args:
        tasks: the task set; all tasks are taken to be there from the start, whatever their arrival.
        cluster: the GPUs.
        predictor: predicts times and powers.
        rng: the only source of chance; the same state gives the same front, byte for byte, unless a budget is given.
        effort: the limits of the search, and the clocks and MPS percentages that a batch may have.
        budget_s: search for so many seconds instead of `effort.rounds` rounds; the front then depends on the speed of
            the machine. The first round is always finished.
        progress: called after every round with the front so far; False stops the search.
        cancel: asked again and again once there is a front; the search then ends with the front so far.
        ready_s: when each GPU begins with these tasks, s from now, shape (k,); at once unless given.
        seeds: assignments to begin with in addition, GPU of each task, shape (n,), such as the last plan's.

    Returns:
        The final Pareto front, with `.trade_off`, `.en_opt` and `.jct_opt`.

    Raises:
        InputError: there is no task, one fits no GPU, or the budget is no time.
    """
    start_s = perf_counter()
    good = budget_s is None or 0 <= budget_s < math.inf
    require("budget_s", budget_s, good, "finite seconds of at least zero, or None", "Correct the budget.")
    before = predictor.calls
    costs = BatchCosts(make_instance(tasks, cluster, predictor, ready_s), predictor, effort.choices)
    search = search_for(costs, effort, rng, seeds)
    search.run(None if budget_s is None else start_s + budget_s, progress, cancel)
    return replace(search.front(), predictor_rows=predictor.calls - before)


def _in_blocks(world: Instance, settings: SearchSettings) -> bool:
    """Return whether a task set is so large that blocks of the cluster are searched instead of the whole."""
    return world.n > settings.undivided_tasks and world.k >= 2 * settings.block_gpus


def _blocks(costs: BatchCosts, settings: SearchSettings) -> tuple[IntArray, IntArray]:
    """Return the block of each GPU, shape (k,), and of each task, shape (n,); one block for a small task set."""
    world = costs.world
    if not _in_blocks(world, settings):
        return np.zeros(world.k, dtype=np.int64), np.zeros(world.n, dtype=np.int64)
    block_of_gpu = gpu_blocks(world.kind_of, max(1, world.k // settings.block_gpus))
    return block_of_gpu, assign_to_blocks(costs.time_s, costs.fits, world.kind_of, block_of_gpu)


def search_for(
    costs: BatchCosts, settings: SearchSettings, rng: np.random.Generator, seeds: Sequence[IntArray] = ()
) -> RoundSearch:
    """Return the search that suits the size: of the whole cluster, or of blocks of it where the task set is large.

    Blocks assign the tasks again, so they make no use of `seeds`, which are those of `WeightedSearch`.
    """
    if _in_blocks(costs.world, settings):
        return DecomposedSearch(costs, settings, rng)
    return WeightedSearch(costs, settings, rng, seeds)


class DecomposedSearch(RoundSearch):
    """The searches of all blocks of a cluster, and the sum of their fronts.

    Args:
        costs: the options of batches, of the whole task set on the whole cluster.
        settings: the limits of the search of every block.
        rng: the only source of chance; every block gets a stream of its own.
    """

    def __init__(self, costs: BatchCosts, settings: SearchSettings, rng: np.random.Generator) -> None:
        super().__init__(settings)
        self._world = costs.world
        block_of_gpu, block_of_task = _blocks(costs, settings)
        labels, sum_points = settings.front_limits(costs.world.k)
        block_settings = replace(settings, labels=labels, sum_points=sum_points)
        self._gpus: list[IntArray] = []
        self._searches: list[WeightedSearch] = []
        blocks = np.unique(block_of_task)
        for block, stream in zip(blocks.tolist(), rng.spawn(len(blocks)), strict=True):
            tasks, gpus = np.flatnonzero(block_of_task == block), np.flatnonzero(block_of_gpu == block)
            self._gpus.append(gpus)
            self._searches.append(WeightedSearch(costs.part(tasks, gpus), block_settings, stream))

    def advance(self, number: int, deadline: Deadline = NEVER) -> None:
        """Run one round of the search in every block of GPUs."""
        for search in self._searches:
            if deadline.over():
                break
            search.advance(number, deadline)
            # One table for all blocks at a time: 100 of them would take gigabytes.
            search.release_table()

    def objectives(self) -> FloatArray:
        """Return [energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return self._sum()[0]

    def front(self) -> Front:
        """Return the front, thinned to at most `settings.front_plans` plans."""
        objectives, chosen = self._sum()
        kept = thin(objectives, self._settings.front_plans)
        plans = []
        for point in kept.tolist():
            queues: list[tuple[Batch, ...]] = [()] * self._world.k
            for search, gpus, block_point in zip(self._searches, self._gpus, chosen[point].tolist(), strict=True):
                for gpu, queue in zip(gpus.tolist(), search.archive.queues(block_point), strict=True):
                    queues[gpu] = queue
            plans.append(tuple(queues))
        return front_of_queues(self._world, plans, objectives[kept])

    def _sum(self) -> tuple[FloatArray, IntArray]:
        """Return the objectives of the sum of the blocks' fronts, and the point of each block, shape (m, blocks)."""
        points, chosen = sum_fronts([search.archive.points for search in self._searches], self._settings.sum_points)
        return points / np.array([1.0, self._world.n]), chosen


def gpu_blocks(kind_of: IntArray, blocks: int) -> IntArray:
    """Return the block of each GPU, types of shape (k,): blocks differ by one GPU at most, of each type and in all."""
    result = np.empty(len(kind_of), dtype=np.int64)
    result[np.argsort(kind_of, kind="stable")] = np.arange(len(kind_of)) % blocks
    return result


def assign_to_blocks(time_s: FloatArray, fits: BoolArray, kind_of: IntArray, block_of: IntArray) -> IntArray:
    """Return the block of each task, so that every block has its share of their number and of their work.

    The tasks that fit the fewest types come first, then the longest. Each one goes to the block that is furthest behind
    its share of the tasks so far, among equals to the one with the least work. A block's share is its GPUs' speed.

    Args:
        time_s: time alone of each task on each type of GPU, s, infinite where it does not fit, shape (n, kinds).
        fits: whether a task fits each type, shape (n, kinds).
        kind_of: type of each GPU, shape (k,).
        block_of: block of each GPU, shape (k,).

    Returns:
        Shape (n,).
    """
    work_s = time_s.min(axis=1)
    speed = np.where(fits, work_s[:, None] / time_s, 0.0).mean(axis=0)
    gpus = np.zeros((int(block_of.max()) + 1, len(speed)), dtype=np.int64)
    np.add.at(gpus, (block_of, kind_of), 1)
    return _assigned(np.lexsort((-work_s, fits.sum(axis=1))), work_s, fits, gpus, gpus @ speed)


@compiled
def _assigned(order: IntArray, work_s: FloatArray, fits: BoolArray, gpus: IntArray, share: FloatArray) -> IntArray:
    """Return the block of each task, assigned in this order; `gpus` of each block and type, `share` of each block."""
    count, load_s = np.zeros(len(gpus)), np.zeros(len(gpus))
    result = np.empty(len(work_s), dtype=np.int64)
    for task in order:
        block, least, least_s = -1, np.inf, np.inf
        for candidate in range(len(gpus)):
            fitting = 0
            for kind in range(gpus.shape[1]):
                fitting += gpus[candidate, kind] if fits[task, kind] else 0
            if not fitting:
                continue
            filled, loaded_s = (count[candidate] + 1) / share[candidate], load_s[candidate] / share[candidate]
            if filled < least or (filled == least and loaded_s < least_s):
                block, least, least_s = candidate, filled, loaded_s
        result[task] = block
        count[block] += 1
        load_s[block] += work_s[task]
    return result
