"""Language models beside each other and beside other networks: a faster clock, a higher limit or a co-runner."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.devices.constants import default
from heshare.devices.contention import bandwidth_waits_s
from heshare.devices.iteration_time import iteration_of
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

ROUNDING = 1e-9
LANGUAGE_MODELS = sorted(name for name, model in catalogue.models().items() if model.language is not None)
residents = st.builds(
    Resident,
    st.builds(Workload, st.sampled_from([*LANGUAGE_MODELS, "resnet50"]), st.integers(1, 128), st.just("fp16")),
    st.integers(5, 100),
)
sets = st.lists(residents, min_size=1, max_size=3)
cards = st.sampled_from(["T4", "A100", "H100", "H200", "L40S"])


@settings(max_examples=50)
@given(cards, sets)
def test_bandwidth(name: str, shared):
    """Together they use at most the bandwidth."""
    iterations = [iteration_of(default(), name, resident) for resident in shared]
    waits_s = bandwidth_waits_s(iterations)
    used = sum(
        (each.bandwidth_s or each.memory_s) / (each.time_s(1.0, 1.0) + wait_s)
        for each, wait_s in zip(iterations, waits_s, strict=True)
    )
    assert used <= 1.0 + 1e-6
    assert all(wait_s >= 0.0 for wait_s in waits_s)
    if not any(each.bandwidth_s for each in iterations):
        assert waits_s == [0.0] * len(shared)
