"""A policy around another one, as those for power limits and for failures are."""

from heshare.policies.policy import Policy, ReusedPlanning, ReusesPlanning


class PolicyAround:
    """A policy that wraps another one and tells the event loop what that one tells."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def tick_s(self) -> float | None:
        return self._policy.tick_s

    @property
    def gangs(self) -> bool:
        return bool(getattr(self._policy, "gangs", True))

    @property
    def reused(self) -> ReusedPlanning:
        return self._policy.reused if isinstance(self._policy, ReusesPlanning) else ReusedPlanning()
