"""The Pareto front of a task set: plans that do not dominate each other, and the three that the paper names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, SupportsIndex, cast, overload

import numpy as np
import pandas as pd

from heshare.scheduling.pareto import knee, non_dominated_indices, round_significant
from heshare.scheduling.plan import Plan
from heshare.shared import display
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require, unknown
from heshare.shared.extras import require_extra
from heshare.shared.html_tables import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PlanChoice = Literal["trade-off", "en-opt", "jct-opt"]
"""The three plans of a front that the paper names (Section IV, baselines 3 and 4)."""


@dataclass(frozen=True)
class Front:
    """The final Pareto front PS' (Algorithm 1, line 23): plans that do not dominate each other.

    Fronts of equal plans are equal. `front[3]` is a plan, `front[3:6]` a front. `Front.of` makes one of any plans.

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
        >>> hs.Front.of([front.jct_opt, front.en_opt])
        Front(2 plans, 636 to 784 kJ, average JCT 1,987 to 4,702 s)
    """

    plans: Sequence[Plan]
    objectives: FloatArray = field(compare=False)
    predictor_rows: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        found = f"{len(self.plans)} plans and objectives of shape {self.objectives.shape}"
        good = bool(self.plans) and self.objectives.shape == (len(self.plans), 2)
        require("front", found, good, "at least one plan and two objectives for each", "Plan at least one task.")

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> Self:
        """Return the front of plans by their own energy and average JCT, without those that another one dominates.

        `hs.evaluate` gives a plan its predicted values.

        Raises:
            InputError: no plan, plans of different tasks or clusters, or values that are not finite and above zero.
        """
        given = tuple(plans) if isinstance(plans, Iterable) else (plans,)
        good = bool(given) and all(isinstance(plan, Plan) for plan in given)
        require("plans", f"{len(given)} of which not all are plans", good, "at least one Plan", "Pass plans.")

        same = len({(plan.tasks, plan.cluster) for plan in given}) == 1
        require("plans", "plans of different tasks or clusters", same, "one task set on one cluster", "Compare others.")

        objectives = np.array([(plan.energy_j, plan.jct_s) for plan in given], dtype=np.float64)
        good = bool((np.isfinite(objectives) & (objectives > 0)).all())
        action = "Take hs.evaluate(...).plan."
        require("plans", "an energy_j or jct_s of none", good, "finite values above zero", action)

        kept = non_dominated_indices(*round_significant(objectives).T)
        return cls(tuple([given[place] for place in kept]), objectives[kept])

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

    def plot(self) -> Figure:
        """Return a figure of the front: average JCT against energy, with the three named plans.

        Raises:
            InputError: matplotlib is not installed.
        """
        require_extra("figures", "a plot")
        import matplotlib.pyplot as plt

        frame = self.to_frame().sort_values(["energy_j", "jct_s"])
        energy_mj = frame["energy_j"] / 1e6
        jct_ks = frame["jct_s"] / 1e3

        # Every plan dominates all that is above and to the right of it, so a front is a staircase.
        fig, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
        ax.plot(energy_mj, jct_ks, color="0.6", drawstyle="steps-post", marker=".", label="Pareto front")

        named = frame["choice"].unique()
        for name, marker in zip(named[named != ""], "osv", strict=False):
            chosen = frame["choice"] == name
            ax.scatter(energy_mj[chosen], jct_ks[chosen], marker=marker, zorder=3, label=name)

        ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")
        ax.legend()
        plt.close(fig)  # Jupyter shows the figure that is returned, and only that
        return fig
