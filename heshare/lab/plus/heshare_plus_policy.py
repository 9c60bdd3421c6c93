"""HeShare+ policies: Trade-off, En-opt and JCT-opt of the improved scheduler, released like HeShare's own plans.

The three policies choose from the same front F = {(E_p, T_p)} of plans p, as the paper's do from theirs:

    En-opt = argmin E_p,    JCT-opt = argmin T_p,    Trade-off = argmin of the distance to (min E, min T)

where the distance is Euclidean with both objectives scaled to the range of the front (the knee). The plan is made when
the tasks are there, and its batches are released GPU by GPU (`heshare.policies.plan_release`).

Example: the same names and parameters as any other policy's, with a number of rounds.

>>> HeSharePlus("en-opt", rounds=2).name
'heshare+:en-opt'

Source: the paper, Section IV (the variants); the scheduler is that of `heshare.lab.plus.heshare_plus`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heshare.lab.plus import heshare_plus
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.heshare import TITLES, FrontPolicy
from heshare.policies.policy import Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import Front, PlanChoice
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class CachedPlusPlanner(CachedPlanner):
    """Plans task sets with the improved scheduler; the same task set with the same random state is planned once."""

    def __init__(self, effort: SearchSettings = DEFAULT_SETTINGS) -> None:
        super().__init__()
        self.effort = effort

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for planners that return equal results."""
        return type(self), self.effort

    def _plan_front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> Front:
        return heshare_plus.optimise(tasks, cluster, predictor, rng=rng, effort=self.effort)


class HeSharePlus(FrontPolicy):
    """One plan of the improved scheduler's front, released batch by batch.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        rounds: rounds of the search.

    Raises:
        InputError: fewer than one round.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, choice: PlanChoice = "trade-off", *, rounds: int = DEFAULT_SETTINGS.rounds) -> None:
        super().__init__(choice, CachedPlusPlanner(replace(DEFAULT_SETTINGS, rounds=rounds)))
        self.name = f"heshare+:{choice}"


def _register(choice: PlanChoice, title: str) -> None:
    @register(
        f"heshare+:{choice}", title=f"HeShare+ {title}", parameters={"rounds": DEFAULT_SETTINGS.rounds}, preset={}
    )
    def policy(**changed: Any) -> HeSharePlus:
        return HeSharePlus(choice, **changed)


for _choice, _title in TITLES.items():
    _register(_choice, _title)
