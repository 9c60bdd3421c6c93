"""HeShare's policies: three plans of one front, their ablations, the literal reading of the paper, and Sched-only."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from heshare.policies.plan_release import PlanReleasePolicy
from heshare.policies.planning_cache import PlansOnce
from heshare.policies.policy import ReusedPlanning, Traits
from heshare.policies.random_placement import draw_gpus
from heshare.policies.registry import Value, register
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import configure
from heshare.scheduling.front import Front, PlanChoice
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.planner import sched_only
from heshare.scheduling.settings import DEFAULTS, LITERAL, Settings
from heshare.shared.errors import require
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
"""Parameters of a description such as `heshare:trade-off(clocks=6)`: all settings, and two of `HeShare`."""

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


class FrontPolicy(PlansOnce, PlanReleasePolicy):
    """Policy that plans a Pareto front and releases one of its plans batch by batch.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        planner: all that a front depends on besides tasks, cluster, predictor and random state.
    """

    def __init__(self, choice: PlanChoice, planner: Hashable) -> None:
        super().__init__()
        self.choice = choice
        self.planner = planner

    @abstractmethod
    def plan_front(self, tasks: Sequence[Task], predictor: Predictor) -> Front:
        """Return the Pareto front of waiting tasks on `self.cluster`, by the random generator `self.rng`."""

    def front(self, tasks: Sequence[Task]) -> Front:
        """Return the Pareto front, planned now or cached by an earlier policy of the same repetition."""
        return self.front_by(self.predictor, tasks)

    def front_by(self, predictor: Predictor, tasks: Sequence[Task]) -> Front:
        """Return the front that a predictor gives."""
        request = ("front", self.planner, tuple(tasks), self.cluster)
        return self.once(request, predictor, self.rng, lambda: self.plan_front(tasks, predictor))

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of the chosen plan."""
        return self.front(tasks).choose(self.choice).queues


class HeShare(FrontPolicy):
    """HeShare's Trade-off (the knee), En-opt (least energy) or JCT-opt (least average JCT).

    Args:
        choice: which plan of the front.
        settings: of both stages.
        placement: `heshare` searches for schemes; `random` configures one random scheme, as `RandomPlacement` draws.
        belief: `predictor` plans with the predictor of the run, `device` with the emulated device's own model.

    Raises:
        InputError: another placement or belief.
    """

    def __init__(
        self,
        choice: PlanChoice = "trade-off",
        settings: Settings = DEFAULTS,
        *,
        placement: str = "heshare",
        belief: str = "predictor",
    ) -> None:
        require("placement", placement, placement in ("heshare", "random"), "heshare or random")
        require("belief", belief, belief in ("predictor", "device"), "predictor or device")

        super().__init__(choice, ("heshare", settings, placement, belief))
        self.name = f"heshare:{choice}"
        self.settings = settings
        self.placement = placement
        self.belief = belief
        self.traits = Traits(
            frequency=settings.clock_scope != "none",
            multi_task=settings.batching != "single",
            heterogeneous=placement == "heshare",
        )

    def front(self, tasks: Sequence[Task]) -> Front:
        """Return the Pareto front, by the predictor of the run or by the device's own model."""
        if self.belief == "predictor":
            return self.front_by(self.predictor, tasks)

        device = DevicePredictor()
        front = self.front_by(device, tasks)
        # The run counts the calls of its own predictor only.
        self.reused = self.reused + ReusedPlanning(0.0, device.calls)
        return front

    def plan_front(self, tasks: Sequence[Task], predictor: Predictor) -> Front:
        """Return the front of both stages; stage 1 draws a single scheme where the placement is random."""
        calls_before = predictor.calls
        instance = make_instance(tasks, self.cluster, predictor)

        if self.placement == "heshare":
            schemes = self.cache.search(instance, self.settings, predictor, self.rng)
        else:
            drawn = draw_gpus(tasks, self.cluster, self.rng)
            gpus = np.array([[drawn[task.id] for task in tasks]])
            schemes = Schemes(gpus, evaluate_schemes(gpus, instance), 1)

        plans, objectives = configure(schemes, instance, predictor, self.settings)
        return Front(plans, objectives, predictor.calls - calls_before)


@register("sched-only", title="Sched-only", parameters={})
@register("sched-only:all-at-once", title="Sched-only, all at once", parameters={}, preset={"all_at_once": True})
class SchedOnly(PlansOnce, PlanReleasePolicy):
    """Sched-only (Section IV, baseline 2): stage 1 without resource configuration.

    Each GPU runs its queue one task at a time in SPT order, as stage 1 evaluates it.

    Args:
        settings: of stage 1.
        all_at_once: run as many of a GPU's tasks together as memory and the MPS clients allow, at 100 % each.
    """

    name = "sched-only"

    def __init__(self, settings: Settings = DEFAULTS, all_at_once: bool = False) -> None:
        super().__init__()
        self.settings = settings
        self.all_at_once = all_at_once
        self.traits = Traits(frequency=False, multi_task=all_at_once, heterogeneous=True)

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of stage 1's knee."""
        request = ("sched-only", self.settings, self.all_at_once, tuple(tasks), self.cluster)
        return self.once(request, self.predictor, self.rng, lambda: self._plan(tasks)).queues

    def _plan(self, tasks: Sequence[Task]) -> Plan:
        return sched_only(
            tasks,
            self.cluster,
            self.predictor,
            rng=self.rng,
            settings=self.settings,
            all_at_once=self.all_at_once,
            searched=lambda instance, rng: self.cache.search(instance, self.settings, self.predictor, rng),
        )


def _factory(choice: PlanChoice) -> Callable[..., HeShare]:
    def make(*, placement: str = "heshare", belief: str = "predictor", **settings: Any) -> HeShare:
        return HeShare(choice, Settings(**settings), placement=placement, belief=belief)

    return make


for choice, title in TITLES.items():
    register(f"heshare:{choice}", title=title, parameters=PARAMETERS)(_factory(choice))
    register(f"heshare:{choice}/literal", title=f"{title}, literally", parameters=PARAMETERS, preset=LITERAL)(
        _factory(choice)
    )

for name, (part, preset) in ABLATIONS.items():
    register(f"heshare:trade-off/{name}", title=f"Trade-off, {part}", parameters=PARAMETERS, preset=preset)(
        _factory("trade-off")
    )
