"""`LostDevice`: what is started on a GPU that is missing fails at once, and the run goes on with the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heshare.devices.device import TaskFailure
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.lost_device import LostDevice
from heshare.policies.registry import make
from heshare.running.actions import Observer
from heshare.running.clock import VirtualClock
from heshare.running.run import run
from heshare.shared.errors import DeviceError
from heshare.testing.toy import ToyDevice, ToyPredictor
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

WORK = Workload("resnet50", 8)


@pytest.fixture
def device():
    return LostDevice("T4", "GPU-0", "GPU-0: not found", lambda: 3.0)


def test_jobs_of_a_missing_gpu_fail_without_a_charge(device):
    assert (device.state, device.next_event_s(), device.read().power_w) == ("lost", math.inf, 0.0)
    assert device.notes == ["3.0 s: lost: GPU-0: not found"]
    device.start(0, WORK, 50)
    device.start(1, WORK, 50)
    assert set(device.read().residents) == {0, 1}
    assert device.next_event_s() == 3.0
    assert device.stop(1) == 0.0
    with pytest.raises(DeviceError, match="no job 1 on it"):
        device.stop(1)
    assert device.advance(3.0) == []
    assert device.take_failures() == [TaskFailure(0, "lost", "GPU-0: not found", charged=False)]
    assert device.take_failures() == []
    assert device.running == 0
    assert device.next_event_s() == math.inf
    assert set(device.ended) == {0, 1}
    assert math.isnan(device.ended[0].began_s)
    assert device.shares_j() == {0: 0.0, 1: 0.0}


class Retries(Observer):
    def should_retry(self, failed):
        return True


@pytest.mark.parametrize("policy", ["random", "heshare:trade-off", "morak"])
def test_event_loop_plans_again_on_the_gpus_that_are_there(policy):
    clock, card = VirtualClock(), gpu("T4")
    clock.wait_until(0.5)  # a run in wall time begins after its first tasks have arrived
    missing = LostDevice("T4", "GPU-0", "not found", clock.now_s)
    done = run(
        [Task(index, WORK, 100.0) for index in range(6)],
        Cluster((card, card)),
        FaultTolerantPolicy(make(policy)),
        predictor=ToyPredictor(),
        rng=np.random.default_rng(1),
        devices=[missing, ToyDevice(card)],
        clock=clock,
        observer=Retries(),
    )
    completed = [interval for interval in done.record.intervals if interval.outcome == "completed"]
    assert sorted(interval.task for interval in completed) == list(range(6))
    assert {interval.gpu for interval in completed} == {1}
    assert missing.ended
