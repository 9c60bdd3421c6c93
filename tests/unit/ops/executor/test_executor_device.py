"""GPUs of a run: what one that runs jobs refuses, a job that has no process yet, and a GPU that is missing."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from heshare.devices.device import Reading, TaskFailure
from heshare.ops.descriptors import ShortageError
from heshare.ops.executor import local_gpus
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gang import Gang, join
from heshare.ops.executor.job_process import JobLauncher
from heshare.ops.executor.local_device import JobOnGpu, LocalExecutorDevice
from heshare.ops.executor.lost_device import LostDevice
from heshare.ops.mps import MPS, DaemonRestarts
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


@pytest.mark.parametrize(("time_s", "shown_s"), [(math.nan, math.inf), (0.0, math.inf), (0.5, 0.5)])
def test_a_job_that_has_shown_no_time_takes_for_ever(time_s, shown_s):
    running = job(0)
    running.worker = SimpleNamespace(time_s=time_s, done=3.0)
    assert (running.progress().done, running.progress().time_s) == (1.0, shown_s)


@pytest.mark.parametrize("clocks", [True, False])
def test_a_plan_is_for_the_top_clock_unless_clocks_may_be_set(monkeypatch, clocks):
    monkeypatch.setattr(local_gpus, "GuardedGpu", nullcontext)
    monkeypatch.setattr(local_gpus, "catalogue_gpu", gpu)
    (planned,) = local_gpus.planned_cluster(["A100"], clocks=clocks).gpus
    assert planned.clocks_mhz == (gpu("A100").clocks_mhz if clocks else (gpu("A100").max_mhz,))


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


def device_of(residents, **more):
    """Return a GPU with MPS and these jobs, of which `more` are parts."""
    device = object.__new__(LocalExecutorDevice)
    mps = SimpleNamespace(sharing=MPS, alive=lambda: False, stop=lambda: None)
    parts = {"_mps": mps, "_mps_due_s": math.inf, "_now_s": lambda: 9.0, "_timeouts": Timeouts(), "_failed": []}
    state = {"gpu": gpu("A100"), "lost": "", "drained": "", "notes": [], "ended": {}, "_residents": residents}
    vars(device).update(parts | state | {"uuid": "GPU-1", "latest": Reading(9.0, None, 0.0, 0.0, 0.0)} | more)
    return device


@pytest.mark.parametrize(
    ("gangs", "failed"),
    [([None], [(0, True)]), ([None, None], [(0, False), (1, False)]), ([None, Gang(2)], [(0, False)])],
    ids=["a job alone is suspected", "jobs fail together", "a gang, which is no client, runs on"],
)
def test_clients_fail_with_their_mps_daemon(gangs, failed):
    residents = {task_id: job(task_id) for task_id in range(len(gangs))}
    for task_id, gang in enumerate(gangs):
        residents[task_id].gang = gang
        residents[task_id].worker = SimpleNamespace(stop=lambda: 0.0, failure=None)
    launcher = SimpleNamespace(leave=lambda task_id: None)
    device = device_of(residents, _launcher=launcher, _first_failure=(-math.inf, -1), _restarts=DaemonRestarts((4.0,)))
    device._check_mps()
    assert [(one.task_id, one.alone) for one in device.take_failures()] == failed
    assert device.running == len(gangs) - len(failed)
    assert device.notes == ["9.0 s: the MPS server of GPU-1 went down; it is started again in 4 s"]


def test_a_start_that_waits_for_the_system_is_noted_once():
    def start(*_, **more):
        raise ShortageError("no descriptor is left")

    waiting = job(0)
    waiting.job.spec.memory_mib = 500.0
    device = device_of({0: waiting}, _launcher=SimpleNamespace(start=start), _free_mib=math.inf, _short=False)
    for _ in range(2):
        device._try_start(waiting)
    assert (device.notes, waiting.failure) == (["9.0 s: the start of a job waits: no descriptor is left"], None)


def test_a_command_without_a_number_of_iterations_is_started_for_any_number():
    launcher = object.__new__(JobLauncher)
    mps = SimpleNamespace(sharing=MPS, environment=lambda mps_pct: {})
    jobs = {0: SimpleNamespace(spec=SimpleNamespace(command="x"))}
    vars(launcher).update(_jobs=jobs, _mps=mps, _attempts={0: 0}, _command=lambda *given: given[-1])
    assert [launcher.start(0, WORKLOAD, 50, count, gpu_uuid="GPU-1") for count in (5.0, None)] == [5.0, math.inf]


def test_a_gang_has_one_process_once_all_its_gpus_are_free():
    gangs = {}
    assert join(gangs, 0, 1, "GPU-0") is None
    first, second = (join(gangs, 1, 2, uuid) for uuid in ("GPU-0", "GPU-1"))
    assert first is second is gangs[1]
    assert [first.may_start(uuid) for uuid in ("GPU-1", "GPU-0")] == [False, True]
