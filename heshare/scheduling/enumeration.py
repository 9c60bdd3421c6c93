"""Every batch that a type of GPU could run, with its options: what exact fronts and bounds choose from.

Energy and the sum of JCTs add up over batches: a batch with b tasks of its queue behind it adds its energy, and the
time that its own tasks spend in it plus b times its length (Eqs. 13 to 15). So a queue is a chain of batches, and each
batch needs only its options and b. What may be chosen is what `heshare.scheduling.costs` says, to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from heshare.errors import InputError
from heshare.scheduling.costs import BatchCosts, Options
from heshare.scheduling.departing import compiled
from heshare.scheduling.objectives import FloatArray, Instance, IntArray
from heshare.scheduling.plan import Batch
from heshare.scheduling.sharing import NOBODY

LARGEST = 1_000_000
"""Sets of tasks on one type of GPU that may be listed."""


@dataclass(frozen=True)
class Possible:
    """All batches that one type of GPU could run, and their options.

    Attributes:
        order: the tasks in the type's SPT order, shape (n,); a task's place here is its position.
        sets: positions of each batch's tasks, ascending, `NOBODY` beyond its size, sorted, shape (m, w).
        options: the options of each; none for a set that the GPU cannot run.
    """

    order: IntArray
    sets: IntArray
    options: Options

    def batch(self, option: int, world: Instance) -> Batch:
        """The batch of a plan that an option stands for."""
        row = int(np.searchsorted(self.options.begin, option, side="right")) - 1
        positions = self.sets[row][self.sets[row] != NOBODY]
        ids = tuple(world.tasks[task].id for task in self.order[positions].tolist())
        pct = tuple(self.options.mps_pct[option, : len(ids)].tolist())
        return Batch(ids, pct, int(self.options.sm_mhz[option]))


def possible(costs: BatchCosts) -> tuple[Possible, ...]:
    """All batches of each type of GPU.

    Raises:
        InputError: more than `LARGEST` sets of tasks.
    """
    sets = subsets(costs.world.n, costs.freedom.width)
    made = []
    for kind, order in enumerate(costs.order):
        tasks = np.where(sets == NOBODY, NOBODY, order[sets])
        made.append(Possible(order, sets, costs.options(kind, tasks)))
    return tuple(made)


def subsets(n: int, width: int) -> IntArray:
    """All sets of 1 to `width` of n positions, ascending, `NOBODY`-padded, sorted, shape (m, width).

    Raises:
        InputError: more than `LARGEST` sets.
    """
    count = sum(comb(n, size) for size in range(1, width + 1))
    if count > LARGEST:
        raise InputError(
            column="tasks",
            found=f"{count} sets of up to {width} of {n} tasks",
            expected=f"at most {LARGEST}",
            action="Ask for the optimum of fewer tasks, or of smaller batches.",
        )
    table = np.concatenate([_padded(n, size, width) for size in range(1, min(n, width) + 1)])
    return table[np.lexsort(table.T[::-1])]


def _padded(n: int, size: int, width: int) -> IntArray:
    rows = np.array(list(combinations(range(n), size)), dtype=np.int64).reshape(-1, size)
    return np.pad(rows, ((0, 0), (0, width - size)), constant_values=NOBODY)


def cheapest(one: Possible, weights: tuple[float, float]) -> tuple[FloatArray, IntArray]:
    """The best option of every batch, for each number of tasks behind it.

    Args:
        one: the batches.
        weights: of energy (1/J) and of the sum of JCTs (1/s).

    Returns:
        The weighted cost, infinite for a batch that cannot run, and the option, -1 for none, both of shape (m, n).
    """
    rows = one.options
    return _cheapest(rows.begin, rows.energy_j, rows.spent_s, rows.end_s, *weights, len(one.order))


@compiled
def _cheapest(
    begin: IntArray, energy_j: FloatArray, spent_s: FloatArray, end_s: FloatArray, per_j: float, per_s: float, n: int
) -> tuple[FloatArray, IntArray]:
    count = len(begin) - 1
    cost, option = np.full((count, n), np.inf), np.full((count, n), -1)
    for row in range(count):
        for at in range(begin[row], begin[row + 1]):
            own, slope = per_j * energy_j[at] + per_s * spent_s[at], per_s * end_s[at]
            for behind in range(n):
                value = own + behind * slope
                if value < cost[row, behind]:
                    cost[row, behind] = value
                    option[row, behind] = at
    return cost, option
