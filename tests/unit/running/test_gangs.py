"""Gangs, epochs and ways of sharing in the event loop, computed by hand."""

import numpy as np
import pytest
from support.policy_runs import run_on_toys
from support.scripted_policy import ScriptedPolicy

from heshare.devices.device import Device, TaskFailure
from heshare.policies.policy import EventKind, Migrate, Pause, SetClock, Start, Wait
from heshare.shared.errors import DeviceError, InputError, PolicyError
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
LIGHT = Workload("resnet18", 4)


def go(tasks, decide, *, gpus=2, base_s=None, devices=None, tick_s=None, **options):
    policy = ScriptedPolicy(decide, tick_s=tick_s)
    devices = devices or [ToyDevice(GPU, base_s=time_s) for time_s in base_s or [1.0] * gpus]
    return run_on_toys(tasks, policy, (GPU,) * len(devices), devices=devices, **options), policy.trace


def at(**actions):
    """Return a policy's function that returns these actions for the event at each time (`t4` is 4 s)."""
    return lambda event, view: actions.get(f"t{event.time_s:g}", []) if event.kind is not EventKind.COMPLETION else []


def test_gang_pace():
    """A gang loads on all its GPUs, and runs at the pace of its slowest."""
    gang = Task(0, LIGHT, 3.0, gpus=2)
    result, trace = go([gang], at(t0=[Start(0, 0, also=(1,))]), base_s=[1.0, 2.0], start_cost_s=2.0)
    assert trace == [(0.0, "ARRIVAL", (0,), None), (8.0, "COMPLETION", (0,), 0)]
    assert result.intervals[["gpu", "start_s", "end_s", "iterations"]].values.tolist() == [
        [0, 0, 8, 1.5],
        [1, 0, 8, 1.5],
    ]
    assert (result.execution_s[0], result.waiting_s[0], result.jct_s[0]) == (8.0, 0.0, 8.0)
    # The fast member waits busily.
    assert result.gpu_energy_active_j.tolist() == [680.0, 680.0]
    check_run(result)


def test_co_runner_slows_gang():
    """A co-runner on one GPU slows the whole gang until it completes."""
    tasks = [Task(0, LIGHT, 10.0, gpus=2), Task(1, LIGHT, 2.0, arrival_s=4.0)]
    result, trace = go(tasks, at(t0=[Start(0, 1, also=(0,))], t4=[Start(1, 0)]))
    # 4 iterations alone, 4 s at half the pace, then 4 left.
    assert trace == [
        (0.0, "ARRIVAL", (0,), None),
        (4.0, "ARRIVAL", (1,), None),
        (8.0, "COMPLETION", (1,), 0),
        (12.0, "COMPLETION", (0,), 1),
    ]
    segments = [(row.gpu, row.start_s, row.residents) for row in result.timeline.itertuples()]
    assert segments == [
        (0, 0, "0@100"),
        (0, 4, "0@100+1@100"),
        (0, 8, "0@100"),
        (1, 0, "0@100"),
        (1, 4, "0@100"),
        (1, 8, "0@100"),
    ]
    check_run(result)


def test_low_clock_slows_gang():
    """A lower clock of one GPU slows the whole gang."""
    result, trace = go(
        [Task(0, LIGHT, 4.0, gpus=3)], at(t0=[Start(0, 0, also=(1, 2)), Wait(2.0)], t2=[SetClock(2, 500)]), gpus=3
    )
    assert trace[-1] == (6.0, "COMPLETION", (0,), 0)
    check_run(result)


def test_two_gangs():
    """Two gangs that share one GPU both run at its pace."""
    tasks = [Task(0, LIGHT, 2.0, gpus=2), Task(1, LIGHT, 4.0, gpus=2)]
    result, trace = go(tasks, at(t0=[Start(0, 0, also=(1,)), Start(1, 2, also=(1,))]), gpus=3)
    assert trace[1:] == [(4.0, "COMPLETION", (0,), 0), (6.0, "COMPLETION", (1,), 2)]
    check_run(result)


def test_paused_gang():
    """A paused gang keeps its work and its view shows its pace."""
    seen = []

    def decide(event, view):
        if event.time_s == 0:
            return [Start(0, 0, also=(1,)), Wait(4.0)]
        if event.time_s == 4:
            seen.extend(gpu.running[0] for gpu in view.gpus)
            return [Pause(0), Wait(5.0)]
        return [Start(0, 1, also=(0,))] if view.waiting else []

    result, trace = go([Task(0, LIGHT, 3.0, gpus=2)], decide, base_s=[1.0, 2.0])
    assert [(task.time_s, task.remaining, task.gpus, task.sharing) for task in seen] == [(2.0, 1.0, (0, 1), "mps")] * 2
    assert trace[-1] == (7.0, "COMPLETION", (0,), 1)
    assert result.waiting_s[0] == 1.0
    check_run(result)


def test_elastic_task():
    """An elastic task is faster on more GPUs."""
    elastic = Task(0, LIGHT, 8.0, gpus=2, widths=(1, 4))
    moves = at(t0=[Start(0, 0), Wait(4.0)], t4=[Migrate(0, 0, also=(1, 2, 3))])
    result, trace = go([elastic], moves, gpus=4)
    done = result.intervals.groupby("outcome")["iterations"].sum()
    assert trace[-1][1] == "COMPLETION"
    assert done["migrated"] + done["completed"] == pytest.approx(8.0)
    assert 4.0 / done["migrated"] > (trace[-1][0] - 4.0) / done["completed"]
    check_run(result)


@pytest.mark.parametrize("take_off", [Pause(0), Migrate(0, 1)])
def test_lost_epoch(take_off):
    """Work since the last full epoch is lost."""

    def decide(event, view):
        if event.time_s == 0:
            return [Start(0, 0), Wait(5.0)]
        return [take_off, *([Start(0, 1)] * isinstance(take_off, Pause))] if event.time_s == 5 else []

    result, trace = go([Task(0, LIGHT, 8.0, epochs=4)], decide)
    assert result.intervals["iterations"].tolist() == [4.0, 4.0]
    assert trace[-1][0] == 9.0
    check_run(result)


def test_epochs_over_starts():
    """Epochs are counted over all starts."""
    moves = at(t0=[Start(0, 0), Wait(3.0)], t3=[Migrate(0, 1), Wait(6.0)], t6=[Migrate(0, 0)])
    result, trace = go([Task(0, LIGHT, 8.0, epochs=4)], moves)
    # 3 iterations, of which the first epoch's 2 count; 3 more, of which 2; then the last 4.
    assert result.intervals["iterations"].tolist() == [2.0, 2.0, 4.0]
    assert trace[-1][0] == 10.0


def test_end_of_epoch():
    """A task taken off at the end of an epoch loses nothing."""
    third = Task(0, LIGHT, 1.0, epochs=3)
    result, trace = go([third], at(t0=[Start(0, 0), Wait(1 / 3)], **{f"t{1 / 3:g}": [Migrate(0, 1)]}))
    assert trace[-1][0] == pytest.approx(1.0)
    check_run(result)


def test_sharing_kinds():
    """The way of sharing reaches the device and the view."""
    seen = []

    def decide(event, view):
        if event.time_s == 1:
            seen.extend((task.sharing, task.gpus) for task in view.gpus[0].running.values())
        return [Start(task.id, 0, sharing="time-slice") for task in view.waiting]

    device = ToyDevice(GPU)
    go([Task(0, LIGHT, 2.0), Task(1, LIGHT, 2.0)], decide, devices=[device], tick_s=1.0)
    assert seen == [("time-slice", (0,))] * 2


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([Start(0, 0)], "task 0 runs on 2 or 3 GPUs, not 1"),
        ([Start(1, 0, also=(1,))], "task 1 runs on 1 GPU, not 2"),
        ([Start(0, 0, also=(0,))], "a GPU twice"),
        ([Start(0, 0, also=(7,))], "no GPU 7"),
        ([Start(1, 0, sharing="luck")], "sharing by 'luck'"),
        ([Start(1, 0), Start(2, 0, sharing="time-slice")], "task 1 on GPU 0 .* shares it by mps"),
        ([Start(1, 0, sharing="time-slice"), Start(2, 0)], "shares it by time-slice"),
    ],
)
def test_impossible_gangs(actions, message):
    """Run refuses impossible gangs."""
    tasks = [Task(0, LIGHT, 2.0, gpus=2, widths=(3,)), Task(1, LIGHT, 2.0), Task(2, LIGHT, 2.0)]
    with pytest.raises(PolicyError, match=message):
        go(tasks, at(t0=actions))


class MpsOnly(ToyDevice):
    """A device that shares by MPS alone, as a real one."""

    start_as = Device.start_as
    hold = Device.hold


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Start(0, 0, also=(1,)), "a gang is not possible"),
        (Start(1, 0, sharing="time-slice"), "sharing by time-slice is not possible"),
    ],
)
def test_mps_only_device(action, message):
    """A device with MPS alone refuses gangs and other ways of sharing."""
    devices = [MpsOnly(GPU) for _ in range(2)]
    with pytest.raises(DeviceError, match=message):
        go([Task(0, LIGHT, 2.0, gpus=2), Task(1, LIGHT, 2.0)], at(t0=[action]), devices=devices)


class Crashes(ToyDevice):
    """Fails its task at 3 s."""

    lost = ""

    def next_event_s(self):
        return min(super().next_event_s(), 3.0 if self._running else np.inf)

    def advance(self, to_s):
        done = super().advance(to_s)
        self._failed = [TaskFailure(task, "crash", "it crashed") for task in self._running if to_s == 3.0]
        for failed in self._failed:
            self.stop(failed.task_id)
        return done

    def take_failures(self):
        failed, self._failed = self._failed, []
        return failed


@pytest.mark.parametrize("bad", [0, 1])
def test_gang_failure(bad):
    """A failure on one GPU ends the attempt of the gang."""
    devices = [ToyDevice(GPU) for _ in range(2)]
    devices[bad] = Crashes(GPU)
    tasks = [Task(0, LIGHT, 9.0, gpus=2), Task(1, LIGHT, 4.0)]
    result, trace = go(tasks, at(t0=[Start(0, 0, also=(1,)), Start(1, 1 - bad)]), devices=devices)
    assert trace[1] == (3.0, "FAILURE", (0,), bad)
    # The task beside a member that did not fail has its GPU to itself from then on: 1.5 iterations, then 2.5.
    assert trace[2] == (5.5, "COMPLETION", (1,), 1 - bad)
    assert [interval.outcome for interval in result.record.intervals] == ["failed: crash", "failed: crash", "completed"]


def test_language_model_gang():
    """A language model on several GPUs is refused."""
    gang = Task(0, Workload("llama3_8b", 8, "fp16"), 3.0, gpus=2)
    with pytest.raises(InputError, match="no law for one that is split over several"):
        go([gang], at(t0=[Start(0, 0, also=(1,))]))


def test_policy_without_gangs():
    """A policy without gangs gets the tasks that may run on one GPU."""

    class Single(ScriptedPolicy):
        gangs = False

    policy = Single(at(t0=[Start(0, 0)]))
    elastic = Task(0, LIGHT, 3.0, gpus=2, widths=(1,))
    assert run_on_toys([elastic], policy, (GPU, GPU)).record.intervals[0].outcome == "completed"
    with pytest.raises(InputError, match="task 0, which runs on 2 GPUs"):
        run_on_toys([Task(0, LIGHT, 3.0, gpus=2)], policy, (GPU, GPU))
