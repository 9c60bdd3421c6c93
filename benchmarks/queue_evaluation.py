"""Rivals with HeShare+'s evaluation of a queue, so that a comparison with HeShare+ is one of the searches alone.

Stage 1 evaluates a scheme, the GPU of each task, as tasks that run one after the other, and stage 2 configures the
schemes found. HeShare+ takes each queue at its least cost over all batches, clocks and MPS percentages. With a
`QueueRecord` a rival's search does so too: it sees the [energy, average JCT] of the plan of a scheme with the least
E + w T, for one of HeShare+'s weights w, in turn. `front_of_schemes` is HeShare+'s second stage: the front of all plans
of given schemes.
"""

from __future__ import annotations

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.fronts import FrontArchive
from heshare.lab.plus.local_search import NO_GPU, Assignment, assign, empty_assignment
from heshare.lab.plus.option_tables import OptionTable, option_table, with_missing
from heshare.lab.plus.search_settings import SearchSettings
from heshare.lab.plus.weighted_search import WeightedSearch
from heshare.paper.studies.pymoo_searches import SearchRecord
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.genetic import Schemes
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import compiled

STEP = 1e-4
"""Share by which a weight is raised to find the sum of JCTs, the slope of the least cost."""


class QueueRecord(SearchRecord):
    """Evaluates schemes by the least cost of each queue, at one of several weights on the sum of JCTs, J / s."""

    def __init__(self, costs: BatchCosts, weights: FloatArray) -> None:
        self._costs = costs
        self._weights = weights
        self._table = option_table(costs)
        super().__init__(costs.world)

    def objectives(self, schemes: IntArray) -> FloatArray:
        """Return [energy in J, average JCT in s] of the cheapest plan of each of p schemes, shape (p, 2)."""
        turn = (self.evaluations + np.arange(len(schemes))) % len(self._weights)
        weights = self._weights[turn]
        raised = weights * (1 + STEP)

        # The least of E + w T over all plans: its slope over w is the T of the cheapest plan.
        least = self._least_costs(schemes, weights)
        sum_s = (self._least_costs(schemes, raised) - least) / (raised - weights)
        return np.column_stack((least - weights * sum_s, sum_s / self._costs.world.n))

    def _least_costs(self, schemes: IntArray, weights: FloatArray) -> FloatArray:
        queues = empty_assignment(self._costs)
        while True:
            found: FloatArray = _costs_of_schemes(self._table, queues, schemes, weights)
            table = with_missing(self._costs, self._table)
            if table is self._table:
                return found
            self._table = table


@compiled
def _costs_of_schemes(table: OptionTable, queues: Assignment, schemes: IntArray, weights: FloatArray) -> FloatArray:
    found = np.empty(len(schemes))
    for row in range(len(schemes)):
        queues.gpu_of[:] = NO_GPU
        queues.head[:] = EMPTY
        queues.tail[:] = EMPTY
        found[row] = assign(table, queues, schemes[row], weights[row])
    return found


def weights_of_front(costs: BatchCosts, rng: np.random.Generator) -> FloatArray:
    """Return weights over the range of slopes of a first front, as HeShare+ takes them."""
    settings = SearchSettings(rounds=2)
    search = WeightedSearch(costs, settings, rng)
    search.run()
    low, high = search.archive.weight_range()
    return np.geomspace(low / 2, high * 2, settings.weights)


def front_of_schemes(schemes: Schemes, costs: BatchCosts) -> FloatArray:
    """Return the front of all plans of some schemes, [energy in J, average JCT in s], shape (m, 2)."""
    archive = FrontArchive(costs, SearchSettings())
    archive.add(schemes.gpus)
    return archive.front().objectives
