"""GPUs of a run: what is refused, jobs without a process, failures of co-runners, and a GPU that is missing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from heshare.devices.device import Reading, TaskFailure
from heshare.ops.executor.executor_device import ExecutorDevice, LostDevice, Timeouts
from heshare.ops.executor.job_on_gpu import JobOnGpu
from heshare.ops.mps import MPS, TIME_SLICE, DaemonRestarts
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

WORKLOAD = Workload("resnet50", 8)


def job(task_id: int) -> JobOnGpu:
    return JobOnGpu(task_id, SimpleNamespace(spec=SimpleNamespace(timeout_s=5.0)), Resident(WORKLOAD, 10), 1.0, 0.0)


def device_of(residents, **more):
    """Return a GPU with MPS and these jobs, of which `more` are parts; it has no card."""
    device = object.__new__(ExecutorDevice)
    mps = SimpleNamespace(sharing=MPS, alive=lambda: False, stop=lambda: None)
    parts = {"_mps": mps, "_mps_due_s": math.inf, "_now_s": lambda: 9.0, "_timeouts": Timeouts(), "_failed": []}
    state = {"gpu": gpu("A100"), "lost": "", "drained": "", "notes": [], "ended": {}, "_residents": residents}
    vars(device).update(parts | state | {"uuid": "GPU-1", "latest": Reading(9.0, None, 0.0, 0.0, 0.0)} | more)
    return device


def test_refused_starts():
    """A GPU takes as many jobs as MPS has clients, each of them once, and shares by MPS alone."""
    device = device_of({task_id: job(task_id) for task_id in range(48)})
    with pytest.raises(DeviceError, match="48 jobs on it already"):
        device.start(48, WORKLOAD, 10, 1.0)
    with pytest.raises(DeviceError, match="job 7 on it already"):
        device.start(7, WORKLOAD, 10, 1.0)
    with pytest.raises(DeviceError, match="sharing by mig is not possible"):
        device.start_as(0, SimpleNamespace(sharing="mig"))


def test_no_process():
    """A job without a process has nothing to stop, and its time has not begun."""
    waiting = job(0)
    waiting.begin_stop("timeout", "5 s are over")
    assert (waiting.stopping, waiting.failure, waiting.ended_failure()) == (None, None, None)
    assert (waiting.loading, waiting.finished, waiting.deadline_s) == (False, False, float("inf"))


@pytest.mark.parametrize(("time_s", "shown_s"), [(math.nan, math.inf), (0.0, math.inf), (0.5, 0.5)])
def test_no_time_shown(time_s, shown_s):
    """A job whose iteration time is unknown takes for ever, and has done no more than was asked."""
    running = job(0)
    running.worker = SimpleNamespace(time_s=time_s, done=3.0)
    assert (running.progress().done, running.progress().time_s) == (1.0, shown_s)


def test_missing_gpu():
    """Jobs of a missing GPU fail at once and uncharged, to run again elsewhere."""
    device = LostDevice(gpu("T4"), "GPU-0", "GPU-0: not found", lambda: 3.0)
    assert (device.state, device.next_event_s(), device.read().power_w) == ("lost", math.inf, 0.0)
    assert device.notes == ["3.0 s: lost: GPU-0: not found"]
    for task in (0, 1):
        device.start(task, WORKLOAD, 50)
    assert set(device.read().residents) == {0, 1}
    assert (device.next_event_s(), device.stop(1), device.advance(3.0)) == (3.0, 0.0, [])
    assert device.take_failures() == [TaskFailure(0, "lost", "GPU-0: not found", charged=False)]
    assert device.take_failures() == []
    assert (device.running, device.next_event_s()) == (0, math.inf)
    assert set(device.ended) == {0, 1}
    assert device.shares_j() == {0: 0.0, 1: 0.0}


@pytest.mark.parametrize(
    ("now_s", "began_s", "kind"),
    [(103.0, 50.0, "shared"), (103.0, 101.0, "crash"), (110.0, 50.0, "crash")],
    ids=["soon after its neighbour", "started after that", "long after that"],
)
def test_shared_failure(now_s, began_s, kind):
    """A failure soon after that of a co-runner is shared and charged to nobody; the first to fail is the suspect."""
    device = device_of({2: job(2)}, _timeouts=Timeouts(shared_s=5.0), _first_failure=(100.0, 0), _now_s=lambda: now_s)
    neighbour = job(1)
    neighbour.began_s = began_s
    found = device._classify(neighbour, TaskFailure(1, "crash", "exit code 1"))
    assert (found.kind, found.charged, found.alone) == (kind, kind == "crash", kind == "crash")


@pytest.mark.parametrize("jobs", [1, 2])
def test_mps_daemon_ends(jobs):
    """Clients fail with their MPS daemon; a job that was alone is suspected of it."""
    residents = {task_id: job(task_id) for task_id in range(jobs)}
    for one in residents.values():
        one.worker = SimpleNamespace(stop=lambda: 0.0, failure=None)
    device = device_of(residents, _first_failure=(-math.inf, -1), _restarts=DaemonRestarts((4.0,)))
    device._check_mps()
    assert [(one.task_id, one.alone) for one in device.take_failures()] == [(task, jobs == 1) for task in range(jobs)]
    assert device.running == 0
    assert device.notes == ["9.0 s: the MPS server of GPU-1 went down; it is started again in 4 s"]


@pytest.mark.parametrize("exclusive", [True, False])
def test_exclusive_without_mps(exclusive):
    """An exclusive card without MPS takes no new jobs; what runs is left alone."""
    sampler, mps = SimpleNamespace(silent_s=0.0, drained=""), SimpleNamespace(sharing=TIME_SLICE)
    device = device_of({}, _card=SimpleNamespace(exclusive=exclusive), _sampler=sampler, _mps=mps)
    device._update_drained()
    assert ("compute mode is exclusive" in device.drained) is exclusive
    assert (device.state == "drained") is exclusive
