"""Event loop on small task sets, computed by hand; most tests state all events that the policy receives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.policy_runs import run_on_toys
from support.scripted_policy import ScriptedPolicy

from heshare.devices.device import TaskFailure
from heshare.policies.policy import EventKind, Migrate, Pause, SetClock, Start, Wait
from heshare.running.clock import WallClock
from heshare.running.observer import Observer
from heshare.running.run import BegunRun
from heshare.running.state import WaitingTasks
from heshare.shared.errors import DeviceError, HeShareError, InputError, PolicyError
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
LIGHT = Workload("resnet18", 4)


def task(index, iterations, arrival_s=0.0, workload=LIGHT):
    return Task(index, workload, iterations, arrival_s)


def go(tasks, decide, *, gpu=GPU, gpus=1, tick_s=None, **options):
    """Run on toy devices; return the run and the events that the policy received."""
    policy = ScriptedPolicy(decide, tick_s=tick_s)
    return run_on_toys(tasks, policy, (gpu,) * gpus, **options), policy.trace


def start_all(event, view):
    return [Start(waiting.id, 0) for waiting in view.waiting]


def at(*actions):
    """Return the function of a policy that returns these actions for its first event, and none for others."""
    left = [list(actions)]
    return lambda event, view: left.pop() if left else []


def test_two_tasks_share():
    """Tasks that share a GPU are slower until one completes."""
    result, trace = go([task(0, 2.0), task(1, 4.0)], start_all)
    assert trace == [(0.0, "ARRIVAL", (0, 1), None), (4.0, "COMPLETION", (0,), 0), (6.0, "COMPLETION", (1,), 0)]
    assert result.jct_s.tolist() == [4.0, 6.0]
    assert [(row.start_s, row.end_s, row.residents) for row in result.timeline.itertuples()] == [
        (0.0, 4.0, "0@100+1@100"),
        (4.0, 6.0, "1@100"),
    ]
    assert result.energy_active_j == 6.0 * 110.0


def test_order_of_kinds():
    """A completion comes before an arrival, an arrival before a tick."""
    _, trace = go([task(0, 5.0), task(1, 1.0, 5.0)], start_all, tick_s=5.0)
    assert trace == [
        (0.0, "ARRIVAL", (0,), None),
        (5.0, "COMPLETION", (0,), 0),
        (5.0, "ARRIVAL", (1,), None),
        (5.0, "TICK", (), None),
        (6.0, "COMPLETION", (1,), 0),
    ]


def test_order_of_completions():
    """Completions at one time on two GPUs are in the order of their starts."""
    _, trace = go([task(0, 3.0), task(1, 3.0)], at(Start(1, 1), Start(0, 0)), gpus=2)
    assert trace[1:] == [(3.0, "COMPLETION", (1,), 1), (3.0, "COMPLETION", (0,), 0)]


def test_ticks_on_change():
    """A policy that needs ticks only after changes gets no others in virtual time, and they count as received."""

    def decide(event, view):
        slower = event.kind is EventKind.TICK and event.time_s == 1.0
        return [SetClock(0, 500)] if slower else start_all(event, view)

    runs = []
    for on_change in (False, True):
        policy = ScriptedPolicy(decide, tick_s=1.0)
        policy.ticks_on_change = on_change
        runs.append(run_on_toys([task(0, 4.0), task(1, 1.0, 7.5)], policy))
    assert runs[0] == runs[1]
    assert runs[0].events == runs[1].events == 9 + 4

    # The check at 4 s is void: the clock at 1 s has made the task slower.
    assert [(time_s, kind) for time_s, kind, _, _ in policy.trace] == [
        (0.0, "ARRIVAL"),
        (1.0, "TICK"),
        (2.0, "TICK"),
        (7.0, "COMPLETION"),
        (7.0, "TICK"),
        (7.5, "ARRIVAL"),
        (8.0, "TICK"),
        (9.0, "TICK"),
        (9.5, "COMPLETION"),
    ]


def test_simultaneous_arrivals():
    """Simultaneous arrivals are one event and pending decreases."""
    seen = []

    def decide(event, view):
        seen.append((view.now_s, [waiting.id for waiting in view.waiting], view.pending))
        return start_all(event, view)

    go([task(0, 1.0, 2.0), task(1, 1.0), task(2, 1.0, 2.0)], decide)
    assert seen == [(0.0, [1], 2), (1.0, [], 2), (2.0, [0, 2], 0), (4.0, [], 0)]


def test_pause():
    """A paused task waits and keeps its progress."""

    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [Start(0, 0), Wait(1.0)]
        if event.time_s == 1.0:
            return [Pause(0), Wait(3.0)]
        return [Start(0, 0)] if view.remaining else []

    result, trace = go([task(0, 4.0)], decide)
    assert [(time_s, kind) for time_s, kind, _, _ in trace] == [
        (0.0, "ARRIVAL"),
        (1.0, "TICK"),
        (3.0, "TICK"),
        (6.0, "COMPLETION"),
    ]
    assert (result.waiting_s[0], result.execution_s[0], result.jct_s[0]) == (2.0, 4.0, 6.0)
    assert result.intervals["outcome"].tolist() == ["paused", "completed"]
    assert result.intervals["iterations"].tolist() == [1.0, 3.0]
    assert result.energy_active_j == 4.0 * 110.0 + 2.0 * 10.0


def test_migration():
    """A migrated task continues on the other GPU."""

    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [SetClock(1, 500), Start(0, 0), Wait(1.0)]
        return [Migrate(0, 1, 50)] if event.kind is EventKind.TICK else []

    result, trace = go([task(0, 4.0)], decide, gpus=2)
    assert trace[-1] == (7.0, "COMPLETION", (0,), 1)
    assert result.intervals[["gpu", "mps_pct", "outcome"]].values.tolist() == [
        [0, 100, "migrated"],
        [1, 50, "completed"],
    ]
    assert (result.waiting_s[0], result.execution_s[0]) == (0.0, 7.0)
    assert result.gpu_energy_active_j.tolist() == [1.0 * 110.0, 1.0 * 10.0 + 6.0 * 60.0]
    assert result.gpu_energy_cluster_j.tolist() == [1.0 * 110.0 + 6.0 * 10.0, 1.0 * 10.0 + 6.0 * 60.0]


def test_idle_gaps():
    """Idle gaps count and the cluster account runs to the makespan."""

    def decide(event, view):
        return [Start(waiting.id, waiting.id % 2) for waiting in view.waiting]

    result, _ = go([task(0, 2.0), task(1, 9.0), task(2, 1.0, 5.0)], decide, gpus=2)
    assert result.gpu_energy_active_j.tolist() == [3 * 110.0 + 3 * 10.0, 9 * 110.0]
    assert result.gpu_energy_cluster_j.tolist() == [3 * 110.0 + 6 * 10.0, 9 * 110.0]
    assert result.device_energy_j.tolist() == [3 * 110.0 + 6 * 10.0, 9 * 110.0]
    assert result.utilisation.tolist() == [3 / 9, 1.0]
    assert (result.makespan_s, result.avg_jct_s) == (9.0, 4.0)


def test_start_cost():
    """Start cost delays progress."""
    result, trace = go([task(0, 2.0)], start_all, start_cost_s=5.0)
    assert trace == [(0.0, "ARRIVAL", (0,), None), (7.0, "COMPLETION", (0,), 0)]
    assert result.execution_s[0] == 7.0
    assert result.energy_active_j == 5 * 10.0 + 2 * 110.0
    assert result.power_over_time().values.tolist() == [[0.0, 10.0], [5.0, 110.0], [7.0, 0.0]]


def test_pause_while_loading():
    """A task paused while it loads loads again."""

    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [Start(0, 0), Wait(3.0)]
        if event.time_s == 3.0:
            assert math.isinf(view.gpus[0].running[0].time_s)
            return [Pause(0), Wait(4.0)]
        return start_all(event, view)

    result, trace = go([task(0, 2.0)], decide, start_cost_s=5.0)
    assert trace[-1] == (11.0, "COMPLETION", (0,), 0)
    assert (result.waiting_s[0], result.execution_s[0]) == (1.0, 10.0)


def test_pause_after_completion():
    """Pause of a task that has just completed has no effect."""

    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [Start(0, 0), Start(1, 1)]
        return [Pause(1)] if event.tasks == (0,) else []

    result, trace = go([task(0, 3.0), task(1, 3.0)], decide, gpus=2)
    assert trace[1:] == [(3.0, "COMPLETION", (0,), 0), (3.0, "COMPLETION", (1,), 1)]
    assert result.intervals["outcome"].tolist() == ["completed", "completed"]


HUGE = Workload("bert_large", 100_000)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([Start(0, 0), Start(0, 0)], "runs already"),
        ([Start(7, 0)], "no task 7"),
        ([Start(-1, 0)], "no task -1"),
        ([Start(1, 0)], "has not arrived"),
        ([Start(0, 3)], "no GPU 3"),
        ([Start(0, 0, 0)], "percentage of 0"),
        ([Start(0, 0, 101)], "percentage of 101"),
        ([Start(2, 0)], "MiB free of 32768 MiB"),
        ([SetClock(0, 777)], "777 MHz"),
        ([SetClock(5, 500)], "no GPU 5"),
        ([Pause(0)], "task 0 waits"),
        ([Migrate(0, 0)], "task 0 waits"),
        ([Wait(0.0)], "Wait for a finite time ahead"),
        ([Wait(math.inf)], "Wait for a finite time ahead"),
        (["start"], "is a str"),
    ],
)
def test_impossible_actions(actions, message):
    """Run refuses impossible actions."""
    with pytest.raises(PolicyError, match=message):
        go([task(0, 1.0), task(1, 1.0, 9.0), task(2, 1.0, workload=HUGE)], at(*actions))


def test_start_after_completion():
    """A completed task cannot be started again."""
    with pytest.raises(PolicyError, match="has completed"):
        go([task(0, 1.0), task(1, 1.0, 2.0)], lambda event, view: [Start(0, 0)])


def test_mps_clients():
    """More tasks than MPS clients are refused."""
    tasks = [task(index, 1.0) for index in range(49)]
    with pytest.raises(PolicyError, match="48 MPS clients"):
        go(tasks, start_all, gpu=toy_gpu(memory_mib=1e9))


@pytest.mark.parametrize(
    ("count", "tick_s", "listed"), [(2, None, "1"), (2, 1.0, "1"), (11, None, "9, 10"), (13, None, "9, 10 and 2 more")]
)
def test_never_started(count, tick_s, listed):
    """Run names ten tasks that are never started."""
    with pytest.raises(PolicyError, match=rf"Unfinished: tasks .*{listed} waits.*Never started: .*{listed}\."):
        go([task(index, 1.0) for index in range(count)], at(Start(0, 0)), tick_s=tick_s)


def test_time_limit():
    """A run that takes too long is given up and its tasks are stopped."""
    device = ToyDevice(GPU)

    def tick_for_ever(event, view):
        return [*start_all(event, view), Wait(event.time_s + 1.0)]

    with pytest.raises(HeShareError, match="1 of 2 tasks"):
        go([task(0, 1.0), task(1, 1e12)], tick_for_ever, devices=[device], max_time_s=0.05)
    assert device.read().residents == {}


def test_progress_bar(capsys):
    """A bar counts completed tasks; there is none without a terminal or a request."""
    go([task(0, 1.0), task(1, 2.0)], start_all, progress=True)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "scripted" in shown
    go([task(0, 1.0)], start_all)
    go([task(0, 1.0)], start_all, progress=None)
    assert capsys.readouterr().err == "", "no terminal, no bar"


class Failing(ToyDevice):
    """A toy device that reports, as task 0 completes there, that task 1 has failed."""

    _reports = ()

    def advance(self, now_s):
        completed = super().advance(now_s)
        self._reports = [TaskFailure(1, "crash", "it crashed", alone=True)] if 0 in completed else ()
        if self._reports:
            self.stop(1)
        return completed

    def take_failures(self):
        reports, self._reports = self._reports, ()
        return reports


class Retrying(Observer):
    def should_retry(self, failure):
        return True


def test_completion_and_failure():
    """A completion and a failure at one check are two events; a pause between them has no effect."""

    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [Start(0, 0), Start(1, 0)]
        return [Pause(1)] if event.kind is EventKind.COMPLETION and event.tasks == (0,) else start_all(event, view)

    _, trace = go([task(0, 1.0), task(1, 9.0)], decide, devices=[Failing(GPU)], observer=Retrying())
    assert [(kind, tasks) for _, kind, tasks, _ in trace] == [
        ("ARRIVAL", (0, 1)),
        ("COMPLETION", (0,)),
        ("FAILURE", (1,)),
        ("COMPLETION", (1,)),
    ]


def test_waiting_tasks():
    """Waiting tasks are by arrival and id, whatever comes back."""
    waiting = WaitingTasks()
    tasks = [task(index, 1.0, arrival_s=float(index // 2)) for index in range(6)]
    for each in tasks[:5]:
        waiting.arrive(each)
    waiting.leave(tasks[0])
    waiting.leave(tasks[2])
    assert list(waiting) == [tasks[1], tasks[3], tasks[4]]
    waiting.arrive(tasks[2])
    waiting.arrive(tasks[5])
    waiting.arrive(tasks[0])
    assert list(waiting) == tasks
    assert list(reversed(waiting)) == tasks[::-1]
    assert (waiting[0], waiting[-1], waiting[2], waiting[1:3]) == (tasks[0], tasks[5], tasks[2], tuple(tasks[1:3]))
    assert (len(waiting), tasks[3] in waiting) == (6, True)
    with pytest.raises(IndexError):
        waiting[6]


def test_failed_run():
    """A failed run stops its tasks."""
    device = ToyDevice(GPU)

    def decide(event, view):
        if event.kind is EventKind.TICK:
            raise KeyboardInterrupt
        return start_all(event, view)

    with pytest.raises(KeyboardInterrupt):
        go([task(0, 10.0)], decide, tick_s=1.0, devices=[device])
    assert device.read().residents == {}


class Stuck(ToyDevice):
    def advance(self, to_s):
        return []


def test_no_progress():
    """Run refuses a device without progress."""
    with pytest.raises(DeviceError, match="nothing completes"):
        go([task(0, 1.0)], start_all, devices=[Stuck(GPU)])


class Polled(ToyDevice):
    """A device that must be polled, as a real one: it does not announce when a task will complete."""

    def next_event_s(self):
        return self._now_s + 0.005 if self._running else math.inf


@pytest.mark.parametrize("device", [ToyDevice, Polled])
def test_wall_time(device):
    """Loop runs in wall time."""
    tasks = [task(0, 2.0), task(1, 4.0), task(2, 1.0, 0.03)]
    result, trace = go(tasks, start_all, devices=[device(GPU, base_s=0.01)], clock=WallClock())
    completed = [task for _, kind, tasks, _ in trace if kind == "COMPLETION" for task in tasks]
    assert sorted(completed) == [0, 1, 2]
    assert result.makespan_s >= 0.07
    np.testing.assert_allclose(result.jct_s, result.waiting_s + result.execution_s)
    np.testing.assert_allclose(result.gpu_energy_cluster_j, result.device_energy_j, rtol=0.5)


def test_smallest_batch_size():
    """A task may run where it fits with its smallest batch size alone."""
    tight = toy_gpu(
        memory_mib=(memory_mib(replace(LIGHT, batch_size=1)) + memory_mib(replace(LIGHT, batch_size=2))) / 2
    )
    result, _ = go([task(0, 1.0)], at(Start(0, 0, 100, batch_size=1)), gpu=tight)
    assert result.jct_s.tolist() == [4.0]


def test_ended_tasks():
    """The tasks that ended are counted as they end."""
    tasks, ended = [task(0, 1.0), task(1, 1.0), task(2, 1.0, 9.0)], []
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": [ToyDevice(GPU)]}
    begun = BegunRun(tasks, Cluster((GPU,)), ScriptedPolicy(start_all), **options)
    for _ in begun.loop.steps():
        ended.append((begun.loop.view(0.0).pending, begun.loop.ended))
    assert ended == [(1, 0), (1, 2), (0, 2), (0, 3)]


def test_one_moment():
    """Events within a nanosecond are one moment and completions come first."""
    # The tick of 3 s and the arrival at 3 s less a hair come before the completion at 3 s, but only by rounding.
    _, trace = go([task(0, 3.0), task(1, 1.0, 3.0 - 4e-10), task(2, 1.0, 3.0 - 2e-10)], start_all)
    assert [(kind, tasks) for _, kind, tasks, _ in trace] == [
        ("ARRIVAL", (0,)),
        ("COMPLETION", (0,)),
        ("ARRIVAL", (1, 2)),
        ("COMPLETION", (1, 2)),
    ]


def test_view():
    """The view shows a running task in iterations of the inference batch size that runs, and is read-only."""
    seen = []

    def decide(event, view):
        gpu = view.gpus[0]
        if event.kind is EventKind.TICK:
            running = gpu.running[0]
            seen.append((running.mps_pct, running.time_s, running.remaining, gpu.power_w))
            assert gpu.free_mib < GPU.memory_mib
        with pytest.raises(TypeError, match="item assignment"):
            view.remaining[0] = 1.0
        return [Start(waiting.id, 0, 30, batch_size=8) for waiting in view.waiting]

    # 6 iterations of size 4 are 3 of size 8.
    result, _ = go([task(0, 6.0)], decide, tick_s=1.0)
    assert seen == [(30, 1.0, 2.0, 110.0), (30, 1.0, 1.0, 110.0)]
    assert result.jct_s.tolist() == [3.0]
    assert result.intervals[["batch_size", "iterations"]].values.tolist() == [[8, 6.0]]


class Noting(Observer):
    def __init__(self):
        self.decisions, self.waited = [], []

    def wait(self, until_s):
        self.waited.append(until_s)
        return ()

    def on_decision(self, event, actions):
        self.decisions.append((event.kind.name, actions))


def test_observer():
    """An observer that waits is asked before each event, and receives each decision."""
    observer = Noting()
    go([task(0, 2.0), task(1, 4.0)], start_all, observer=observer)
    assert observer.waited == [0.0, 4.0, 6.0]
    assert observer.decisions == [("ARRIVAL", [Start(0, 0), Start(1, 0)]), ("COMPLETION", []), ("COMPLETION", [])]


def test_own_predictions():
    """A run counts its own predictions only."""
    predictor = ToyPredictor()
    predictor.calls = 7

    def decide(event, view):
        predictor.calls += 2
        return start_all(event, view)

    result, _ = go([task(0, 1.0)], decide, predictor=predictor)
    assert result.predictor_calls == 2 * result.events == 4


class Other:
    name = "other"


def named(name, tick_s=None):
    policy = ScriptedPolicy(start_all, tick_s=tick_s)
    policy.name = name
    return policy


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (Other(), "does not inherit from Policy"),
        (named(""), "a policy with a name"),
        (named(None), "a policy with a name"),
        (named("ticking", 0.0), "a time above 0 s"),
        (named("ticking", math.inf), "a time above 0 s"),
    ],
)
def test_wrong_policy(policy, found):
    """What is no policy, has no name or an impossible tick is refused."""
    with pytest.raises(InputError, match=found):
        run_on_toys([task(0, 1.0)], policy)


@pytest.mark.parametrize(
    ("tasks", "devices", "found"),
    [
        ([], 1, "no task"),
        ([task(1, 1.0)], 1, "each id"),
        ([task(0, 1.0), task(0, 2.0)], 1, "each id"),
        ([task(0, 1.0)], 2, "one for each GPU"),
    ],
)
def test_wrong_inputs(tasks, devices, found):
    """No tasks, ids that do not count from zero, and devices that do not match the cluster are refused."""
    with pytest.raises(InputError, match=found):
        go(tasks, start_all, devices=[ToyDevice(GPU)] * devices)
