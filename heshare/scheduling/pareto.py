"""Pareto fronts of energy and average JCT: filters, crowding, the knee, hypervolume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import moocore
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heshare.errors import InputError
from heshare.scheduling.plan import Plan

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def significant(values: FloatArray, digits: int = 10) -> FloatArray:
    """Round to significant digits, so that the last bits of a sum decide nothing; any shape, zeros stay."""
    with np.errstate(divide="ignore"):
        magnitude = np.floor(np.log10(np.abs(values)))
    scale = 10.0 ** (digits - 1 - np.where(np.isfinite(magnitude), magnitude, 0.0))
    rounded: FloatArray = np.round(values * scale) / scale
    return rounded


def non_dominated(objectives: FloatArray) -> BoolArray:
    """Which of m points no other dominates, shape (m, 2) -> (m,); of equal points only the first counts."""
    return dominance(significant(objectives))


def dominance(rounded: FloatArray) -> BoolArray:
    """`non_dominated` of objectives that `significant` has rounded already, shape (m, 2) -> (m,)."""
    if len(rounded) == 0:
        return np.zeros(0, dtype=bool)
    return cast(BoolArray, moocore.is_nondominated(rounded))


def ranks(objectives: FloatArray) -> IntArray:
    """Non-dominated sorting: the front (0 is the best) of each of m points, shape (m, 2) -> (m,).

    Repeats of a point come behind all other points, so that a population keeps no doubles by choice.
    """
    rounded = significant(objectives)
    rank = np.asarray(moocore.pareto_rank(rounded), dtype=np.int64)
    order = np.lexsort((rounded[:, 1], rounded[:, 0]))
    doubled = np.zeros(len(rank), dtype=bool)
    doubled[order[1:]] = np.all(rounded[order[1:]] == rounded[order[:-1]], axis=1)
    rank[doubled] += len(rank)
    return rank


def crowding(objectives: FloatArray, rank: IntArray) -> FloatArray:
    """Crowding distance of each of m points within its front, shape (m,); ends of a front are infinite."""
    distance = np.zeros(len(objectives))
    for column in range(objectives.shape[1]):
        order = np.lexsort((objectives[:, column], rank))
        value, front = objectives[order, column], rank[order]
        first, last = np.ones(len(front), dtype=bool), np.ones(len(front), dtype=bool)
        first[1:] = last[:-1] = front[1:] != front[:-1]
        span = (value[last] - value[first])[np.cumsum(first) - 1]
        gap = np.full(len(front), np.inf)
        gap[1:-1] = value[2:] - value[:-2]
        gap[first | last] = np.inf
        distance[order] += np.divide(gap, span, out=np.full(len(gap), np.inf), where=span > 0)
    return distance


def thin(objectives: FloatArray, limit: int) -> IntArray:
    """Indices of at most `limit` points of a front, in order of energy, evenly spaced along it with both ends.

    Args:
        objectives: mutually non-dominated points, shape (m, 2).
        limit: how many to keep, at least 2.
    """
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    if len(order) <= limit:
        return order
    scaled = normalised(objectives[order])
    along = np.zeros(len(order))
    along[1:] = np.cumsum(np.abs(np.diff(scaled, axis=0)).sum(axis=1))
    marks = np.searchsorted(along, np.linspace(0.0, along[-1], limit))
    kept: IntArray = order[np.unique(np.minimum(marks, len(order) - 1))]
    return kept


def ideal(objectives: FloatArray) -> FloatArray:
    """The best value of each objective, shape (2,)."""
    return cast(FloatArray, objectives.min(axis=0))


def nadir(objectives: FloatArray) -> FloatArray:
    """The worst value of each objective on the front of these points, shape (2,)."""
    return cast(FloatArray, objectives[non_dominated(objectives)].max(axis=0))


def normalised(objectives: FloatArray) -> FloatArray:
    """Objectives scaled so that the front's ideal point is (0, 0) and its nadir (1, 1); a flat one becomes 0."""
    best, span = ideal(objectives), nadir(objectives) - ideal(objectives)
    scaled: FloatArray = np.divide(objectives - best, span, out=np.zeros(objectives.shape), where=span > 0)
    return scaled


def knee(objectives: FloatArray) -> int:
    """Index of the point with the least normalised Euclidean distance to the ideal point; ties: least energy."""
    distance = significant(np.linalg.norm(normalised(objectives), axis=1))
    return int(np.lexsort((objectives[:, 0], distance))[0])


def hypervolume(objectives: FloatArray, reference: FloatArray) -> float:
    """Area dominated by m points and bounded by a reference point, J s; more is better."""
    return float(moocore.hypervolume(objectives, ref=reference))


@dataclass(frozen=True)
class Front:
    """The final Pareto front PS' of Algorithm 1: plans of which none is better in both objectives.

    Attributes:
        plans: the plans in order of energy.
        objectives: [energy in J, average JCT in s] of each, shape (m, 2).
        predictor_rows: rows that the predictor answered to find them.

    Raises:
        InputError: there is no plan.
    """

    plans: tuple[Plan, ...]
    objectives: FloatArray
    predictor_rows: int = 0

    def __post_init__(self) -> None:
        if not self.plans or self.objectives.shape != (len(self.plans), 2):
            raise InputError(
                column="front",
                found=f"{len(self.plans)} plans and objectives of shape {self.objectives.shape}",
                expected="at least one plan and two objectives for each",
                action="Plan at least one task.",
            )

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def trade_off(self) -> Plan:
        """Trade-off: the knee, the plan with the least normalised distance to the ideal point."""
        return self.plans[knee(self.objectives)]

    @property
    def en_opt(self) -> Plan:
        """En-opt: the plan with the least energy."""
        return self.plans[int(np.lexsort((self.objectives[:, 1], self.objectives[:, 0]))[0])]

    @property
    def jct_opt(self) -> Plan:
        """JCT-opt: the plan with the least average JCT."""
        return self.plans[int(np.lexsort((self.objectives[:, 0], self.objectives[:, 1]))[0])]

    def to_frame(self) -> pd.DataFrame:
        """One row a plan: `energy_j`, `jct_s`, and which of the three named plans it is (`choice`)."""
        choice = np.full(len(self), "", dtype=object)
        named = (("Trade-off", self.trade_off), ("En-opt", self.en_opt), ("JCT-opt", self.jct_opt))
        for name, plan in named:
            index = next(i for i, one in enumerate(self.plans) if one is plan)
            choice[index] = f"{choice[index]}/{name}".lstrip("/")
        return pd.DataFrame({"energy_j": self.objectives[:, 0], "jct_s": self.objectives[:, 1], "choice": choice})
