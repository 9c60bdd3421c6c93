"""The improved scheduler: plans a task set with a search that uses that both objectives add up over GPUs.

The total energy (Eq. 7) and the sum of JCTs (n times Eq. 9) are sums over GPUs. With the tasks S_g of GPU g,

    E = sum over g of E_g(S_g),    T = sum over g of T_g(S_g)

So, for a weight w, min E + w T is a minimum over assignments of a sum of queue costs, each of which is exact
(`heshare.lab.plus.local_search`), and the front of an assignment is the Minkowski sum of its queues' fronts
(`heshare.lab.plus.fronts`). `heshare.lab.plus.weighted_search` searches the assignments, weight by weight.

Example: two tasks on two GPUs of one type, where the only plan without a rival runs one task on each.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> from heshare.world.workload import Workload
>>> tasks = Task(0, Workload("resnet18", 4), 2.0), Task(1, Workload("resnet18", 4), 5.0)
>>> front = optimise(tasks, Cluster((toy_gpu(),) * 2), ToyPredictor(), rng=np.random.default_rng(0))
>>> front.objectives.round(6).tolist()
[[770.0, 3.5]]

Sources: the paper, Section III-B and III-C. Sources of the parts are in their modules.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.lab.plus.weighted_search import Progress, WeightedSearch
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import make_instance
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require
from heshare.shared.stopping import Stopped
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
        ready_s: when each GPU begins with these tasks, s from now, shape (k,); at once unless given.
        seeds: assignments to begin with in addition, GPU of each task, shape (n,), such as the last plan's.

    Returns:
        The final Pareto front, with `.trade_off`, `.en_opt` and `.jct_opt`.

    Raises:
        InputError: there is no task, one fits no GPU, or the budget is no time.
        Stopped: a Ctrl-C after the first weights, with the front so far.
    """
    start_s = perf_counter()
    good = budget_s is None or 0 <= budget_s < math.inf
    require("budget_s", budget_s, good, "finite seconds of at least zero, or None", "Correct the budget.")
    before = predictor.calls
    costs = BatchCosts(make_instance(tasks, cluster, predictor, ready_s), predictor, effort.choices)
    search = WeightedSearch(costs, effort, rng, seeds)
    try:
        search.run(None if budget_s is None else start_s + budget_s, progress)
    except KeyboardInterrupt as stop:
        if not len(search.objectives()) or type(stop) is not KeyboardInterrupt:
            raise
        front = replace(search.front(), predictor_rows=predictor.calls - before)
        raise Stopped("the plans are those of the search so far", front) from None
    return replace(search.front(), predictor_rows=predictor.calls - before)
