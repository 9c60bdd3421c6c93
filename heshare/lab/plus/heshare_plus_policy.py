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

from heshare.lab.plus import heshare_plus
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS
from heshare.policies.heshare import TITLES, FrontPolicy
from heshare.policies.policy import Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import Front, PlanChoice
from heshare.world.task import Task


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
        self.effort = replace(DEFAULT_SETTINGS, rounds=rounds)
        super().__init__(choice, ("heshare+", self.effort))
        self.name = f"heshare+:{choice}"

    def plan_front(self, tasks: Sequence[Task], predictor: Predictor) -> Front:
        """Return the front of the improved scheduler."""
        return heshare_plus.optimise(tasks, self.cluster, predictor, rng=self.rng, effort=self.effort)


def _register(choice: PlanChoice, title: str) -> None:
    @register(
        f"heshare+:{choice}", title=f"HeShare+ {title}", parameters={"rounds": DEFAULT_SETTINGS.rounds}, preset={}
    )
    def policy(**changed: Any) -> HeSharePlus:
        return HeSharePlus(choice, **changed)


for _choice, _title in TITLES.items():
    _register(_choice, _title)
