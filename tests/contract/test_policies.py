"""The policy contract for every registered policy."""

import pytest

from heshare.policies.policy import Start, Traits
from heshare.policies.registry import make, policies
from heshare.testing.policy_contract import PolicyContract
from heshare.testing.toy import ScriptedPolicy


class TestRegisteredPolicies(PolicyContract):
    @pytest.fixture(params=list(policies(variants=True)))
    def policy(self, request):
        return make(request.param)


class TestPolicyOfOneFunction(PolicyContract):
    """A policy from outside the package: all tasks to the last GPU, in order of arrival."""

    @pytest.fixture
    def policy(self):
        def decide(event, view):
            return [Start(task.id, len(view.gpus) - 1) for task in view.waiting]

        policy = ScriptedPolicy(decide)
        policy.traits = Traits(frequency=False, multi_task=True, heterogeneous=False)
        return policy


def test_contract_fails_on_false_traits():
    policy = make("random")
    policy.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)
    with pytest.raises(AssertionError):
        PolicyContract().test_does_what_it_declares(policy)
