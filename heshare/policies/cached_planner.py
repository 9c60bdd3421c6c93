"""Planner with a cache, shared by policies with equal settings, which count the planning time that they reuse."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np

from heshare.policies.policy import Policy, ReusedPlanning
from heshare.policies.random_placement import draw_gpus
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import configure
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, evaluate_schemes, make_instance
from heshare.scheduling.pareto import knee
from heshare.scheduling.plan import Plan
from heshare.scheduling.planner import sched_only
from heshare.scheduling.settings import DEFAULTS, STAGE_2, Settings
from heshare.shared.errors import require
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_Result = TypeVar("_Result")
Searches = dict[tuple[object, ...], tuple[Schemes, dict[str, Any], ReusedPlanning]]
"""Searches of stage 1: schemes, the random state after it, and its cost."""


class CachedPlanner:
    """Plans task sets; the same task set with the same random state is planned once.

    Policies that choose different plans of the same front share a planner. The predictor is no part of the cache's
    key, so they must use the same one, or equal ones.

    Args:
        settings: of both stages.
        placement: `heshare` searches for schemes; `random` configures one random scheme, as `RandomPlacement` draws.
        predicts_with: `predictor` is the predictor of the run, `device` the emulated device's own model.

    Attributes:
        searches: finished searches of stage 1 by all that they depend on; other planners may share them.

    Raises:
        InputError: another placement or predictor.
    """

    def __init__(
        self, settings: Settings = DEFAULTS, *, placement: str = "heshare", predicts_with: str = "predictor"
    ) -> None:
        require("placement", placement, placement in ("heshare", "random"), "heshare or random")
        require("belief", predicts_with, predicts_with in ("predictor", "device"), "predictor or device")
        self.settings, self.placement, self.predicts_with = settings, placement, predicts_with
        # A result, the random state after it, and its cost, by request and random state before it.
        self._cache: dict[tuple[object, ...], tuple[Any, dict[str, Any], ReusedPlanning]] = {}
        self._reused = ReusedPlanning()
        self.searches: Searches = {}

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for planners that return equal results."""
        return type(self), self.settings, self.placement, self.predicts_with

    def front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> tuple[Front, ReusedPlanning]:
        """Return the Pareto front, and what a cached result saved; `rng` advances as if it had been planned."""
        return self._cached("front", (tasks, cluster, predictor, rng), self._plan_front)

    def stage_1_scheme(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> tuple[dict[int, int], ReusedPlanning]:
        """Return the knee of stage 1, the GPU's index by task id, and what a cached result saved."""
        return self._cached("stage 1", (tasks, cluster, predictor, rng), self._plan_scheme)

    def sched_only(
        self,
        tasks: Sequence[Task],
        cluster: Cluster,
        predictor: Predictor,
        rng: np.random.Generator,
        *,
        all_at_once: bool = False,
    ) -> tuple[Plan, ReusedPlanning]:
        """Return the plan of Sched-only, and what a cached result saved."""
        kind = "sched-only, all at once" if all_at_once else "sched-only"
        compute = partial(self._plan_sched_only, all_at_once=all_at_once)
        return self._cached(kind, (tasks, cluster, predictor, rng), compute)

    def _plan_front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> Front:
        calls_before, instance = predictor.calls, make_instance(tasks, cluster, predictor)
        if self.placement == "heshare":
            schemes = self._search(instance, rng)
        else:
            drawn = draw_gpus(tasks, cluster, rng)
            scheme = np.array([[drawn[task.id] for task in tasks]])
            schemes = Schemes(scheme, evaluate_schemes(scheme, instance), 1)
        plans, objectives = configure(schemes, instance, predictor, self.settings)
        return Front(plans, objectives, predictor.calls - calls_before)

    def _plan_scheme(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> dict[int, int]:
        schemes = self._search(make_instance(tasks, cluster, predictor), rng)
        chosen = schemes.gpus[knee(schemes.objectives)].tolist()
        return {task.id: gpu for task, gpu in zip(tasks, chosen, strict=True)}

    def _plan_sched_only(
        self,
        tasks: Sequence[Task],
        cluster: Cluster,
        predictor: Predictor,
        rng: np.random.Generator,
        all_at_once: bool,
    ) -> Plan:
        return sched_only(
            tasks,
            cluster,
            predictor,
            rng=rng,
            settings=self.settings,
            all_at_once=all_at_once,
            searched=self._search,
        )

    def _search(self, instance: Instance, rng: np.random.Generator) -> Schemes:
        # A front, a placement and Sched-only share one search, and all count its time.
        arrays = (instance.time_s, instance.energy_j, instance.fits, instance.needs_mib, instance.begin_s)
        chosen = [getattr(self.settings, field.name) for field in fields(Settings) if field.name not in STAGE_2]
        state = repr(rng.bit_generator.state)
        key = (*chosen, instance.tasks, instance.cluster, *[array.tobytes() for array in arrays], state)
        if key in self.searches:
            schemes, rng.bit_generator.state, cost = self.searches[key]
            self._reused = self._reused + cost
            return schemes
        began_s = perf_counter()
        schemes = search(instance, self.settings, rng)
        self.searches[key] = schemes, dict(rng.bit_generator.state), ReusedPlanning(perf_counter() - began_s, 0)
        return schemes

    def _cached(
        self,
        kind: str,
        request: tuple[Sequence[Task], Cluster, Predictor, np.random.Generator],
        compute: Callable[[Sequence[Task], Cluster, Predictor, np.random.Generator], _Result],
    ) -> tuple[_Result, ReusedPlanning]:
        tasks, cluster, predictor, rng = request
        key = (kind, tuple(tasks), cluster, repr(rng.bit_generator.state))
        if key in self._cache:
            result, rng.bit_generator.state, cost = self._cache[key]
            return result, cost
        device = self.predicts_with == "device"
        predictor = DevicePredictor() if device else predictor
        began_s, calls_before, self._reused = perf_counter(), predictor.calls, ReusedPlanning()
        result = compute(tasks, cluster, predictor, rng)
        cost = ReusedPlanning(perf_counter() - began_s, predictor.calls - calls_before) + self._reused
        self._cache[key] = result, dict(rng.bit_generator.state), cost
        # The run counts the calls of its own predictor only; those of the device's model are added here.
        return result, self._reused + ReusedPlanning(0.0, cost.predictor_calls if device else 0)


def share_planners(policies: Iterable[Policy], searches: Searches | None = None) -> None:
    """Give policies with equal planners one common planner, so that each front and each search is computed once.

    `searches` are those of all planners; each planner's own unless given.
    """
    common: dict[object, CachedPlanner] = {}
    for policy in policies:
        for holder in (policy, getattr(policy, "placement", None)):
            planner = getattr(holder, "planner", None)
            if isinstance(planner, CachedPlanner):
                planner.searches = planner.searches if searches is None else searches
                cast(Any, holder).planner = common.setdefault(planner.key, planner)
