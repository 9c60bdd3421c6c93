"""Lower bound on the weighted sum of energy and average JCT of every plan of `batch_table`, by column generation.

`docs/bound.md` has the proof and its sources. The bound does not hold for other plans, with more clocks or percentages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from heshare.lab.plus.batch_table import BatchTable, FeasibleBatches
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit

MAX_COLUMNS = 3000
"""Columns at which those with the largest reduced costs are dropped."""
SMOOTHING = 0.7
"""The share of the best bound's dual prices in the next ones, because the program's prices oscillate."""
PENALTY = 10.0
"""The cost of leaving a task unserved, in costs of a task alone before all others: too much for the optimum."""
BOUND_TASKS = 60
"""Tasks up to which the bound is computed unless asked for: it takes 3 to 10 s then, and more than linearly longer."""
ROUNDING = 1e-9
"""Bounds are lowered by this share of themselves, far more than rounding could add to a sum."""


@dataclass(frozen=True)
class Bound:
    """Lower bounds on every plan: for each weight, the least possible energy + weight x average JCT.

    Attributes:
        weights: of energy (1/J) and average JCT (1/s), shape (f, 2).
        least: proven lower bounds of the weighted sums, shape (f,).
        relaxed: the linear program's value where it was solved to the end; otherwise above its bound, shape (f,).
        iterations: iterations of column generation, shape (f,).
    """

    weights: FloatArray
    least: FloatArray
    relaxed: FloatArray
    iterations: IntArray

    def gap_pct(self, objectives: FloatArray) -> FloatArray:
        """Return the gap of each point to the bound, %: no plan is better by more in both objectives at once.

        The ray from a point to zero energy and zero JCT leaves the half-plane of every weight at some share; the first
        one counts. Between two weights the bound is not tight: the gap of a point there is an upper bound, tighter with
        more weights. The points are [energy in J, average JCT in s], shape (m,
        2).
        """
        ratios: FloatArray = (objectives @ self.weights.T / self.least).min(axis=1)
        return 100.0 * (ratios - 1.0)

    def gaps_along_pct(self, objectives: FloatArray) -> FloatArray:
        """Return the gap of the best of m points to the bound of each weight, %, shape (f,)."""
        best: FloatArray = (objectives @ self.weights.T).min(axis=0)
        return 100.0 * (best / self.least - 1.0)

    def envelope_s(self, energy_j: FloatArray) -> FloatArray:
        """Return the least average JCT that the bound allows at each energy, s; infinite below the least energy."""
        per_j, per_s = self.weights.T
        tilted = per_s > 0
        lines = (self.least[tilted] - np.outer(energy_j, per_j[tilted])) / per_s[tilted]
        floor_j = np.max(self.least[~tilted] / per_j[~tilted], initial=0.0)
        return np.where(energy_j < floor_j, np.inf, lines.max(axis=1, initial=0.0))


def weights_along(objectives: FloatArray, count: int = 5) -> FloatArray:
    """Return weights with optima along a front: directions evenly spaced in the normalised plane, shape (count, 2).

    `objectives` are [energy in J, average JCT in s] of the front, shape (m, 2).
    """
    front = objectives[non_dominated(objectives)]
    span = np.where(np.ptp(front, axis=0) > 0, np.ptp(front, axis=0), front.max(axis=0))
    angle = np.pi / 2 * (np.arange(count) + 0.5) / count
    weights = np.stack((np.cos(angle) / span[0], np.sin(angle) / span[1]), axis=1)
    per_joule: FloatArray = weights / weights[:, :1]
    return per_joule


def lower_bound(table: BatchTable, weights: FloatArray, *, tolerance: float = 1e-4, iterations: int = 500) -> Bound:
    """Return proven lower bounds, one for each weight.

    Weights are of energy (1/J) and average JCT (1/s), shape (f, 2). For each it stops after `iterations`, or when the
    bound is within `tolerance` of the linear program's value, relatively.

    Raises:
        InputError: too many sets of tasks to list.

    Example:
        Tasks of 2 and 5 s on two GPUs of 110 W. With one task each, energy and 20 J/s x average JCT are
        770 + 20 x 3.5 = 840, which is the bound too; with both on one GPU, 770 + 20 x 4.5 = 860 is 2.38 % more.

        >>> from heshare.testing.toy import toy_instance
        >>> table = BatchTable(*toy_instance([2.0, 5.0], gpus=2))
        >>> bound = lower_bound(table, np.array([[1.0, 20.0]]))
        >>> bound.least.round(3).tolist(), bound.gap_pct(np.array([[770.0, 4.5]])).round(2).tolist()
        ([840.0], [2.38])
    """
    instance = table.instance
    batches = table.feasible_batches()
    gpus = np.bincount(instance.kind_of, minlength=len(instance.kinds)).astype(np.float64)
    none = np.zeros(0)
    columns = QueueColumns(np.zeros(0, dtype=np.int64), none, none, np.zeros((0, instance.n)))
    least = np.zeros(len(weights))
    relaxed = np.zeros(len(weights))
    counts = np.zeros(len(weights), dtype=np.int64)
    for row, (per_j, per_s) in enumerate(weights.tolist()):
        # A queue is a column at every weight: each weight begins with the columns of the one before.
        master = _Master(batches, gpus, (per_j, per_s / instance.n), columns)
        master.improve(tolerance, iterations)
        columns = master.columns
        least[row] = master.bound * (1 - ROUNDING)
        relaxed[row] = master.relaxed
        counts[row] = master.iterations
    return Bound(weights, least, relaxed, counts)


def bound_along(front: Front, predictor: Predictor, *, tolerance: float) -> Bound:
    """Return the bound on all plans for a front's tasks and cluster, at weights along the front."""
    plan = front[0]
    table = BatchTable(make_instance(plan.tasks, plan.cluster, predictor), predictor)
    return lower_bound(table, weights_along(front.objectives), tolerance=tolerance)


class QueueColumns(NamedTuple):
    """Queues of one or more types of GPU, the columns of the linear program.

    Attributes:
        kind: type of GPU, shape (c,).
        energy_j: energy, J, shape (c,).
        jct_s: sum of JCTs, s, shape (c,).
        holds: whether a queue holds a task, shape (c, n).
    """

    kind: IntArray
    energy_j: FloatArray
    jct_s: FloatArray
    holds: FloatArray

    def take(self, rows: IntArray) -> "QueueColumns":
        """Return the columns with these indices."""
        return QueueColumns._make(column[rows] for column in self)

    def joined(self, others: Sequence["QueueColumns"]) -> "QueueColumns":
        """Return these columns followed by others."""
        return QueueColumns._make(map(np.concatenate, zip(self, *others, strict=True)))


class _Master:
    """Column generation for one weight.

    `gpus` is the number of GPUs of each type, shape (kinds,), `weights` are of energy (1/J) and the sum of JCTs (1/s).
    """

    def __init__(
        self,
        batches: Sequence[FeasibleBatches],
        gpus: FloatArray,
        weights: tuple[float, float],
        columns: QueueColumns,
    ) -> None:
        self._pricers = [Pricer(kind, of_kind, weights) for kind, of_kind in enumerate(batches)]
        self._gpus = gpus
        self._weights = weights
        self._n = len(batches[0].order)
        self.columns = columns
        self.bound = -inf
        self.relaxed = inf
        self.iterations = 0

    def improve(self, tolerance: float, iterations: int) -> None:
        """Generate columns until the bound is within the tolerance of the linear program's value."""
        prices, alone = self._first_prices()
        self.bound, new = self._price(prices)
        self.columns = self.columns.joined(new)
        while self.iterations < iterations:
            self.iterations += 1
            duals = self._solve_program(PENALTY * alone)
            if self.relaxed - self.bound <= tolerance * self.relaxed:
                break
            tried = SMOOTHING * prices + (1 - SMOOTHING) * duals
            bound, new = self._price(tried)
            if bound > self.bound:
                self.bound = bound
                prices = tried
            self.columns = self.columns.joined(new)

    def _first_prices(self) -> tuple[FloatArray, FloatArray]:
        """Return first prices, and what a task alone before all others costs at most, shape (n,) each."""
        behind = int(self._n / self._gpus.sum() / 2)
        costs = np.stack([pricer.single_costs() for pricer in self._pricers])
        last = costs[:, :, -1]
        return costs[:, :, min(behind, self._n - 1)].min(axis=0), np.where(np.isfinite(last), last, 0.0).max(axis=0)

    def _price(self, prices: FloatArray) -> tuple[float, list[QueueColumns]]:
        """Return the bound L(p) of given prices, and the queues with negative reduced costs."""
        priced = [pricer(prices) for pricer in self._pricers]
        least = np.array([value for value, _ in priced])
        return float(prices.sum() + (self._gpus * least).sum()), [queues for _, queues in priced]

    def _solve_program(self, penalty: FloatArray) -> FloatArray:
        """Solve the linear program and return the tasks' prices; a task may be in no queue at a penalty.

        Its value is stored, and columns of large reduced cost are dropped if there are too many.
        """
        columns = self.columns
        n = self._n
        cost = self._weights[0] * columns.energy_j + self._weights[1] * columns.jct_s
        kinds = np.arange(len(self._gpus))[:, None] == columns.kind

        served = np.concatenate((columns.holds, np.eye(n))).T
        used = np.concatenate((kinds, np.zeros((len(kinds), n))), axis=1)
        for presolve in (False, True):
            solved = linprog(
                np.concatenate((cost, penalty)),
                A_ub=np.concatenate((-served, used)),
                b_ub=np.concatenate((-np.ones(n), self._gpus)),
                # The dual simplex ends in a vertex: its prices are the same on every machine.
                method="highs-ds",
                options={"presolve": presolve},
            )
            # HiGHS sometimes ends with an unknown status; the smaller program of a presolve is the fallback.
            if solved.success:
                break
        if not solved.success or solved.x is None:
            raise ArithmeticError(f"the linear program of the bound failed: {solved.message}")
        self.relaxed = float(solved.fun or 0.0)
        # scipy's marginals of <= rows are at most 0; the rows of the tasks have been negated.
        prices = -solved.ineqlin.marginals[:n]
        kind_prices = solved.ineqlin.marginals[n:]
        if len(columns.kind) > MAX_COLUMNS:
            reduced = cost - columns.holds @ prices - kind_prices[columns.kind]
            self.columns = columns.take(np.sort(np.argsort(reduced, kind="stable")[: MAX_COLUMNS // 2]))
        return prices


@dataclass(frozen=True)
class Pricer:
    """Finds the cheapest queues of one type of GPU for one weight when each of their tasks has a price.

    `weights` are of energy (1/J) and of the sum of JCTs (1/s).
    """

    kind: int
    batches: FeasibleBatches
    weights: tuple[float, float]

    @cached_property
    def _tables(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, IntArray]:
        """The first batch at each position, the batches and their sizes, and their best options' costs and indices."""
        sets = self.batches.sets
        options = self.batches.options
        n = len(self.batches.order)
        cost, option = _cheapest_options(options.begin, options.values, *self.weights, n)
        return np.searchsorted(sets[:, 0], np.arange(n + 1)), sets, (sets != EMPTY).sum(axis=1), cost, option

    def single_costs(self) -> FloatArray:
        """Return the cost of each task as a batch of one, for each number of tasks after it, shape (n, n)."""
        _, sets, size, cost, _ = self._tables
        singles = np.flatnonzero(size == 1)
        result = np.empty((len(self.batches.order), cost.shape[1]))
        result[self.batches.order[sets[singles, 0]]] = cost[singles]
        return result

    def __call__(self, prices: FloatArray) -> tuple[float, QueueColumns]:
        """Return the cheapest queues under prices, one for each number of tasks if it costs less than its prices.

        `prices` has the shape (n,). Returned are the least of cost less prices, at most 0 for the empty queue, and the
        queues.
        """
        first, sets, size, cost, option = self._tables
        order = self.batches.order
        options = self.batches.options
        value, choice = _price_queues(first, sets, size, cost, prices[order])
        lengths = np.flatnonzero(value < 0)
        n = len(order)
        energy_j = np.zeros(len(lengths))
        jct_s = np.zeros(len(lengths))
        holds = np.zeros((len(lengths), n))
        for index, length in enumerate(lengths.tolist()):
            rows = _trace_back(choice, length, sets, size)
            behind = length - np.cumsum(size[rows])
            own_j, own_s, end_s = options.values[option[rows, behind]].T
            energy_j[index] = own_j.sum()
            jct_s[index] = (own_s + behind * end_s).sum()
            positions = sets[rows]
            holds[index, order[positions[positions != EMPTY]]] = 1.0
        kinds = np.full(len(lengths), self.kind)
        return float(value.min()), QueueColumns(kinds, energy_j, jct_s, holds)


@njit(cache=True)
def _cheapest_options(
    begin: IntArray, values: FloatArray, per_j: float, per_s: float, n: int
) -> tuple[FloatArray, IntArray]:
    """Return the cost of the best option of every batch, for each number of tasks after it, and the option, (m, n).

    A batch that cannot run has an infinite cost and the option -1.
    """
    count = len(begin) - 1
    cost = np.full((count, n), np.inf)
    option = np.full((count, n), -1)
    for row in range(count):
        for candidate in range(begin[row], begin[row + 1]):
            own = per_j * values[candidate, 0] + per_s * values[candidate, 1]
            slope = per_s * values[candidate, 2]
            for behind in range(n):
                value = own + behind * slope
                if value < cost[row, behind]:
                    cost[row, behind] = value
                    option[row, behind] = candidate
    return cost, option


@njit(cache=True)
def _price_queues(
    first: IntArray, sets: IntArray, size: IntArray, cost: FloatArray, prices: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Return V(0, b) for each length b, shape (n + 1,), and the batch chosen at each state, -1 to skip the position."""
    n = len(prices)
    value = np.full((n + 1, n + 1), np.inf)
    choice = np.full((n + 1, n + 1), -1)
    value[n, 0] = 0.0
    for position in range(n - 1, -1, -1):
        for length in range(n + 1):
            value[position, length] = value[position + 1, length]
        for row in range(first[position], first[position + 1]):
            worth = 0.0
            for member in range(size[row]):
                worth += prices[sets[row, member]]
            after = sets[row, size[row] - 1] + 1
            for behind in range(n - after + 1):
                candidate = cost[row, behind] - worth + value[after, behind]
                if candidate < value[position, behind + size[row]]:
                    value[position, behind + size[row]] = candidate
                    choice[position, behind + size[row]] = row
    return value[0].copy(), choice


@njit(cache=True)
def _trace_back(choice: IntArray, length: int, sets: IntArray, size: IntArray) -> IntArray:
    """Return the batches of the cheapest queue of a length, in order."""
    rows = np.empty(length, dtype=np.int64)
    count = 0
    position = 0
    while length > 0:
        row = choice[position, length]
        if row < 0:
            position += 1
        else:
            rows[count] = row
            count += 1
            position = sets[row, size[row] - 1] + 1
            length -= size[row]
    return rows[:count].copy()
