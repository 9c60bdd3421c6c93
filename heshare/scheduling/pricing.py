"""The cheapest queue of a type of GPU when every task that it takes is worth a price: exact, by dynamic programming.

A queue of the freedom in `heshare.scheduling.costs` is any choice of tasks, in SPT order, cut into batches. From the
last SPT position to the first, the state is how many tasks the queue still holds: what a batch costs depends on
nothing else that comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heshare.scheduling.departing import compiled
from heshare.scheduling.enumeration import Possible, cheapest
from heshare.scheduling.objectives import FloatArray, IntArray
from heshare.scheduling.sharing import NOBODY


@dataclass(frozen=True)
class Queues:
    """Queues of one or more types of GPU, the columns of the master problem.

    Attributes:
        kind: type of GPU, shape (c,).
        energy_j: energy, J, shape (c,).
        jct_s: sum of JCTs, s, shape (c,).
        holds: whether a queue holds a task, shape (c, n).
        options: the options of each queue's batches in order, -1 beyond, shape (c, n).
    """

    kind: IntArray
    energy_j: FloatArray
    jct_s: FloatArray
    holds: FloatArray
    options: IntArray

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: IntArray) -> Queues:
        """Some of the queues."""
        return Queues(self.kind[rows], self.energy_j[rows], self.jct_s[rows], self.holds[rows], self.options[rows])

    def together(self, *others: Queues) -> Queues:
        """These queues and others."""
        every = (self, *others)
        return Queues(
            np.concatenate([one.kind for one in every]),
            np.concatenate([one.energy_j for one in every]),
            np.concatenate([one.jct_s for one in every]),
            np.concatenate([one.holds for one in every]),
            np.concatenate([one.options for one in every]),
        )


def no_queues(n: int) -> Queues:
    """Not one queue of n tasks."""
    empty = np.zeros(0)
    return Queues(np.zeros(0, dtype=np.int64), empty, empty, np.zeros((0, n)), np.zeros((0, n), dtype=np.int64))


@dataclass(frozen=True)
class Pricer:
    """Prices queues of one type of GPU for one weight.

    Attributes:
        kind: the type's index.
        batches: all that it could run.
        weights: of energy (1/J) and of the sum of JCTs (1/s).
    """

    kind: int
    batches: Possible
    weights: tuple[float, float]

    @cached_property
    def _tables(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, IntArray]:
        cost, option = cheapest(self.batches, self.weights)
        sets = self.batches.sets
        size = (sets != NOBODY).sum(axis=1)
        first = np.searchsorted(sets[:, 0], np.arange(len(self.batches.order) + 1))
        return first, sets, size, cost, option

    def alone(self) -> FloatArray:
        """What each task costs as a batch of its own, for each number of tasks behind it, shape (n, n)."""
        _, sets, size, cost, _ = self._tables
        singles = np.flatnonzero(size == 1)
        result = np.empty((len(self.batches.order), cost.shape[1]))
        result[self.batches.order[sets[singles, 0]]] = cost[singles]
        return result

    def __call__(self, prices: FloatArray) -> tuple[float, Queues]:
        """The cheapest queues under prices, one for each number of tasks if it costs less than nothing.

        Args:
            prices: what each task is worth, shape (n,).

        Returns:
            The least of cost less prices, at most 0 for the empty queue; and the queues.
        """
        first, sets, size, cost, option = self._tables
        order, rows = self.batches.order, self.batches.options
        value, choice = _price(first, sets, size, cost, prices[order])
        lengths = np.flatnonzero(value < 0)
        n = len(order)
        energy_j, jct_s = np.zeros(len(lengths)), np.zeros(len(lengths))
        holds, options = np.zeros((len(lengths), n)), np.full((len(lengths), n), -1)
        for index, length in enumerate(lengths.tolist()):
            chosen = _trace(choice, length, sets, size)
            behind = length - np.cumsum(size[chosen])
            picked = option[chosen, behind]
            energy_j[index] = rows.energy_j[picked].sum()
            jct_s[index] = (rows.spent_s[picked] + behind * rows.end_s[picked]).sum()
            places = sets[chosen]
            holds[index, order[places[places != NOBODY]]] = 1.0
            options[index, : len(picked)] = picked
        return float(value.min()), Queues(np.full(len(lengths), self.kind), energy_j, jct_s, holds, options)


@compiled
def _price(
    first: IntArray, sets: IntArray, size: IntArray, cost: FloatArray, prices: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Least of cost less prices of a queue of each length, shape (n + 1,), and the batch chosen at each state."""
    n = len(prices)
    value, choice = np.full((n + 1, n + 1), np.inf), np.full((n + 1, n + 1), -1)
    value[n, 0] = 0.0
    for position in range(n - 1, -1, -1):
        value[position] = value[position + 1]
        for row in range(first[position], first[position + 1]):
            worth = 0.0
            for member in range(size[row]):
                worth += prices[sets[row, member]]
            after = sets[row, size[row] - 1] + 1
            for behind in range(n - after + 1):
                found = cost[row, behind] - worth + value[after, behind]
                if found < value[position, behind + size[row]]:
                    value[position, behind + size[row]] = found
                    choice[position, behind + size[row]] = row
    return value[0].copy(), choice


@compiled
def _trace(choice: IntArray, length: int, sets: IntArray, size: IntArray) -> IntArray:
    """The batches of the cheapest queue of a length, in order."""
    found, count, position = np.empty(length, dtype=np.int64), 0, 0
    while length > 0:
        row = choice[position, length]
        if row < 0:
            position += 1
        else:
            found[count] = row
            count += 1
            position = sets[row, size[row] - 1] + 1
            length -= size[row]
    return found[:count].copy()
