"""A policy of one function, which records what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from heshare.policies.policy import Action, Event, Policy, Traits, View
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster


class ScriptedPolicy(Policy):
    """A policy of one function, which records every event as (time_s, kind, tasks, gpu) in `trace`.

    Args:
        decide: returns the actions after an event, as in `Policy`.
        tick_s: the period of ticks, s.
    """

    name = "scripted"
    traits = Traits(frequency=True, multi_task=True, heterogeneous=False)

    def __init__(self, decide: Callable[[Event, View], Iterable[Action]], *, tick_s: float | None = None) -> None:
        self._decide = decide
        self.tick_s = tick_s
        self.trace: list[tuple[float, str, tuple[int, ...], int | None]] = []

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Empty the trace."""
        super().reset(cluster, predictor, rng)
        self.trace = []

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Record the event and return the actions of the function."""
        self.trace.append((event.time_s, event.kind.name, event.tasks, event.gpu))
        return self._decide(event, view)
