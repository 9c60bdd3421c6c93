"""A GPU that runs jobs: what it refuses, and a job that has no process yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heshare.ops.executor.local_device import JobOnGpu, LocalExecutorDevice
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
