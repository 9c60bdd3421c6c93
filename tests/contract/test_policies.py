"""The policy contract, held by every registered policy."""

import pytest

from heshare.policies.policy import Start, Traits
from heshare.policies.registry import make, policies
from heshare.testing.policies import PolicyContract
from heshare.testing.toy import Told


class TestRegisteredPolicies(PolicyContract):
    @pytest.fixture(params=list(policies(variants=True)))
    def policy(self, request):
        return make(request.param)


class TestPolicyOfOneFunction(PolicyContract):
    """A third party's policy: everything to the first GPU that has room, in order of arrival."""

    @pytest.fixture
    def policy(self):
        def decide(event, view):
            return [Start(task.id, len(view.gpus) - 1) for task in view.waiting]

        policy = Told(decide)
        policy.traits = Traits(frequency=False, multi_task=True, heterogeneous=False)
        return policy


def test_the_contract_notices_a_false_declaration():
    policy = make("random")
    policy.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)
    with pytest.raises(AssertionError):
        PolicyContract().test_does_what_it_declares(policy)
