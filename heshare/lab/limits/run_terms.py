"""Terms of a run beside its tasks, cluster and policy: a limit on the sum of power, and a price of energy.

Runs, sweeps, plans and the executor take them as one argument, which wraps their policy and can be kept as JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from heshare.lab.limits.budget_policy import BudgetSettings, check_cluster, within_budget
from heshare.lab.limits.power_budget import PowerBudget
from heshare.lab.limits.prices.price_terms import PriceSource, PriceTerms
from heshare.lab.limits.prices.signal_cost import run_cost
from heshare.policies.policy import Policy
from heshare.running.result import Run
from heshare.shared.errors import require
from heshare.world.cluster import Cluster

PowerLimit = PowerBudget | float | str | Path | None
"""Limit on the sum of the GPUs' power: watts, the path of a CSV file with time_s and limit_w, a `PowerBudget`, none."""


@dataclass(frozen=True, slots=True)
class RunTerms:
    """Terms of a run; without any, `wrap` returns the policy itself."""

    power_limit: PowerBudget | None = None
    price: PriceTerms | None = None

    @classmethod
    def parse(
        cls, power_limit: PowerLimit = None, price: PriceSource | PriceTerms | None = None, hold_s: float | None = None
    ) -> Self:
        """Return the terms of values as users write them.

        `price` is a signal, the path of its file, or terms with a saving of their own; `hold_s` is the longest wait for
        cheap energy, None for `HOLD_S`.

        Raises:
            InputError: no limit that `PowerBudget.parse` reads, no price that `PriceTerms.parse` reads, `hold_s` alone.
        """
        good = hold_s is None or price is not None
        require("hold_s", f"{hold_s} without a price", good, "a price beside it", "Name one, or leave out hold_s.")
        return cls(
            None if power_limit is None else PowerBudget.parse(power_limit),
            None if price is None else PriceTerms.parse(price, hold_s),
        )

    def check(self, cluster: Cluster) -> None:
        """Raise `InputError` if a cluster can never keep the limit."""
        if self.power_limit is not None:
            check_cluster(cluster, self.power_limit)

    def wrap(self, policy: Policy, settings: BudgetSettings | None = None) -> Policy:
        """Return the policy under these terms; `settings` are those of the power limit."""
        priced = policy if self.price is None else self.price.wrap(policy)
        return within_budget(priced, self.power_limit, settings)

    def later(self, elapsed_s: float) -> Self:
        """Return the terms of a session that begins so long after the start of the run, s: the rest of the limit."""
        return self if self.power_limit is None else replace(self, power_limit=self.power_limit.shifted(elapsed_s))

    def columns(self, done: Run) -> dict[str, float]:
        """Return what a run costs, or emits, by the names of a result's columns; nothing without a price."""
        return {} if self.price is None else run_cost(done, self.price.signal).columns()

    def to_json(self) -> dict[str, Any]:
        """Return the terms as JSON values, those alone that there are."""
        limit = {} if self.power_limit is None else {"power_limit": self.power_limit.to_json()}
        return limit if self.price is None else {**limit, "price": msgspec.to_builtins(self.price)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the terms of `to_json`; other keys do not count."""
        limit, price = values.get("power_limit"), values.get("price")
        return cls(
            None if limit is None else PowerBudget.of_json(limit),
            None if price is None else msgspec.convert(price, PriceTerms),
        )


NO_TERMS = RunTerms()
