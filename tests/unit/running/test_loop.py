"""Event loop on small task sets, computed by hand; most tests state all events that the policy receives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.scripted_policy import ScriptedPolicy

from heshare.devices.device import TaskFailure
from heshare.policies.policy import EventKind, Migrate, Pause, SetClock, Start, Wait
from heshare.running.clock import WallClock
from heshare.running.observer import Observer
from heshare.running.run import BegunRun, run
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


def go(tasks, decide, *, gpu=GPU, gpus=1, tick_s=None, devices=None, **options):
    """Run on toy devices; return the run and the events that the policy received."""
    policy = ScriptedPolicy(decide, tick_s=tick_s)
    return run_policy(tasks, policy, gpu=gpu, gpus=gpus, devices=devices, **options), policy.trace


def run_policy(tasks, policy, *, gpu=GPU, gpus=1, devices=None, **options):
    """Run a policy on toy devices."""
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), **options}
    options["devices"] = [ToyDevice(gpu) for _ in range(gpus)] if devices is None else devices
    return run(tasks, Cluster((gpu,) * gpus), policy, **options)


def start_all(event, view):
    return [Start(waiting.id, 0) for waiting in view.waiting]


def at(*actions):
    """Return the function of a policy that returns these actions for its first event, and none for others."""
    left = [list(actions)]
    return lambda event, view: left.pop() if left else []


def test_tasks_that_share_a_gpu_are_slower_until_one_completes():
    result, trace = go([task(0, 2.0), task(1, 4.0)], start_all)
    assert trace == [(0.0, "ARRIVAL", (0, 1), None), (4.0, "COMPLETION", (0,), 0), (6.0, "COMPLETION", (1,), 0)]
    assert result.jct_s.tolist() == [4.0, 6.0]
    assert [(row.start_s, row.end_s, row.residents) for row in result.timeline.itertuples()] == [
        (0.0, 4.0, "0@100+1@100"),
        (4.0, 6.0, "1@100"),
    ]
    assert result.energy_active_j == 6.0 * 110.0


def test_loop_processes_a_completion_before_an_arrival_before_a_tick():
    _, trace = go([task(0, 5.0), task(1, 1.0, 5.0)], start_all, tick_s=5.0)
    assert trace == [
        (0.0, "ARRIVAL", (0,), None),
        (5.0, "COMPLETION", (0,), 0),
        (5.0, "ARRIVAL", (1,), None),
        (5.0, "TICK", (), None),
        (6.0, "COMPLETION", (1,), 0),
    ]


def test_completions_at_one_time_on_two_gpus_are_in_the_order_of_their_starts():
    _, trace = go([task(0, 3.0), task(1, 3.0)], at(Start(1, 1), Start(0, 0)), gpus=2)
    assert trace[1:] == [(3.0, "COMPLETION", (1,), 1), (3.0, "COMPLETION", (0,), 0)]


def test_simultaneous_arrivals_are_one_event_and_pending_decreases():
    seen = []

    def decide(event, view):
        seen.append((view.now_s, [waiting.id for waiting in view.waiting], view.pending))
        return start_all(event, view)

    go([task(0, 1.0, 2.0), task(1, 1.0), task(2, 1.0, 2.0)], decide)
    assert seen == [(0.0, [1], 2), (1.0, [], 2), (2.0, [0, 2], 0), (4.0, [], 0)]


def test_a_paused_task_waits_and_keeps_its_progress():
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


def test_a_migrated_task_continues_on_the_other_gpu():
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


def test_a_new_clock_changes_speed_and_power_at_once():
    def decide(event, view):
        if event.kind is EventKind.ARRIVAL:
            return [Start(0, 0)]
        return [SetClock(0, 500)] if event.time_s == 2.0 else []

    result, trace = go([task(0, 4.0)], decide, tick_s=2.0)
    assert trace[-1][0] == 6.0
    assert result.timeline["power_w"].tolist() == [110.0, 60.0]
    assert result.timeline["requested_mhz"].fillna(0).tolist() == [0, 500]
    assert result.power_over_time().values.tolist() == [[0.0, 110.0], [2.0, 60.0], [6.0, 0.0]]


def test_idle_gaps_count_and_the_cluster_account_runs_to_the_makespan():
    def decide(event, view):
        return [Start(waiting.id, waiting.id % 2) for waiting in view.waiting]

    result, _ = go([task(0, 2.0), task(1, 9.0), task(2, 1.0, 5.0)], decide, gpus=2)
    assert result.gpu_energy_active_j.tolist() == [3 * 110.0 + 3 * 10.0, 9 * 110.0]
    assert result.gpu_energy_cluster_j.tolist() == [3 * 110.0 + 6 * 10.0, 9 * 110.0]
    assert result.device_energy_j.tolist() == [3 * 110.0 + 6 * 10.0, 9 * 110.0]
    assert result.utilisation.tolist() == [3 / 9, 1.0]
    assert (result.makespan_s, result.avg_jct_s) == (9.0, 4.0)


def test_start_with_another_batch_size_keeps_the_number_of_samples():
    result, trace = go([task(0, 6.0)], at(Start(0, 0, 100, batch_size=8)))
    assert trace[-1][0] == 3.0
    assert result.intervals[["batch_size", "iterations"]].values.tolist() == [[8, 6.0]]


def test_start_cost_delays_progress():
    result, trace = go([task(0, 2.0)], start_all, start_cost_s=5.0)
    assert trace == [(0.0, "ARRIVAL", (0,), None), (7.0, "COMPLETION", (0,), 0)]
    assert result.execution_s[0] == 7.0
    assert result.energy_active_j == 5 * 10.0 + 2 * 110.0


def test_a_task_paused_while_it_loads_loads_again():
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


def test_view_shows_the_running_task_and_the_free_memory():
    seen = {}

    def decide(event, view):
        gpu = view.gpus[0]
        if event.kind is EventKind.TICK:
            running = gpu.running[0]
            seen.update(
                mps_pct=running.mps_pct, time_s=running.time_s, remaining=running.remaining, power_w=gpu.power_w
            )
            seen["free"] = gpu.free_mib < GPU.memory_mib
        return [Start(waiting.id, 0, 30) for waiting in view.waiting]

    go([task(0, 4.0)], decide, tick_s=3.0)
    assert seen == {"mps_pct": 30, "time_s": 1.0, "remaining": 1.0, "power_w": 110.0, "free": True}


def test_pause_of_a_task_that_has_just_completed_has_no_effect():
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
def test_run_refuses_impossible_actions(actions, message):
    with pytest.raises(PolicyError, match=message):
        go([task(0, 1.0), task(1, 1.0, 9.0), task(2, 1.0, workload=HUGE)], at(*actions))


def test_a_completed_task_cannot_be_started_again():
    def decide(event, view):
        return [Start(0, 0)]

    with pytest.raises(PolicyError, match="has completed"):
        go([task(0, 1.0), task(1, 1.0, 2.0)], decide)


def test_more_tasks_than_mps_clients_are_refused():
    tasks = [task(index, 1.0) for index in range(49)]
    with pytest.raises(PolicyError, match="48 MPS clients"):
        go(tasks, start_all, gpu=toy_gpu(memory_mib=1e9))


@pytest.mark.parametrize(
    ("count", "tick_s", "listed"), [(2, None, "1"), (2, 1.0, "1"), (11, None, "9, 10"), (13, None, "9, 10 and 2 more")]
)
def test_run_names_ten_tasks_that_are_never_started(count, tick_s, listed):
    with pytest.raises(PolicyError, match=rf"Never started: .*{listed}\."):
        go([task(index, 1.0) for index in range(count)], at(Start(0, 0)), tick_s=tick_s)


def test_a_run_that_takes_too_long_is_given_up_and_its_tasks_are_stopped():
    device = ToyDevice(GPU)

    def tick_for_ever(event, view):
        return [*start_all(event, view), Wait(event.time_s + 1.0)]

    with pytest.raises(HeShareError, match="1 of 2 tasks"):
        go([task(0, 1.0), task(1, 1e12)], tick_for_ever, devices=[device], max_time_s=0.05)
    assert device.read().residents == {}


def test_a_bar_counts_completed_tasks(capsys):
    go([task(0, 1.0), task(1, 2.0)], start_all, progress=True)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "scripted" in shown
    go([task(0, 1.0)], start_all)
    go([task(0, 1.0)], start_all, progress=None)
    assert capsys.readouterr().err == "", "no terminal, no bar"


def test_a_class_that_does_not_inherit_from_policy_is_refused():
    class Other:
        name = "other"

        def decide(self, event, view):
            return []

    with pytest.raises(InputError, match="Other, which does not inherit from Policy"):
        run_policy([task(0, 1.0)], Other())


@pytest.mark.parametrize(("name", "tick_s"), [("", None), (None, None), ("ticking", 0.0), ("ticking", math.inf)])
def test_a_policy_without_a_name_or_with_an_impossible_tick_is_refused(name, tick_s):
    policy = ScriptedPolicy(start_all, tick_s=tick_s)
    policy.name = name
    with pytest.raises(InputError, match=r"a policy with a name|a time above 0 s"):
        run_policy([task(0, 1.0)], policy)


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


def test_a_completion_and_a_failure_at_one_check_are_two_events_and_a_pause_between_them_has_no_effect():
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


def test_waiting_tasks_are_by_arrival_and_id_whatever_comes_back():
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


def test_a_failed_run_stops_its_tasks():
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


def test_run_refuses_a_device_without_progress():
    with pytest.raises(DeviceError, match="nothing completes"):
        go([task(0, 1.0)], start_all, devices=[Stuck(GPU)])


def test_a_run_counts_its_own_predictions_only():
    predictor = ToyPredictor()
    predictor.calls = 7

    def decide(event, view):
        predictor.calls += 2
        return start_all(event, view)

    result, _ = go([task(0, 1.0)], decide, predictor=predictor)
    assert result.predictor_calls == 2 * result.events == 4


class Listening(Observer):
    def __init__(self):
        self.decisions = []

    def on_decision(self, event, actions):
        self.decisions.append((event.kind.name, actions))


def test_an_observer_receives_each_decision():
    observer = Listening()
    go([task(0, 1.0)], start_all, observer=observer)
    assert observer.decisions == [("ARRIVAL", [Start(0, 0)]), ("COMPLETION", [])]


@pytest.mark.parametrize(
    ("tasks", "found"), [([], "no task"), ([task(1, 1.0)], "each id"), ([task(0, 1.0), task(0, 2.0)], "each id")]
)
def test_run_refuses_no_tasks_and_ids_that_do_not_count_from_zero(tasks, found):
    with pytest.raises(InputError, match=found):
        go(tasks, start_all)


def test_run_refuses_devices_that_do_not_match_the_cluster():
    with pytest.raises(InputError, match="one for each GPU"):
        go([task(0, 1.0)], start_all, gpus=2, devices=[ToyDevice(GPU)])


class Polled(ToyDevice):
    """A device that must be polled, as a real one: it does not announce when a task will complete."""

    def next_event_s(self):
        return self._now_s + 0.005 if self._running else math.inf


@pytest.mark.parametrize("device", [ToyDevice, Polled])
def test_loop_runs_in_wall_time(device):
    tasks = [task(0, 2.0), task(1, 4.0), task(2, 1.0, 0.03)]
    result, trace = go(tasks, start_all, devices=[device(GPU, base_s=0.01)], clock=WallClock())
    completed = [task for _, kind, tasks, _ in trace if kind == "COMPLETION" for task in tasks]
    assert sorted(completed) == [0, 1, 2]
    assert result.makespan_s >= 0.07
    np.testing.assert_allclose(result.jct_s, result.waiting_s + result.execution_s)
    np.testing.assert_allclose(result.gpu_energy_cluster_j, result.device_energy_j, rtol=0.5)


def test_view_shows_what_remains_in_iterations_of_the_batch_size_that_runs():
    shown = []

    def decide(event, view):
        if event.kind is EventKind.TICK:
            shown.append(view.gpus[0].running[0].remaining)
        return [Start(waiting.id, 0, 100, batch_size=8) for waiting in view.waiting]

    go([task(0, 6.0)], decide, tick_s=1.0)
    assert shown == [2.0, 1.0]


def test_an_observer_that_waits_is_asked_before_each_event():
    waited = []

    class Waiting(Observer):
        def wait(self, until_s):
            waited.append(until_s)
            return ()

    go([task(0, 2.0), task(1, 4.0)], start_all, observer=Waiting())
    assert waited == [0.0, 4.0, 6.0]


def test_a_task_may_run_where_it_fits_with_its_smallest_batch_size_alone():
    tight = toy_gpu(
        memory_mib=(memory_mib(replace(LIGHT, batch_size=1)) + memory_mib(replace(LIGHT, batch_size=2))) / 2
    )
    result, _ = go([task(0, 1.0)], at(Start(0, 0, 100, batch_size=1)), gpu=tight)
    assert result.jct_s.tolist() == [4.0]


def test_the_tasks_that_ended_are_counted_as_they_end():
    tasks, ended = [task(0, 1.0), task(1, 1.0), task(2, 1.0, 9.0)], []
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": [ToyDevice(GPU)]}
    begun = BegunRun(tasks, Cluster((GPU,)), ScriptedPolicy(start_all), **options)
    for _ in begun.loop.steps():
        ended.append((begun.loop.view(0.0).pending, begun.loop.ended))
    assert ended == [(1, 0), (1, 2), (0, 2), (0, 3)]


def test_events_within_a_nanosecond_are_one_moment_and_completions_come_first():
    # The tick of 3 s and the arrival at 3 s less a hair come before the completion at 3 s, but only by rounding.
    _, trace = go([task(0, 3.0), task(1, 1.0, 3.0 - 4e-10), task(2, 1.0, 3.0 - 2e-10)], start_all)
    assert [(kind, tasks) for _, kind, tasks, _ in trace] == [
        ("ARRIVAL", (0,)),
        ("COMPLETION", (0,)),
        ("ARRIVAL", (1, 2)),
        ("COMPLETION", (1, 2)),
    ]


def test_a_policy_cannot_change_what_remains_of_a_task():
    def decide(event, view):
        with pytest.raises(TypeError, match="item assignment"):
            view.remaining[0] = 1.0
        return start_all(event, view)

    result, _ = go([task(0, 6.0)], decide)
    assert result.record.intervals[0].iterations == 6.0
