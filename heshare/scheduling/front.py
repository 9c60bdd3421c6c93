"""The Pareto front of a task set: plans that do not dominate each other, and the three that the paper names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, SupportsIndex, cast, overload

import numpy as np
import pandas as pd

from heshare.scheduling.pareto import knee
from heshare.scheduling.plan import Plan
from heshare.shared import display
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require, unknown

PlanChoice = Literal["trade-off", "en-opt", "jct-opt"]
"""The three plans of a front that the paper names (Section IV, baselines 3 and 4)."""


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
