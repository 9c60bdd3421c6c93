"""HeShare+: the improved scheduler's Trade-off, En-opt and JCT-opt, released like HeShare's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heshare.policies.description import check
from heshare.policies.fronts import NOTHING, PlusPlanner
from heshare.policies.heshare import Choice
from heshare.policies.policy import Traits
from heshare.policies.registry import register
from heshare.policies.release import ReleasesPlan
from heshare.prediction.predictor import Predictor
from heshare.scheduling.effort import DEFAULT
from heshare.scheduling.plan import Batch
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class HeSharePlus(ReleasesPlan):
    """One plan of the improved scheduler's front, released batch by batch.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        rounds: how long to search when no budget is given; the same seed then gives the same plan.
        budget_s: search for so many seconds instead, s; 0 for none. The plan then depends on the machine's speed.

    Raises:
        InputError: fewer than one round, or a budget below zero.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, choice: Choice = "trade-off", *, rounds: int = DEFAULT.rounds, budget_s: float = 0.0) -> None:
        check("budget_s", budget_s, budget_s >= 0, "seconds, at least 0")
        self.name = f"heshare+:{choice}"
        self.choice = choice
        self.planner = PlusPlanner(replace(DEFAULT, rounds=rounds), budget_s or None)
        self.borrowed = NOTHING

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every plan, and what was borrowed."""
        super().reset(cluster, predictor, rng)
        self.borrowed = NOTHING

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """The batches of the chosen plan."""
        front, cost = self.planner.front(tasks, self.cluster, self.predictor, self.rng)
        self.borrowed = self.borrowed + cost
        chosen = {"trade-off": front.trade_off, "en-opt": front.en_opt, "jct-opt": front.jct_opt}[self.choice]
        return chosen.queues


# Forms of HeShare, so that a comparison of all systems is not slower for them: they are asked for by name.
@register("heshare+:trade-off", title="HeShare+ Trade-off", preset={})
def trade_off(*, rounds: int = DEFAULT.rounds, budget_s: float = 0.0) -> HeSharePlus:
    """The improved scheduler's Trade-off."""
    return HeSharePlus("trade-off", rounds=rounds, budget_s=budget_s)


@register("heshare+:en-opt", title="HeShare+ En-opt", preset={})
def en_opt(*, rounds: int = DEFAULT.rounds, budget_s: float = 0.0) -> HeSharePlus:
    """The improved scheduler's En-opt."""
    return HeSharePlus("en-opt", rounds=rounds, budget_s=budget_s)


@register("heshare+:jct-opt", title="HeShare+ JCT-opt", preset={})
def jct_opt(*, rounds: int = DEFAULT.rounds, budget_s: float = 0.0) -> HeSharePlus:
    """The improved scheduler's JCT-opt."""
    return HeSharePlus("jct-opt", rounds=rounds, budget_s=budget_s)
