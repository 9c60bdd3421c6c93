"""Planning once what several systems ask alike, and charging it to each of them; with parts of it taken away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from heshare.policies.description import check
from heshare.policies.policy import Borrowed
from heshare.prediction.predictor import Predictor
from heshare.prediction.truth import DevicePredictor
from heshare.scheduling import improved, planner
from heshare.scheduling.effort import DEFAULT, Effort
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, fit_mask, instance, objectives
from heshare.scheduling.pareto import Front, knee
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task

NOTHING = Borrowed(0.0, 0)
_Found = TypeVar("_Found")


class Planner:
    """Plans a task set, and remembers: the same question with the same random state gets the same answer at once.

    Sister policies that differ only in the plan they choose from the front share one. It belongs to one belief:
    whoever shares a planner uses the same predictor, or equal ones.

    Args:
        settings: how to plan.
        placement: `heshare` searches for schemes; `random` draws one as `RandomPlacement` does, and configures that.
        belief: `predictor` plans with the predictor that it is given, `device` with the emulated device itself.

    Raises:
        InputError: another placement or belief.
    """

    def __init__(
        self, settings: Settings = planner.DEFAULTS, *, placement: str = "heshare", belief: str = "predictor"
    ) -> None:
        check("placement", placement, placement in ("heshare", "random"), "heshare or random")
        check("belief", belief, belief in ("predictor", "device"), "predictor or device")
        self.settings, self.placement, self.belief = settings, placement, belief
        self._known: dict[tuple[object, ...], tuple[Any, dict[str, Any], Borrowed]] = {}
        self._reused = NOTHING

    @property
    def kind(self) -> tuple[object, ...]:
        """Planners of one kind give the same answers to the same questions."""
        return type(self), self.settings, self.placement, self.belief

    def front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> tuple[Front, Borrowed]:
        """The front, and what was not spent again because it was known. `rng` moves on as if it had been planned."""
        return self._once("front", (tasks, cluster, predictor, rng), self._plan)

    def stage_1(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> tuple[dict[int, int], Borrowed]:
        """The knee of stage 1, a GPU's index by task id, and what was not spent again because it was known."""
        return self._once("stage 1", (tasks, cluster, predictor, rng), self._search)

    def _plan(self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> Front:
        before, world = predictor.calls, instance(tasks, cluster, predictor)
        if self.placement == "heshare":
            schemes = self._schemes(world, rng)
        else:
            drawn = draw_gpus(tasks, cluster, rng)
            scheme = np.array([[drawn[task.id] for task in tasks]])
            schemes = Schemes(scheme, objectives(scheme, world), 1)
        plans, values = planner.configure(schemes, world, predictor, self.settings)
        return Front(plans, values, predictor.calls - before)

    def _search(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> dict[int, int]:
        schemes = self._schemes(instance(tasks, cluster, predictor), rng)
        chosen = schemes.gpus[knee(schemes.objectives)].tolist()
        return {task.id: gpu for task, gpu in zip(tasks, chosen, strict=True)}

    def _schemes(self, world: Instance, rng: np.random.Generator) -> Schemes:
        """Stage 1's schemes, searched once for a front and for a placement; the time of a search is charged to both."""
        question = ("schemes", tuple(world.tasks), world.cluster, repr(rng.bit_generator.state))
        schemes: Schemes
        if question in self._known:
            schemes, rng.bit_generator.state, took = self._known[question]
            self._reused = self._reused + took
            return schemes
        began_s = perf_counter()
        schemes = search(world, self.settings, rng)
        self._known[question] = schemes, dict(rng.bit_generator.state), Borrowed(perf_counter() - began_s, 0)
        return schemes

    def _once(
        self,
        what: str,
        asked: tuple[Sequence[Task], Cluster, Predictor, np.random.Generator],
        answer: Callable[[Sequence[Task], Cluster, Predictor, np.random.Generator], _Found],
    ) -> tuple[_Found, Borrowed]:
        tasks, cluster, predictor, rng = asked
        question = (what, tuple(tasks), cluster, repr(rng.bit_generator.state))
        if question in self._known:
            found, after, cost = self._known[question]
            rng.bit_generator.state = after
            return found, cost
        believed = DevicePredictor() if self.belief == "device" else predictor
        began_s, calls, self._reused = perf_counter(), believed.calls, NOTHING
        found = answer(tasks, cluster, believed, rng)
        cost = Borrowed(perf_counter() - began_s, believed.calls - calls) + self._reused
        self._known[question] = found, dict(rng.bit_generator.state), cost
        # Whoever watches the predictor does not see what was asked of the device.
        unseen = cost.predictor_calls if self.belief == "device" else 0
        return found, self._reused + Borrowed(0.0, unseen)


class PlusPlanner(Planner):
    """The same of the improved scheduler: its fronts, remembered.

    Args:
        effort: how hard it searches.
        budget_s: search for so many seconds instead of `effort.rounds`, s; None for none.
    """

    def __init__(self, effort: Effort = DEFAULT, budget_s: float | None = None) -> None:
        super().__init__()
        self.effort, self.budget_s = effort, budget_s

    @property
    def kind(self) -> tuple[object, ...]:
        """Planners of one kind give the same answers to the same questions."""
        return type(self), self.effort, self.budget_s

    def _plan(self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> Front:
        return improved.optimise(tasks, cluster, predictor, rng=rng, effort=self.effort, budget_s=self.budget_s)


def draw_gpus(tasks: Sequence[Task], cluster: Cluster, rng: np.random.Generator) -> dict[int, int]:
    """A GPU for each task, drawn uniformly among those whose memory holds it, in the order of the tasks.

    Raises:
        InputError: a task fits no GPU.
    """
    drawn = {}
    for task in tasks:
        fitting = np.flatnonzero(fit_mask([task], cluster)[0])
        drawn[task.id] = int(fitting[rng.integers(len(fitting))])
    return drawn
