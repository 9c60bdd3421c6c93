"""A policy from one function: the shortest way for an idea to join the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from heshare.policies import registry
from heshare.policies.beliefs import Beliefs
from heshare.policies.policy import Action, Event, Traits, View
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster

Decide = Callable[[Event, View, Beliefs], Iterable[Action]]
"""The answer to an event; what is believed of times alone is asked of the `Beliefs`."""


class Simple:
    """A policy that is one function and remembers nothing but what is believed.

    Args:
        decide: the answer to an event.
        name: what to call it.
        traits: what it does (Table I).
        tick_s: the period of ticks, s; None for none.
    """

    def __init__(self, decide: Decide, *, name: str, traits: Traits, tick_s: float | None = None) -> None:
        self.name, self.traits, self.tick_s = name, traits, tick_s
        self._decide = decide

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Begin to believe the predictor."""
        self._beliefs = Beliefs(predictor)

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """The function's answer."""
        return self._decide(event, view, self._beliefs)


def policy(
    name: str,
    *,
    title: str | None = None,
    frequency: bool = False,
    multi_task: bool = False,
    heterogeneous: bool = False,
    tick_s: float | None = None,
) -> Callable[[Decide], Decide]:
    """Decorator: register a function as a policy, in place of an earlier one of that name that was not the package's.

    Args:
        name: what the command line calls it.
        title: what figures call it; its name unless given.
        frequency: whether it sets clocks.
        multi_task: whether it runs several tasks on one GPU at once.
        heterogeneous: whether it looks at the types of the GPUs.
        tick_s: the period of ticks, s; None for none.

    Raises:
        InputError: the name is that of one of the package's systems.
    """
    traits = Traits(frequency, multi_task, heterogeneous)

    def enter(decide: Decide) -> Decide:
        def make() -> Simple:
            return Simple(decide, name=name, traits=traits, tick_s=tick_s)

        # Results that are kept belong to the source of the function, not of this module.
        make.__module__ = decide.__module__
        registry.forget(name)
        registry.register(name, title=title or name, parameters={})(make)
        return decide

    return enter
