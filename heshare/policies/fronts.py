"""Planning once what several systems ask alike, and charging it to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from heshare.policies.policy import Borrowed
from heshare.prediction.predictor import Predictor
from heshare.scheduling import planner
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import instance
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
    """

    def __init__(self, settings: Settings = planner.DEFAULTS) -> None:
        self.settings = settings
        self._known: dict[tuple[object, ...], tuple[Any, dict[str, Any], Borrowed]] = {}

    @property
    def kind(self) -> tuple[object, ...]:
        """Planners of one kind give the same answers to the same questions."""
        return type(self), self.settings

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
        return planner.plan(tasks, cluster, predictor, rng=rng, settings=self.settings)

    def _search(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> dict[int, int]:
        schemes = search(instance(tasks, cluster, predictor), self.settings, rng)
        chosen = schemes.gpus[knee(schemes.objectives)].tolist()
        return {task.id: gpu for task, gpu in zip(tasks, chosen, strict=True)}

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
        began_s, calls = perf_counter(), predictor.calls
        found = answer(*asked)
        cost = Borrowed(perf_counter() - began_s, predictor.calls - calls)
        self._known[question] = found, dict(rng.bit_generator.state), cost
        return found, NOTHING
