"""HeShare's policies: three plans of one front, their ablations, the paper's words literally, and Sched-only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.plan_release import PlanReleasePolicy
from heshare.policies.policy import ReusedPlanning, Traits
from heshare.policies.registry import Value, register
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import PlanChoice
from heshare.scheduling.plan import Batch
from heshare.scheduling.settings import DEFAULTS, LITERAL, Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TITLES: Mapping[PlanChoice, str] = {"trade-off": "Trade-off", "en-opt": "En-opt", "jct-opt": "JCT-opt"}
"""The three plans of a front that a policy may choose, and their titles."""

PARAMETERS: Mapping[str, Value] = MappingProxyType(
    {
        **{field.name: getattr(DEFAULTS, field.name) for field in fields(Settings)},
        "placement": "heshare",
        "belief": "predictor",
    }
)
"""Parameters of a description such as `heshare:trade-off(clocks=6)`: all settings, and two of `CachedPlanner`.

`belief` is its `predicts_with`; results are stored under this name.
"""

ABLATIONS: Mapping[str, tuple[str, Mapping[str, Value]]] = MappingProxyType(
    {
        "random-placement": ("no placement", {"placement": "random"}),
        "no-mps": ("no MPS percentages", {"mps_goal": "none"}),
        "no-clock": ("no clocks", {"clock_scope": "none"}),
        "no-batches": ("no sharing", {"batching": "single"}),
        "true-predictor": ("no prediction errors", {"belief": "device"}),
    }
)
"""Trade-off without one of its parts: the name after the slash, what is left out, and its parameters."""


class FrontPolicy(PlanReleasePolicy):
    """Policy that plans a Pareto front and releases one of its plans batch by batch.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        planner: plans the fronts; policies that plan alike may share it.

    Attributes:
        reused: planning that was taken from the planner's cache since the last reset.
    """

    def __init__(self, choice: PlanChoice, planner: CachedPlanner) -> None:
        self.choice, self.planner = choice, planner
        self.reused = ReusedPlanning()

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all plans and the account of reused planning."""
        super().reset(cluster, predictor, rng)
        self.reused = ReusedPlanning()

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of the chosen plan."""
        front, reused = self.planner.front(tasks, self.cluster, self.predictor, self.rng)
        self.reused = self.reused + reused
        return front.choose(self.choice).queues


class HeShare(FrontPolicy):
    """HeShare's Trade-off (the knee), En-opt (least energy) or JCT-opt (least average JCT)."""

    def __init__(self, choice: PlanChoice = "trade-off", *, planner: CachedPlanner | None = None) -> None:
        super().__init__(choice, planner or CachedPlanner())
        self.name = f"heshare:{choice}"
        settings = self.planner.settings
        self.traits = Traits(
            frequency=settings.clock_scope != "none",
            multi_task=settings.batching != "single",
            heterogeneous=self.planner.placement == "heshare",
        )


@register("sched-only", title="Sched-only", parameters={})
@register("sched-only:all-at-once", title="Sched-only, all at once", parameters={}, preset={"all_at_once": True})
class SchedOnly(FrontPolicy):
    """Sched-only (Section IV, baseline 2): stage 1 without resource configuration.

    Each GPU runs its queue one task at a time in SPT order, as stage 1 evaluates it.

    Args:
        settings: of stage 1.
        all_at_once: run as many of a GPU's tasks together as memory and the MPS clients allow, at 100 % each.
    """

    name = "sched-only"

    def __init__(self, settings: Settings = DEFAULTS, all_at_once: bool = False) -> None:
        super().__init__("trade-off", CachedPlanner(settings))
        self.traits = Traits(frequency=False, multi_task=all_at_once, heterogeneous=True)
        self._all_at_once = all_at_once

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of stage 1's knee."""
        planned, reused = self.planner.sched_only(
            tasks, self.cluster, self.predictor, self.rng, all_at_once=self._all_at_once
        )
        self.reused = self.reused + reused
        return planned.queues


def _factory(choice: PlanChoice) -> Callable[..., HeShare]:
    def make(*, placement: str = "heshare", belief: str = "predictor", **settings: Any) -> HeShare:
        planner = CachedPlanner(Settings(**settings), placement=placement, predicts_with=belief)
        return HeShare(choice, planner=planner)

    return make


for _choice, _title in TITLES.items():
    register(f"heshare:{_choice}", title=_title, parameters=PARAMETERS)(_factory(_choice))
    register(f"heshare:{_choice}/literal", title=f"{_title}, literally", parameters=PARAMETERS, preset=LITERAL)(
        _factory(_choice)
    )
for _name, (_part, _preset) in ABLATIONS.items():
    register(f"heshare:trade-off/{_name}", title=f"Trade-off, {_part}", parameters=PARAMETERS, preset=_preset)(
        _factory("trade-off")
    )
