"""A proven lower bound on every plan of the given freedom, and so the gap between a plan and the optimum.

For a weight, every plan is a choice of queues, one for each GPU at most, that hold each task. Letting queues be chosen
in parts gives a linear program with as many columns as there are queues; column generation solves it with those that
matter. Whatever the prices of the tasks, their sum plus what the cheapest queue of each GPU costs under them is a lower
bound (Lagrange), and pricing is exact, so that every iteration proves one and stopping early is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.enumeration import Possible, possible
from heshare.scheduling.objectives import FloatArray, IntArray
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.pricing import Pricer, Queues, no_queues

COLUMNS = 3000
"""Columns at which those that are too dear are dropped."""
DRAWN = 0.7
"""How far prices are drawn towards those of the best bound."""
PENALTY = 10.0
"""What leaving a task unserved costs, in costs of a task alone before all others: too much for the optimum."""
ROUNDING = 1e-9
"""Bounds are lowered by this share of themselves, far more than what rounding could add to a sum."""


@dataclass(frozen=True)
class Bound:
    """What no plan of the freedom can beat: for each weight, the least of energy + weight x average JCT.

    Attributes:
        weights: of energy (1/J) and average JCT (1/s), shape (f, 2).
        least: proven lower bounds of the weighted sums, shape (f,).
        relaxed: the linear program's value where it was solved to the end; otherwise above the bound, shape (f,).
        iterations: rounds of column generation, shape (f,).
    """

    weights: FloatArray
    least: FloatArray
    relaxed: FloatArray
    iterations: IntArray

    def gap_pct(self, objectives: FloatArray) -> FloatArray:
        """How far each point is from the bound, %: no plan is better by more than this in both objectives at once.

        Along the ray from a point towards zero energy and zero JCT, every weight's half-plane is left at some share;
        the first to be left counts. A point between two weights is measured against a bound that lies too low there:
        its gap is an upper bound, and the more weights, the tighter.

        Args:
            objectives: [energy in J, average JCT in s] of m points, shape (m, 2).
        """
        ratios: FloatArray = objectives @ self.weights.T / self.least
        gaps: FloatArray = 100.0 * (ratios.min(axis=1) - 1.0)
        return gaps

    def gaps_along_pct(self, objectives: FloatArray) -> FloatArray:
        """How far the best of m points is from the bound of each weight, %, shape (f,)."""
        best: FloatArray = (objectives @ self.weights.T).min(axis=0)
        return 100.0 * (best / self.least - 1.0)

    def envelope_s(self, energy_j: FloatArray) -> FloatArray:
        """The least average JCT that the bound allows at each energy, s; infinite below the least energy."""
        per_j, per_s = self.weights.T
        tilted = per_s > 0
        lines = (self.least[tilted] - np.outer(energy_j, per_j[tilted])) / per_s[tilted]
        floor = np.max(self.least[~tilted] / per_j[~tilted], initial=0.0)
        return np.where(energy_j < floor, np.inf, lines.max(axis=1, initial=0.0))


def along(objectives: FloatArray, count: int = 5) -> FloatArray:
    """Weights whose best points lie along a front: directions evenly spaced in the normalised plane, shape (count, 2).

    Args:
        objectives: [energy in J, average JCT in s] of a front, shape (m, 2).
        count: how many weights.
    """
    front = objectives[non_dominated(objectives)]
    span = np.where(np.ptp(front, axis=0) > 0, np.ptp(front, axis=0), front.max(axis=0))
    angle = np.pi / 2 * (np.arange(count) + 0.5) / count
    weights = np.stack((np.cos(angle) / span[0], np.sin(angle) / span[1]), axis=1)
    per_joule: FloatArray = weights / weights[:, :1]
    return per_joule


def lower_bound(costs: BatchCosts, weights: FloatArray, *, tolerance: float = 1e-4, iterations: int = 500) -> Bound:
    """Prove lower bounds, one for each weight.

    Args:
        costs: the batches and their options.
        weights: of energy (1/J) and average JCT (1/s), shape (f, 2).
        tolerance: stop when the bound is this close to the relaxation's value, relatively.
        iterations: rounds of column generation at most, for each weight.

    Raises:
        InputError: too many sets of tasks to list.
    """
    batches, world = possible(costs), costs.world
    gpus = np.bincount(world.kind_of, minlength=len(world.kinds)).astype(np.float64)
    columns, found = no_queues(world.n), []
    for per_j, per_s in weights.tolist():
        master = _Master(batches, gpus, (per_j, per_s / world.n))
        value, relaxed, rounds, columns = master.solve(columns, tolerance, iterations)
        found.append((value * (1 - ROUNDING), relaxed, rounds))
    values, limits, counts = map(np.array, zip(*found, strict=True))
    return Bound(weights, values, limits, counts)


class _Master:
    """Column generation for one weight.

    Args:
        batches: of each type of GPU.
        gpus: how many there are of each type, shape (kinds,).
        weights: of energy (1/J) and the sum of JCTs (1/s).
    """

    def __init__(self, batches: Sequence[Possible], gpus: FloatArray, weights: tuple[float, float]) -> None:
        self._pricers = [Pricer(kind, one, weights) for kind, one in enumerate(batches)]
        self._gpus, self._weights = gpus, weights
        self._n = len(batches[0].order)

    def solve(self, columns: Queues, tolerance: float, iterations: int) -> tuple[float, float, int, Queues]:
        """The proven bound, the relaxation's value, the rounds needed, and the columns that are worth keeping.

        Prices are drawn towards those of the best bound so far: the program's own swing from round to round.
        """
        centre, alone = self._guess()
        best, new = self._price(centre)
        columns = columns.together(*new)
        rounds, relaxed = 0, np.inf
        while rounds < iterations:
            rounds += 1
            relaxed, own, columns = self._relaxation(columns, PENALTY * alone)
            if relaxed - best <= tolerance * relaxed:
                break
            prices = DRAWN * centre + (1 - DRAWN) * own
            bound, new = self._price(prices)
            if bound > best:
                best, centre = bound, prices
            columns = columns.together(*new)
        return best, relaxed, rounds, columns

    def _guess(self) -> tuple[FloatArray, FloatArray]:
        """First prices, and what a task alone before all others costs at most, shape (n,) each."""
        typical = int(self._n / self._gpus.sum() / 2)
        costs = np.stack([pricer.alone() for pricer in self._pricers])
        finite = np.where(np.isfinite(costs), costs, 0.0)
        return costs[:, :, min(typical, self._n - 1)].min(axis=0), finite[:, :, -1].max(axis=0)

    def _price(self, prices: FloatArray) -> tuple[float, list[Queues]]:
        """The bound that prices prove, and the queues that they make attractive."""
        answers = [pricer(prices) for pricer in self._pricers]
        least = np.array([value for value, _ in answers])
        return float(prices.sum() + (self._gpus * least).sum()), [queues for _, queues in answers]

    def _relaxation(self, columns: Queues, penalty: FloatArray) -> tuple[float, FloatArray, Queues]:
        """Solve the linear program over some columns; a task may stay unserved at a penalty.

        Returns:
            Its value, the tasks' prices, and the columns without those that are far too dear at these prices.
        """
        cost = self._weights[0] * columns.energy_j + self._weights[1] * columns.jct_s
        kinds = np.arange(len(self._gpus))[:, None] == columns.kind
        served = np.concatenate((columns.holds, np.eye(self._n))).T
        used = np.concatenate((kinds, np.zeros((len(kinds), self._n))), axis=1)
        limits = np.concatenate((-np.ones(self._n), self._gpus))
        every = np.concatenate((cost, penalty))
        solved = linprog(
            every, A_ub=np.concatenate((-served, used)), b_ub=limits, method="highs-ds", options={"presolve": False}
        )
        if not solved.success:
            raise ArithmeticError(f"the linear program of the bound failed: {solved.message}")
        prices, rent = -solved.ineqlin.marginals[: self._n], solved.ineqlin.marginals[self._n :]
        if len(columns) > COLUMNS:
            reduced = cost - columns.holds @ prices - rent[columns.kind]
            columns = columns.take(np.sort(np.argsort(reduced, kind="stable")[: COLUMNS // 2]))
        return float(solved.fun or 0.0), prices, columns
