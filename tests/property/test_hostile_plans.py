"""A thousand random lists of actions, most of them impossible: each run completes or raises one clear message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.policies.policy import Migrate, Pause, SetClock, Start, Wait
from heshare.policies.random_placement import Random
from heshare.running.run import run
from heshare.shared.errors import PolicyError
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CARDS = (gpu("T4"), gpu("A100"))
TASKS = tuple(
    Task(index, Workload(model, batch), 50.0) for index, (model, batch) in enumerate([("resnet50", 8), ("gpt2", 64)])
)
ids = st.integers(-2, 3) | st.sampled_from([2**40, -(2**40)])
percentages = st.sampled_from([100, 50, 10, 1, 0, -5, 101, 10**9])
batches = st.sampled_from([None, 1, 8, 0, -1, 10**6])
clocks = st.sampled_from([None, 0, -300, 7, 10**9, *CARDS[0].clocks_mhz[:2], *CARDS[1].clocks_mhz[-2:]])
times_s = st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 1.0, 1e9])
actions = st.one_of(
    st.builds(Start, ids, ids, percentages, batches),
    st.builds(Start, ids, ids, percentages, batches, st.tuples(ids), st.sampled_from(["mps", "mig", "", "time-slice"])),
    st.builds(Migrate, ids, ids, percentages),
    st.builds(SetClock, ids, clocks),
    st.builds(Pause, ids),
    st.builds(Wait, times_s),
)


class Hostile(Random):
    """Returns given actions event by event, and none after them."""

    def __init__(self, actions_by_event: list[list[Any]]) -> None:
        super().__init__()
        self.actions_by_event = list(actions_by_event)

    def decide(self, event: Any, view: Any) -> list[Any]:
        return self.actions_by_event.pop(0) if self.actions_by_event else []


@pytest.mark.nightly
@given(st.lists(st.lists(actions, max_size=4), max_size=4), st.booleans())
@settings(max_examples=1000)
def test_hostile_actions(actions_by_event: list[list[Any]], guarded: bool) -> None:
    """Run completes or raises one message for random actions."""
    devices = [EmulatedDevice(card) for card in CARDS]
    policy = FaultTolerantPolicy(Hostile(actions_by_event)) if guarded else Hostile(actions_by_event)
    message = ""
    try:
        done = run(
            TASKS, Cluster(CARDS), policy, predictor=ToyPredictor(), rng=np.random.default_rng(0), devices=devices
        )
    except PolicyError as error:
        message = str(error)
        assert "\n" not in message
        assert message.startswith("random, ")
    else:
        assert sorted(interval.task for interval in done.record.intervals if interval.outcome == "completed") == [0, 1]
    assert [device.read().residents for device in devices] == [{}, {}], message
