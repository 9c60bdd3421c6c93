"""Planning that the policies of one repetition share: an equal request is planned once, and each policy is charged.

Trade-off, En-opt and JCT-opt choose from one front; Sched-only and a placement by HeShare use the same search of stage
1. A policy that gets a cached result counts its planning time and its predictions as its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np

from heshare.policies.policy import ReusedPlanning
from heshare.prediction.predictor import Predictor
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance
from heshare.scheduling.settings import DEFAULTS, STAGE_2, Settings

Result = TypeVar("Result")


class PlanningCache:
    """Results of planning by request and random state.

    The predictor is no part of a request: all that share one object use the same predictor, or equal ones.
    """

    def __init__(self) -> None:
        # The result, the random state after it, and its cost.
        self._results: dict[Hashable, tuple[Any, dict[str, Any], ReusedPlanning]] = {}
        self._reused: list[ReusedPlanning] = []

    def once(
        self, request: Hashable, predictor: Predictor, rng: np.random.Generator, compute: Callable[[], Result]
    ) -> tuple[Result, ReusedPlanning]:
        """Return what `compute` returns, and the cost of a cached result; `rng` advances as if it was computed.

        Args:
            request: all that the result depends on, apart from the random state and the predictor.
            predictor: counts the predictions of `compute`.
            rng: the random generator of `compute`.
            compute: plans; it may ask the cache for parts of its result.
        """
        key = (request, repr(rng.bit_generator.state))
        if key in self._results:
            result, state, cost = self._results[key]
            rng.bit_generator.state = state
            self._reused.append(cost)
            return cast(Result, result), cost

        began_s = perf_counter()
        calls_before = predictor.calls
        reused_before = len(self._reused)
        result = compute()

        # What another policy planned for a part of this result is a part of this result's cost, too.
        reused = sum(self._reused[reused_before:], ReusedPlanning())
        own = ReusedPlanning(perf_counter() - began_s, predictor.calls - calls_before)
        self._results[key] = (result, dict(rng.bit_generator.state), own + reused)
        return result, reused

    def search(self, instance: Instance, settings: Settings, predictor: Predictor, rng: np.random.Generator) -> Schemes:
        """Return the schemes of stage 1, one search for all settings of stage 2; see `heshare.scheduling.genetic`."""
        of_stage_1 = replace(settings, **{name: getattr(DEFAULTS, name) for name in STAGE_2})
        # The times differ between the instances of two predictors.
        request = ("search", of_stage_1, instance.tasks, instance.cluster, instance.time_s.tobytes())
        return self.once(request, predictor, rng, lambda: search(instance, settings, rng))[0]


class SharesPlanning(ABC):
    """Base of policies that use HeShare's planner, for themselves or for their placement."""

    @abstractmethod
    def share_planning(self, cache: PlanningCache) -> None:
        """Plan with what other policies of the same repetition have planned."""


class PlansOnce(SharesPlanning):
    """Base of policies and placements that plan with HeShare's planner.

    Attributes:
        cache: finished planning; the policy's own unless `share_planning` has set that of a repetition.
        reused: planning that was taken from `cache` since the last reset.
    """

    def __init__(self) -> None:
        self.cache = PlanningCache()
        self.reused = ReusedPlanning()

    def share_planning(self, cache: PlanningCache) -> None:
        """Plan with what other policies of the same repetition have planned."""
        self.cache = cache

    def once(
        self, request: Hashable, predictor: Predictor, rng: np.random.Generator, compute: Callable[[], Result]
    ) -> Result:
        """Return what `PlanningCache.once` returns, and count what was reused."""
        result, reused = self.cache.once(request, predictor, rng, compute)
        self.reused = self.reused + reused
        return result
