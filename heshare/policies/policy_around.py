"""A policy around another one, as those for power limits and for failures are."""

from heshare.policies.policy import Policy, ReusedPlanning, ReusesPlanning


class PolicyAround:
    """A policy that wraps another one and tells the event loop what that one tells."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def tick_s(self) -> float | None:
        """Period of ticks of the other policy, s; None for none."""
        return self._policy.tick_s

    @property
    def gangs(self) -> bool:
        """Whether the other policy runs tasks on several GPUs."""
        return bool(getattr(self._policy, "gangs", True))

    @property
    def reused(self) -> ReusedPlanning:
        """Planning that the other policy has reused."""
        return self._policy.reused if isinstance(self._policy, ReusesPlanning) else ReusedPlanning()
