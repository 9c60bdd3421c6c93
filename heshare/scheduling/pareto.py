"""Pareto fronts of energy and average JCT (Eq. 10): filters, crowding distance, knee, `Front`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, SupportsIndex, cast, overload

import numpy as np
import pandas as pd

from heshare.scheduling.plan import Plan
from heshare.shared import display
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled
from heshare.shared.errors import require, unknown

PlanChoice = Literal["trade-off", "en-opt", "jct-opt"]
"""The three plans of a front that the paper names (Section IV, baselines 3 and 4)."""


_LARGEST = 308
with np.errstate(over="ignore", under="ignore"):
    _POWERS_OF_10 = 10.0 ** np.arange(-_LARGEST, 2 * _LARGEST + 1.0)


def round_significant(values: FloatArray, digits: int = 10) -> FloatArray:
    """Return the values rounded to significant digits, any shape; zeros stay.

    Comparisons of rounded values do not depend on the last bits of a sum, which differ with the order of its terms.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).ravel()
    return rounded_values(flat, digits).reshape(np.shape(values))


@compiled
def rounded_values(values: FloatArray, digits: int = 10) -> FloatArray:
    """Return m values rounded as by `round_significant`, shape (m,), for compiled functions."""
    rounded = np.empty(len(values))
    for place in range(len(values)):
        value = values[place]
        magnitude = int(np.floor(np.log10(np.abs(value)))) if value != 0.0 and np.isfinite(value) else 0
        scale = _POWERS_OF_10[_LARGEST + digits - 1 - magnitude]
        rounded[place] = np.rint(value * scale) / scale
    return rounded


@compiled
def non_dominated_indices(energy_j: FloatArray, jct_s: FloatArray, tolerance: float = 0.0) -> IntArray:
    """Return the indices of the points that no other point dominates, in order of energy.

    The sweep goes through the points in order of energy and keeps each one whose JCT is below all JCTs before it. Of
    equal points it keeps the first. Compiled, so that other compiled functions can call it. A point must be better in
    JCT by more than the share `tolerance` of it.
    """
    order = np.argsort(energy_j, kind="mergesort")
    kept, place, lowest_s = 0, 0, np.inf
    while place < len(order):
        # Of points with equal energy, only the first one with the least JCT can stay.
        point = order[place]
        place += 1
        while place < len(order) and energy_j[order[place]] == energy_j[point]:
            if jct_s[order[place]] < jct_s[point]:
                point = order[place]
            place += 1
        if jct_s[point] < lowest_s * (1 - tolerance):
            lowest_s = jct_s[point]
            order[kept] = point
            kept += 1
    return order[:kept].copy()


def non_dominated(objectives: FloatArray) -> BoolArray:
    """Return which of m points no other point dominates, shape (m, 2) -> (m,); of equal points the first."""
    rounded = round_significant(objectives)
    mask = np.zeros(len(rounded), dtype=bool)
    mask[non_dominated_indices(rounded[:, 0], rounded[:, 1])] = True
    return mask


def thin(objectives: FloatArray, limit: int) -> IntArray:
    """Return the indices of at most `limit` points of a front, in order of energy, evenly spaced, with both ends.

    The objectives are mutually non-dominated, shape (m, 2); `limit` is at least 2.
    """
    energy_j, jct_s = objectives[:, 0].copy(), objectives[:, 1].copy()
    return thin_ordered(energy_j, jct_s, np.lexsort((jct_s, energy_j)), limit)


@compiled
def thin_ordered(energy_j: FloatArray, jct_s: FloatArray, order: IntArray, limit: int) -> IntArray:
    """Return those indices of a front's points, given in order of energy, that `thin` keeps."""
    count = len(order)
    if count <= limit:
        return order
    points_j, points_s = energy_j[order], jct_s[order]
    least_j, least_s = points_j.min(), points_s.min()
    span_j, span_s = points_j.max() - least_j, points_s.max() - least_s
    along, before_j, before_s = np.zeros(count), 0.0, 0.0
    for place in range(count):
        scaled_j = (points_j[place] - least_j) / span_j if span_j > 0.0 else 0.0
        scaled_s = (points_s[place] - least_s) / span_s if span_s > 0.0 else 0.0
        if place > 0:
            along[place] = along[place - 1] + (abs(scaled_j - before_j) + abs(scaled_s - before_s))
        before_j, before_s = scaled_j, scaled_s
    kept, number, place = np.zeros(limit, dtype=np.int64), 0, 0
    for mark in range(limit):
        at = along[-1] if mark == limit - 1 else mark * (along[-1] / (limit - 1))
        while place < count - 1 and along[place] < at:
            place += 1
        if number == 0 or kept[number - 1] != place:
            kept[number] = place
            number += 1
    return order[kept[:number]]


def ideal(objectives: FloatArray) -> FloatArray:
    """Return the ideal point, the best value of each objective, shape (2,)."""
    return cast(FloatArray, objectives.min(axis=0))


def nadir(objectives: FloatArray) -> FloatArray:
    """Return the nadir point, the worst value of each objective on the front of these points, shape (2,)."""
    return cast(FloatArray, objectives[non_dominated(objectives)].max(axis=0))


def normalised(objectives: FloatArray) -> FloatArray:
    """Return the objectives scaled to ideal point (0, 0) and nadir (1, 1); an objective without a range becomes 0."""
    return _scaled(objectives, nadir(objectives))


def _scaled(objectives: FloatArray, worst: FloatArray) -> FloatArray:
    best = ideal(objectives)
    span = worst - best
    scaled: FloatArray = np.divide(objectives - best, span, out=np.zeros(objectives.shape), where=span > 0)
    return scaled


def knee(objectives: FloatArray) -> int:
    """Return the index of the knee, the point nearest to the ideal point; of equally near ones the least energy.

    The distance is Euclidean between normalised objectives. The paper does not define how Trade-off is chosen.

    Example:
        >>> import numpy as np
        >>> knee(np.array([[1.0, 9.0], [2.0, 3.0], [8.0, 1.0]]))
        1
    """
    distance = round_significant(np.linalg.norm(normalised(objectives), axis=1))
    return int(np.lexsort((objectives[:, 0], distance))[0])


@dataclass(frozen=True)
class Front:
    """The final Pareto front PS' (Algorithm 1, line 23): plans that do not dominate each other.

    Fronts of equal plans are equal. `front[3]` is a plan, `front[3:6]` a front.

    Attributes:
        plans: in order of energy; a tuple, or a sequence that builds them when they are accessed.
        objectives: [energy in J, average JCT in s] of each, shape (m, 2).
        predictor_rows: rows predicted during planning.

    Raises:
        InputError: there is no plan.

    Example:
        >>> import heshare as hs
        >>> front = hs.plan(4, "1xT4,1xA100")
        >>> front[0] == front.en_opt, front[-1] == front.jct_opt
        (True, True)
        >>> front.to_frame().columns.tolist()
        ['energy_j', 'jct_s', 'choice']
    """

    plans: Sequence[Plan]
    objectives: FloatArray = field(compare=False)
    predictor_rows: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        found = f"{len(self.plans)} plans and objectives of shape {self.objectives.shape}"
        good = bool(self.plans) and self.objectives.shape == (len(self.plans), 2)
        require("front", found, good, "at least one plan and two objectives for each", "Plan at least one task.")

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Plan: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Plan | Self:
        if isinstance(index, slice):
            return replace(self, plans=self.plans[index], objectives=self.objectives[index])
        return self.plans[index.__index__()]

    def __repr__(self) -> str:
        (least_j, least_s), (most_j, most_s) = self.objectives.min(axis=0), self.objectives.max(axis=0)
        spans = f"{display.energy_span(least_j, most_j)}, average JCT {display.time_span(least_s, most_s)}"
        return f"Front({len(self)} plans, {spans})"

    def _repr_html_(self) -> str:
        from heshare.shared.html_tables import html_table

        return html_table(self, self.to_frame())

    @property
    def trade_off(self) -> Plan:
        """Trade-off: the plan at the knee."""
        return self.choose("trade-off")

    @property
    def en_opt(self) -> Plan:
        """En-opt: the plan with the least energy."""
        return self.choose("en-opt")

    @property
    def jct_opt(self) -> Plan:
        """JCT-opt: the plan with the least average JCT."""
        return self.choose("jct-opt")

    def choose(self, choice: PlanChoice) -> Plan:
        """Return one of the three named plans; an `InputError` for another name."""
        named = self._named()
        if choice not in named:
            raise unknown(choice, named, column="choice")
        return self.plans[named[choice]]

    def _named(self) -> dict[PlanChoice, int]:
        energy_j, jct_s = self.objectives.T
        en_opt, jct_opt = int(np.lexsort((jct_s, energy_j))[0]), int(np.lexsort((energy_j, jct_s))[0])
        return {"trade-off": knee(self.objectives), "en-opt": en_opt, "jct-opt": jct_opt}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per plan: `energy_j`, `jct_s`, and `choice`, the names of the plan among the three."""
        choice = np.full(len(self), "", dtype=object)
        named = self._named()
        for name, title in (("trade-off", "Trade-off"), ("en-opt", "En-opt"), ("jct-opt", "JCT-opt")):
            index = named[cast(PlanChoice, name)]
            choice[index] = f"{choice[index]}/{title}".lstrip("/")
        return pd.DataFrame({"energy_j": self.objectives[:, 0], "jct_s": self.objectives[:, 1], "choice": choice})
