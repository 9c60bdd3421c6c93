"""GPUs of a run: what one that runs jobs refuses, a job that has no process yet, and a GPU that is missing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from heshare.devices.device import TaskFailure
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gang import join
from heshare.ops.executor.local_device import JobOnGpu, LocalExecutorDevice
from heshare.ops.executor.lost_device import LostDevice
from heshare.ops.mps import MPS
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

WORKLOAD = Workload("resnet50", 8)


def job(task_id: int) -> JobOnGpu:
    return JobOnGpu(task_id, SimpleNamespace(spec=SimpleNamespace(timeout_s=5.0)), Resident(WORKLOAD, 10), 1.0, 0.0)


def test_a_gpu_takes_as_many_jobs_as_mps_has_clients():
    device = object.__new__(LocalExecutorDevice)  # the refusal needs no card
    device.gpu, device.uuid = gpu("A100"), "GPU-1"
    device._residents = {task_id: job(task_id) for task_id in range(48)}
    with pytest.raises(DeviceError, match="48 jobs on it already"):
        device.start(48, WORKLOAD, 10, 1.0)
    with pytest.raises(DeviceError, match="job 7 on it already"):
        device.start(7, WORKLOAD, 10, 1.0)


def test_a_job_without_a_process_has_nothing_to_stop():
    waiting = job(0)
    waiting.begin_stop("timeout", "5 s are over")
    assert (waiting.stopping, waiting.failure, waiting.ended_failure()) == (None, None, None)
    assert (waiting.loading, waiting.finished, waiting.deadline_s()) == (False, False, float("inf"))


def test_jobs_of_a_missing_gpu_fail_without_a_charge():
    device = LostDevice("T4", "GPU-0", "GPU-0: not found", lambda: 3.0)
    assert (device.state, device.next_event_s(), device.read().power_w) == ("lost", math.inf, 0.0)
    assert device.notes == ["3.0 s: lost: GPU-0: not found"]
    device.start(0, WORKLOAD, 50)
    device.start(1, WORKLOAD, 50)
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


def test_a_failure_is_shared_if_it_follows_that_of_a_neighbour():
    device = object.__new__(LocalExecutorDevice)
    device.uuid, device._mps, device._residents = "GPU-1", SimpleNamespace(sharing=MPS), {}
    device._timeouts, device._first_failure = Timeouts(shared_s=5.0), (100.0, 0)
    crash = TaskFailure(1, "crash", "exit code 1")

    def kind(now_s, began_s):
        device._now_s, device._first_failure = lambda: now_s, (100.0, 0)
        neighbour = job(1)
        neighbour.began_s = began_s
        return device._classify(neighbour, crash).kind

    assert kind(103.0, 50.0) == "shared"
    assert kind(103.0, 101.0) == "crash", "it was started after the first failure"
    assert kind(110.0, 50.0) == "crash", "it failed long after"


def test_a_gang_has_one_process_once_all_its_gpus_are_free():
    gangs = {}
    assert join(gangs, 0, 1, "GPU-0") is None
    first, second = (join(gangs, 1, 2, uuid) for uuid in ("GPU-0", "GPU-1"))
    assert first is second is gangs[1]
    assert [first.may_start(uuid) for uuid in ("GPU-1", "GPU-0")] == [False, True]
