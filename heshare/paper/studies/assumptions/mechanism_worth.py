"""Trade-off without each of its mechanisms, and what its plans promise."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.heshare import HeShare
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import configure
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import Front
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import IntArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WHOLE, PLACEMENT, ORDER = "Trade-off", "placement", "order"
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "sharing": {"batching": "single"},
    "MPS percentages": {"mps_goal": "none"},
    "clocks": {"clock_scope": "none"},
    PLACEMENT: {},
    ORDER: {},
}
"""The settings without each mechanism. Without placement a task's GPU is drawn; without order (SPT) tasks start as they
are numbered, in both stages."""
REMOVED = tuple(WITHOUT)


class _AsNumbered(Instance):
    """An instance whose GPUs run their tasks in the order of their numbers, which is random in a drawn set."""

    @cached_property
    def order_of_kind(self) -> IntArray:
        return np.tile(np.arange(self.n), (len(self.kinds), 1))

    @cached_property
    def order(self) -> IntArray:
        return np.tile(np.arange(self.n), (self.k, 1))


class _WithoutOrder(CachedPlanner):
    def _plan_front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> Front:
        made = make_instance(tasks, cluster, predictor)
        instance = _AsNumbered(**{each.name: getattr(made, each.name) for each in fields(Instance)})
        return Front(*configure(self._search(instance, rng), instance, predictor, self.settings), 0)


def without(part: str) -> str:
    """Return the title of Trade-off without a mechanism."""
    return f"{WHOLE} without {part}"


def plans(settings: Settings, parts: Sequence[str]) -> dict[str, Policy]:
    """Return HeShare's plans and Trade-off without each of some mechanisms, by title."""
    whole = CachedPlanner(settings)
    made = {WHOLE: HeShare("trade-off", planner=whole)}
    made |= {"En-opt": HeShare("en-opt", planner=whole), "JCT-opt": HeShare("jct-opt", planner=whole)}
    for part in parts:
        kind, placement = (_WithoutOrder if part == ORDER else CachedPlanner), "heshare"
        planner = kind(replace(settings, **WITHOUT[part]), placement="random" if part == PLACEMENT else placement)
        # The key of a search says nothing of the order of tasks.
        planner.searches = planner.searches if part == ORDER else whole.searches
        made[without(part)] = HeShare("trade-off", planner=planner)
    return dict(made)


def promised(
    policy: Policy, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the energy, J, and average JCT, s, that the plan of a policy states; NaN for one that does not plan.

    `rng` has the state that the policy's run began with, so that the plan is the one that ran.
    """
    if not isinstance(policy, HeShare):
        return np.nan, np.nan
    plan = policy.planner.front(tasks, cluster, predictor, rng)[0].choose(policy.choice)
    return plan.energy_j, plan.jct_s
