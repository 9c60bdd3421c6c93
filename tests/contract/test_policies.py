"""The policy contract for every registered policy."""

import pytest
from support.scripted_policy import ScriptedPolicy

from heshare.policies.policy import Start, Traits
from heshare.policies.registry import make, policies
from heshare.testing.policy_contract import PolicyContract, check_policy

OTHER_PLANS = ("en-opt", "jct-opt", "en-opt/literal", "jct-opt/literal")
"""Other plans of the fronts of which Trade-off runs one."""
NAMES = [name for name in policies(variants=True) if not name.endswith(OTHER_PLANS)]
# An improved search takes seconds; online it runs at each arrival.
PARAMETERS = [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("heshare+")) for name in NAMES]


class TestRegisteredPolicies(PolicyContract):
    @pytest.fixture(params=PARAMETERS)
    def policy(self, request):
        # One round of an improved search, which takes seconds, for fewer tasks; and few generations.
        searches = request.param.startswith(("heshare:", "heshare-online:"))
        improved = request.param.startswith("heshare+")
        self.size = 5 if improved else PolicyContract.size
        return make(request.param + "(rounds=1)" * improved + "(generations=20)" * searches)


class TestPolicyOfOneFunction(PolicyContract):
    """A policy from outside the package: all tasks to the last GPU, in order of arrival."""

    @pytest.fixture
    def policy(self):
        def decide(event, view):
            return [Start(task.id, len(view.gpus) - 1) for task in view.waiting]

        policy = ScriptedPolicy(decide)
        policy.traits = Traits(frequency=False, multi_task=True, heterogeneous=False)
        return policy


def test_message():
    """Without pytest a failed contract names the policy, the test and what was found."""

    def lying():
        policy = ScriptedPolicy(lambda event, view: [Start(task.id, 0) for task in view.waiting])
        policy.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)
        return policy

    with pytest.raises(AssertionError, match=r"scripted .*test_does_what.*frequency=True.*frequency=False"):
        check_policy(lying)


def test_false_traits():
    """Contract fails on false traits."""
    policy = make("random")
    policy.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)
    with pytest.raises(AssertionError):
        PolicyContract().test_does_what_it_declares(policy)
