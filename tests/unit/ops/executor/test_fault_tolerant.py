"""`FaultTolerantPolicy` in virtual time, on devices where tasks fail at set moments; times are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.scripted_policy import ScriptedPolicy

from heshare.devices.device import TaskFailure
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.policies.policy import EventKind, Pause, Start
from heshare.policies.registry import make
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.shared.errors import PolicyError
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
POLICIES = ["random", "random:all-at-once", "sched-only:all-at-once", "morak", "mu-serve"]


class FailingDevice(ToyDevice):
    """A toy device on which the tasks of `faults`, (time, task, failure), fail, or the GPU is lost at a time.

    From the first time of `drained_s` to the second nothing new may start on it.
    """

    def __init__(self, gpu, faults=(), lost_s=None, drained_s=()):
        super().__init__(gpu)
        self._drained_s = drained_s
        self._faults = sorted(faults)
        self._lost_s = lost_s
        self._failed = []
        self.lost = ""

    def next_event_s(self):
        moments = [when for when, task, _ in self._faults if task in self._running]
        if self._lost_s is not None and not self.lost:
            moments.append(self._lost_s)
        moments += [moment for moment in self._drained_s if moment > self._now_s]
        return min([super().next_event_s(), *[max(when, self._now_s) for when in moments]])

    def advance(self, to_s):
        done = super().advance(to_s)
        for fault in [fault for fault in self._faults if fault[0] <= to_s and fault[1] in self._running]:
            self._faults.remove(fault)
            self.stop(fault[1])
            self._failed.append(fault[2])
        if self._lost_s is not None and to_s >= self._lost_s and not self.lost:
            self.lost = "fell off the bus"
            for task in list(self._running):
                self.stop(task)
                self._failed.append(TaskFailure(task, "lost", "lost", charged=False))
        return done

    @property
    def drained(self):
        return "Xid 48" if sum(moment <= self._now_s for moment in self._drained_s) == 1 else ""

    def start(self, task_id, workload, mps_pct, iterations=None):
        assert not self.drained
        super().start(task_id, workload, mps_pct, iterations)

    def take_failures(self):
        failed, self._failed = self._failed, []
        return failed


class RetryingObserver(Observer):
    def __init__(self, times=9):
        self.left = times
        self.decisions = []

    def should_retry(self, failed):
        self.left -= 1
        return self.left >= 0

    def on_decision(self, event, actions):
        self.decisions.append((event.time_s, event.kind, event.tasks, tuple(actions)))


def task(index, iterations, arrival_s=0.0, gpus=1):
    return Task(index, Workload("mobilenet", 1), float(iterations), arrival_s, gpus=gpus)


def tasks(*iterations):
    return [task(index, count) for index, count in enumerate(iterations)]


def simulate(devices, policy, pending, observer=None):
    observer = observer or RetryingObserver()
    cluster = Cluster(tuple(device.gpu for device in devices))
    done = run(
        pending, cluster, FaultTolerantPolicy(policy), predictor=ToyPredictor(), rng=np.random.default_rng(0),
        devices=devices, observer=observer,
    )  # fmt: skip
    return done, observer


def completed(done):
    return [interval for interval in done.record.intervals if interval.outcome == "completed"]


def all_on_first(event, view):
    return [Start(task.id, 0) for task in view.waiting]


def test_retry():
    """A failed task is retried from its beginning."""
    done, observer = simulate(
        [FailingDevice(GPU, [(3.0, 0, TaskFailure(0, "crash", "x"))])], ScriptedPolicy(all_on_first), tasks(10.0)
    )
    assert [(interval.start_s, interval.end_s, interval.outcome) for interval in done.record.intervals] == [
        (0.0, 3.0, "failed: crash"),
        (3.0, 13.0, "completed"),
    ]
    assert [kind for _, kind, *_ in observer.decisions] == [EventKind.ARRIVAL, EventKind.FAILURE, EventKind.COMPLETION]


@pytest.mark.parametrize(
    ("more", "pending", "attempts"),
    [
        ([(2.0, 1, TaskFailure(1, "shared", "x", False))], tasks(10.0, 10.0), [(1, 2.0, 12.0), (0, 12.0, 22.0)]),
        ([], [*tasks(10.0), task(1, 5.0, 4.0)], [(0, 2.0, 12.0), (1, 12.0, 17.0)]),
    ],
    ids=["once nothing else waits", "nothing starts beside it"],
)
def test_suspect_alone(more, pending, attempts):
    """A suspect runs alone: once nothing else waits, and nothing starts beside it."""
    device = FailingDevice(GPU, [(2.0, 0, TaskFailure(0, "crash", "x", alone=True)), *more])
    done, _ = simulate([device], ScriptedPolicy(all_on_first), pending)
    assert [(one.task, one.start_s, one.end_s) for one in completed(done)] == attempts


@pytest.mark.parametrize("name", POLICIES)
def test_refused_starts_later(name):
    """Tasks that were refused beside a suspect start after it has failed again."""
    again = [(when, 0, TaskFailure(0, "crash", "x", alone=True)) for when in (2.0, 5.0)]
    done, _ = simulate([FailingDevice(GPU, again)], make(name), [*tasks(10.0), task(1, 5.0, 4.0)])
    assert sorted(one.task for one in completed(done)) == [0, 1]


@pytest.mark.parametrize("name", POLICIES)
def test_drained_gpu(name):
    """Nothing starts on a drained GPU, whose tasks run on."""
    devices = [FailingDevice(GPU, drained_s=(3.0, 40.0)), FailingDevice(GPU)]
    pending = [*[task(index, 8.0, float(max(0, index - 7))) for index in range(16)], task(16, 8.0, 100.0)]
    done, _ = simulate(devices, make(name), pending)
    assert [interval.outcome for interval in done.record.intervals] == ["completed"] * 17
    on_drained = [interval for interval in done.record.intervals if interval.gpu == 0]
    assert any(interval.start_s < 3.0 < interval.end_s for interval in on_drained)
    assert not [interval for interval in on_drained if 3.0 < interval.start_s < 40.0]


@pytest.mark.parametrize("name", ["random", "morak", "mu-serve"])
@pytest.mark.parametrize("expected", [True, False])
def test_expected_gpu(name, expected):
    """A task waits for a GPU that is expected to take tasks again, also under a policy that ticks."""
    device = FailingDevice(GPU, drained_s=(1.0, 30.0))
    policy = FaultTolerantPolicy(make(name), lambda: expected and bool(device.drained))

    def simulated():
        return run(
            [*tasks(5.0), task(1, 5.0, 2.0)], Cluster((GPU,)), policy, predictor=ToyPredictor(),
            rng=np.random.default_rng(0), devices=[device],
        )  # fmt: skip

    if policy.tick_s is None or expected:
        _, last = completed(simulated())
        assert (last.task, last.start_s >= 30.0) == (1, True)
    else:
        with pytest.raises(PolicyError, match="a tick started nothing"):
            simulated()


def test_all_gpus_lost():
    """Without any GPU a run ends with an error that names its unfinished tasks."""
    with pytest.raises(PolicyError, match=r"Unfinished: tasks 0, 1 waits"):
        simulate([FailingDevice(GPU, lost_s=5.0)], make("random:all-at-once"), tasks(8.0, 8.0))


def test_numbers_without_lost():
    """The wrapped policy sees GPUs numbered without the lost one."""
    seen = []

    def decide(event, view):
        seen.append((len(view.gpus), {task: one.gpus for task, one in view.gpus[-1].running.items()}))
        if view.waiting and len(view.gpus) == 3:
            yield Start(0, 2, also=(1,))
            yield Start(1, 0)
        elif view.waiting:
            assert view.gpus[1].running[0].time_s == 1.0
            yield Pause(0)

    pending = [task(0, 10.0, gpus=2), task(1, 10.0)]
    devices = [FailingDevice(GPU, lost_s=2.0), FailingDevice(GPU), FailingDevice(GPU)]
    with pytest.raises(PolicyError, match="Unfinished"):
        simulate(devices, ScriptedPolicy(decide), pending)
    assert seen[:2] == [(3, {}), (2, {0: (1, 0)})]


@pytest.mark.parametrize("name", ["random", "random:all-at-once", "sched-only"])
def test_no_failures(name):
    """Without failures the decisions are those of the wrapped policy."""
    decisions = []
    for wrap in (FaultTolerantPolicy, lambda policy: policy):
        observer = RetryingObserver()
        cluster = Cluster.parse("2xT4,1xA100")
        pending = [Task(index, Workload("resnet50", 4), 1e3 + 100 * index) for index in range(12)]
        run(
            pending, cluster, wrap(make(name)), predictor=ToyPredictor(), rng=np.random.default_rng(1),
            devices=[ToyDevice(gpu) for gpu in cluster.gpus], observer=observer,
        )  # fmt: skip
        decisions.append(observer.decisions)
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize("name", POLICIES)
def test_every_task_completes(name):
    """Every policy completes each task once in spite of all kinds of failures."""
    crashes = [(3.0, task, TaskFailure(task, "crash", "x", alone=task == 1)) for task in range(6)]
    shared = [(11.0, task, TaskFailure(task, "shared", "x", charged=False)) for task in range(6)]
    devices = [FailingDevice(GPU, lost_s=7.0), FailingDevice(GPU, crashes), FailingDevice(GPU, shared)]
    pending = [task(index, 5.0 + index, float(index % 3)) for index in range(12)]
    done, _ = simulate(devices, make(name), pending, RetryingObserver(1000))
    assert sorted(one.task for one in completed(done)) == list(range(12))
    assert all(one.gpu != 0 for one in completed(done) if one.end_s > 7.0)
    assert sum(interval.outcome.startswith("failed") for interval in done.record.intervals) > 3
