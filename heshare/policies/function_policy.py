"""A policy from one function: the decorator `policy` registers it for comparisons."""

from collections.abc import Callable, Iterable

import numpy as np

from heshare.policies import registry
from heshare.policies.policy import Action, Event, Policy, Traits, View, check_arguments
from heshare.policies.predictions import TaskPredictions
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster

Decide = Callable[[Event, View, TaskPredictions], Iterable[Action]]
"""Returns the actions for an event, given the state of the cluster and the predictions of tasks alone."""


class FunctionPolicy(Policy):
    """Policy that calls one function for every event and keeps no state."""

    def __init__(self, decide: Decide, *, name: str, traits: Traits, tick_s: float | None = None) -> None:
        self.name, self.traits, self.tick_s = name, traits, tick_s
        self._decide = decide

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Prepare for a run with this predictor."""
        super().reset(cluster, predictor, rng)
        self._predictions = TaskPredictions(predictor)

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Return the function's actions."""
        return self._decide(event, view, self._predictions)


def policy(
    name: str,
    *,
    title: str | None = None,
    frequency: bool = False,
    multi_task: bool = False,
    heterogeneous: bool = False,
    tick_s: float | None = None,
) -> Callable[[Decide], Decide]:
    """Decorator: register a function as a policy; it replaces a policy of that name that the package did not register.

    Args:
        name: on the command line and in results.
        title: in figures; the name unless given.
        frequency: whether it sets clocks.
        multi_task: whether it runs several tasks on one GPU at once.
        heterogeneous: whether it distinguishes the types of the GPUs.
        tick_s: period of ticks, s; None for none.

    Raises:
        InputError: a policy of the package has this name, or the function does not take three arguments.
    """
    traits = Traits(frequency, multi_task, heterogeneous)

    def decorate(decide: Decide) -> Decide:
        check_arguments(decide, "the event, the view and the predictions of tasks alone", 3, name)

        def make() -> FunctionPolicy:
            return FunctionPolicy(decide, name=name, traits=traits, tick_s=tick_s)

        # The fingerprint of stored results covers the source of the factory's module: that of the function, not this.
        make.__module__ = decide.__module__
        make.decides = decide  # type: ignore[attr-defined]  # `module:function` finds the factory by it
        registry.unregister(name)
        registry.register(name, title=title or name, parameters={})(make)
        return decide

    return decorate
