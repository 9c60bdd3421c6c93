"""Rivals with HeShare+'s evaluation of a queue, so that a comparison with HeShare+ is one of the searches alone.

Stage 1 evaluates a scheme, the GPU of each task, as tasks that run one after the other, and stage 2 configures the
schemes found. HeShare+ takes each queue at its least cost over all batches, clocks and MPS percentages. With a
`QueueRecord` a rival's search does so too: it sees the [energy, average JCT] of the plan of a scheme with the least
E + w T, for one of HeShare+'s weights w, in turn. `front_of_schemes` is HeShare+'s second stage: the front of all plans
of given schemes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from heshare.lab.plus.batch_table import BatchTable, TableArrays
from heshare.lab.plus.heshare_plus import FrontArchive, PlusSearch, SearchSettings
from heshare.lab.plus.local_search import Memo, Queues, assign, memo_of, queue_cost, queues_of
from heshare.paper.studies.pymoo_searches import SearchRecord
from heshare.scheduling.genetic import Schemes
from heshare.shared.arrays import FloatArray, IntArray

STEP = 1e-4
"""Share by which a weight is raised to find the sum of JCTs, the slope of the least cost."""


class QueueRecord(SearchRecord):
    """Evaluates schemes by the least cost of each queue, at one of several weights on the sum of JCTs, J / s."""

    def __init__(self, table: BatchTable, weights: FloatArray) -> None:
        self._table = table
        self._weights = weights
        self._memo = memo_of(table)
        super().__init__(table.instance)

    def objectives(self, schemes: IntArray) -> FloatArray:
        """Return [energy in J, average JCT in s] of the cheapest plan of each of p schemes, shape (p, 2)."""
        turn = (self.evaluations + np.arange(len(schemes))) % len(self._weights)
        weights = self._weights[turn]
        raised = weights * (1 + STEP)

        # The least of E + w T over all plans: its slope over w is the T of the cheapest plan.
        least = self._least_costs(schemes, weights)
        sum_s = (self._least_costs(schemes, raised) - least) / (raised - weights)
        return np.column_stack((least - weights * sum_s, sum_s / self._table.instance.n))

    def _least_costs(self, schemes: IntArray, weights: FloatArray) -> FloatArray:
        queues = queues_of(self._table, 1.0)
        found: FloatArray = _costs_of_schemes(self._table.arrays, self._memo, queues, schemes, weights)
        return found


@njit(cache=True)
def _costs_of_schemes(
    table: TableArrays, memo: Memo, queues: Queues, schemes: IntArray, weights: FloatArray
) -> FloatArray:
    found = np.zeros(len(schemes))
    for row in range(len(schemes)):
        queues.weight[0] = weights[row]
        assign(table, memo, queues, schemes[row])
        for gpu in range(len(queues.kind_of)):
            found[row] += queue_cost(queues, gpu)
    return found


def weights_of_front(table: BatchTable, rng: np.random.Generator) -> FloatArray:
    """Return weights over the range of slopes of a first front, as HeShare+ takes them."""
    settings = SearchSettings(rounds=2)
    search = PlusSearch(table, settings, rng)
    search.run()
    low, high = search.archive.weight_range()
    return np.geomspace(low / 2, high * 2, settings.weights)


def front_of_schemes(schemes: Schemes, table: BatchTable) -> FloatArray:
    """Return the front of all plans of some schemes, [energy in J, average JCT in s], shape (m, 2)."""
    archive = FrontArchive(table, SearchSettings())
    archive.add(schemes.gpus)
    return archive.front().objectives
