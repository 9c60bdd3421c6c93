"""The improved scheduler: what the paper's two stages become when one uses that both objectives add up over GPUs.

The total energy (Eq. 7) and the sum of JCTs (Eq. 8) are sums over GPUs. So, for a weight on time, a GPU's queue has a
best batching that a recursion finds exactly, with a clock and MPS percentages for every batch; a local search moves
tasks between queues that are priced so; and the front of an assignment is the sum of its queues' fronts. Neighbouring
weights start from each other's solutions, forth and back, with kicks in between. A large task set is dealt to blocks of
the cluster that are searched one by one, and their fronts add up once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.dividing import Divided
from heshare.scheduling.effort import DEFAULT, Effort
from heshare.scheduling.objectives import FloatArray, IntArray, instance
from heshare.scheduling.pareto import Front
from heshare.scheduling.searching import Progress, Search
from heshare.world.cluster import Cluster
from heshare.world.task import Task

__all__ = ["Progress", "Search", "optimise", "search_for"]


def optimise(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: Effort = DEFAULT,
    budget_s: float | None = None,
    progress: Progress | None = None,
    ready_s: FloatArray | None = None,
    seeds: Sequence[IntArray] = (),
) -> Front:
    """Plan a task set with the improved scheduler.

    Args:
        tasks: the task set; all are taken to be there from the start, whatever their arrival.
        cluster: the GPUs.
        predictor: what the scheduler believes of time and power.
        rng: the only source of chance; the same state gives the same front, byte for byte, unless a budget is given.
        effort: how hard to search, and what a batch may choose from.
        budget_s: search for so many seconds instead of `effort.rounds` rounds; what is found then depends on the
            speed of the machine. Filling the predictor's tables counts, and a first front is always finished.
        progress: called after every round with the front so far; False stops the search.
        ready_s: when each GPU begins with these tasks, s from now, shape (k,); at once unless given.
        seeds: assignments to begin with besides, GPU of each task, shape (n,), such as the last plan's.

    Returns:
        The final Pareto front, with `.trade_off`, `.en_opt` and `.jct_opt`.

    Raises:
        InputError: there is no task, or one fits no GPU.
    """
    until_s = None if budget_s is None else perf_counter() + budget_s
    before = predictor.calls
    costs = BatchCosts(instance(tasks, cluster, predictor, ready_s), predictor, effort.freedom)
    search = search_for(costs, effort, rng, seeds)
    search.run(until_s, progress)
    plans, objectives = search.plans()
    return Front(plans, objectives, predictor.calls - before)


def search_for(
    costs: BatchCosts, effort: Effort, rng: np.random.Generator, seeds: Sequence[IntArray] = ()
) -> Search | Divided:
    """The search that suits the size: of the whole cluster, or of blocks of it where the task set is large.

    Blocks deal the tasks anew, so that `seeds`, as for `Search`, are of no use to them.
    """
    world = costs.world
    if world.n > effort.undivided and world.k >= 2 * effort.block:
        return Divided(costs, effort, rng)
    return Search(costs, effort, rng, seeds)
