"""HeShare: Trade-off, En-opt and JCT-opt, three points of one Pareto front; and Sched-only, its first stage alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from heshare.policies.description import Value
from heshare.policies.fronts import NOTHING, Planner
from heshare.policies.policy import Policy, Traits
from heshare.policies.registry import register
from heshare.policies.release import ReleasesPlan
from heshare.prediction.predictor import Predictor
from heshare.scheduling import planner
from heshare.scheduling.plan import Batch
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task

Choice = Literal["trade-off", "en-opt", "jct-opt"]


class HeShare(ReleasesPlan):
    """One plan of HeShare's final front, released batch by batch.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        planner: where its fronts come from, with or without parts of HeShare; shared by policies that plan alike.
    """

    def __init__(self, choice: Choice = "trade-off", *, planner: Planner | None = None) -> None:
        self.name = f"heshare:{choice}"
        self.choice = choice
        self.planner = planner or Planner()
        self.borrowed = NOTHING
        settings = self.planner.settings
        self.traits = Traits(
            frequency=settings.clock_scope != "none",
            multi_task=settings.batching != "single",
            heterogeneous=self.planner.placement == "heshare",
        )

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


@register("sched-only", title="Sched-only")
class SchedOnly(ReleasesPlan):
    """The first stage alone: its knee, in memory-fitting batches in SPT order at 100 % and the card's own clock.

    Args:
        settings: how to plan.
    """

    name = "sched-only"
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(self, settings: Settings = planner.DEFAULTS) -> None:
        self._settings = settings

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """The batches of stage 1's knee."""
        return planner.sched_only(tasks, self.cluster, self.predictor, rng=self.rng, settings=self._settings).queues


PARAMETERS: Mapping[str, Value] = MappingProxyType(
    {
        **{each.name: getattr(Settings(), each.name) for each in fields(Settings)},
        "placement": "heshare",
        "belief": "predictor",
    }
)
"""What a description such as `heshare:trade-off(clocks=6)` may change: all settings, and the planner's two."""

ABLATIONS: Mapping[str, tuple[str, Mapping[str, Value]]] = MappingProxyType(
    {
        "random-placement": ("random placement", {"placement": "random"}),
        "no-mps": ("everybody at 100 %", {"mps_goal": "none"}),
        "no-clock": ("the card's own clock", {"clock_scope": "none"}),
        "no-batches": ("one task at a time", {"batching": "single"}),
        "true-predictor": ("a predictor never wrong", {"belief": "device"}),
    }
)
"""Trade-off with one part taken away: the name after the slash, what it means, and the parameters that do it."""


def _heshare(choice: Choice, **changed: Any) -> HeShare:
    planned = {key: changed.pop(key) for key in ("placement", "belief") if key in changed}
    return HeShare(choice, planner=Planner(Settings(**changed), **planned))


@register("heshare:trade-off", title="Trade-off", parameters=PARAMETERS)
def trade_off(**changed: Value) -> HeShare:
    """HeShare's Trade-off, with some of `PARAMETERS` changed."""
    return _heshare("trade-off", **changed)


@register("heshare:en-opt", title="En-opt", parameters=PARAMETERS)
def en_opt(**changed: Value) -> HeShare:
    """HeShare's En-opt, with some of `PARAMETERS` changed."""
    return _heshare("en-opt", **changed)


@register("heshare:jct-opt", title="JCT-opt", parameters=PARAMETERS)
def jct_opt(**changed: Value) -> HeShare:
    """HeShare's JCT-opt, with some of `PARAMETERS` changed."""
    return _heshare("jct-opt", **changed)


for _name, (_meaning, _preset) in ABLATIONS.items():
    register(f"heshare:trade-off/{_name}", title=f"Trade-off, {_meaning}", parameters=PARAMETERS, preset=_preset)(
        trade_off
    )


def share_fronts(policies: Iterable[Policy]) -> None:
    """Let those among `policies` that plan with equal settings plan each front, and search each scheme, only once."""
    common: dict[object, Planner] = {}
    for policy in policies:
        for holder in (policy, getattr(policy, "placement", None)):
            planner = getattr(holder, "planner", None)
            if isinstance(planner, Planner):
                cast(Any, holder).planner = common.setdefault(planner.kind, planner)
