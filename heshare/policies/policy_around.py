"""A policy around another one, as those for power limits and for failures are."""

import numpy as np

from heshare.policies.policy import Policy, ReusedPlanning
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster


class PolicyAround(Policy):
    """A policy that wraps another one and tells the event loop what that one tells."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.tick_s = policy.tick_s
        self.gangs = policy.gangs

    @property
    def reused(self) -> ReusedPlanning:  # type: ignore[override]  # an attribute of policies that plan themselves
        """Planning that the other policy has reused."""
        return self._policy.reused

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Prepare both for a run on this cluster."""
        self.cluster = cluster
        self.predictor = predictor
        self.rng = rng
        self._policy.reset(cluster, predictor, rng)
