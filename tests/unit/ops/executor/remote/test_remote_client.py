"""`RemoteHost` and `RemoteDevice` without a host: which commands are sent when, and how replies are applied."""

from __future__ import annotations

import math
import select

import numpy as np
import pytest

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.ops.executor.executor_device import Attempt
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.remote.remote_client import RemoteHost
from heshare.ops.executor.remote.remote_messages import HostLostError, HostReply, RemoteGpu, StatusReport
from heshare.policies.registry import make
from heshare.running.actions import Observer
from heshare.running.clock import VirtualClock
from heshare.running.run import run
from heshare.shared.errors import DeviceError, InputError
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

WORK = Workload("resnet50", 8)
CARD = gpu("T4")


class FakeHost:
    """A host whose jobs take 10 s each, all at once; it can refuse commands, or be lost."""

    def __init__(self, gpus=2, took_s=10.0, clock=None):
        self.clock = clock or VirtualClock()
        self.polls = []
        self.on = [{} for _ in range(gpus)]
        self.lost = self.refuses = False
        self.took_s = took_s
        self.host = RemoteHost(
            "there", [RemoteGpu(CARD, f"GPU-{index}", 0.0) for index in range(gpus)], self.poll,
            self.clock.now_s, dict.fromkeys(range(99), 0),
        )  # fmt: skip

    def poll(self, commands):
        if self.lost:
            raise HostLostError("no connection")
        self.polls.append(list(commands))
        results = [self.execute(command) for command in commands if not self.refuses]
        reports = tuple(self.report(index) for index in range(len(self.on)))
        refused = "too many clients" if self.refuses and commands else ""
        return HostReply(reports, results[-1] if results else None, refused)

    def execute(self, command):
        if command.call == "start":
            task, workload, mps_pct, _ = command.arguments
            resident = Resident(workload, mps_pct)
            self.on[command.gpu][task] = (resident, self.clock.now_s(), command.attempt)
        elif command.call == "stop":
            del self.on[command.gpu][command.arguments[0]]
            return 3.5
        elif command.call == "stop_all":
            self.on[command.gpu].clear()
        return None

    def report(self, index):
        now_s = self.clock.now_s()
        over = [task for task, (_, began_s, _) in self.on[index].items() if now_s >= began_s + self.took_s]
        left = {task: self.on[index].pop(task) for task in over}
        reading = Reading(
            now_s, None, 1590.0, 50.0, 50.0 * now_s,
            {task: Progress(task, resident, 0.0, 0.1) for task, (resident, _, _) in self.on[index].items()},
        )  # fmt: skip
        return StatusReport(
            reading, math.inf, tuple(over), (), self.attempts(left), self.attempts(self.on[index]), 0.0, (), "", "mps"
        )

    def attempts(self, which):
        return {
            task: Attempt(number, began_s, began_s, 5.0, 7.0, None, f"/out/{task}.{number}.log", 1590.0, (), 9.0)
            for task, (_, began_s, number) in which.items()
        }


def ready(device):
    watch = select.poll()
    watch.register(device.descriptors()[0], select.POLLIN)
    return bool(watch.poll(0))


@pytest.fixture
def remote():
    made = FakeHost()
    yield made
    made.host.close()


def test_commands_are_sent_in_one_poll_that_reports_every_gpu(remote):
    first, second = remote.host.devices
    remote.polls.clear()
    first.set_clock(CARD.clocks_mhz[0])
    first.start(0, WORK, 50, 100.0)
    second.start(1, WORK, 100, 100.0)
    assert remote.polls == []
    assert set(first.read().residents) == {0}
    assert set(second.read().residents) == {1}
    assert [[command.call for command in commands] for commands in remote.polls] == [["set_clock", "start", "start"]]
    remote.clock.wait_until(10.0)
    assert first.advance(10.0) == [0]
    assert second.advance(10.0) == [1]
    assert len(remote.polls) == 3  # a device that was woken polls, in case there is more
    assert first.ended[0].log == "there:/out/0.1.log"
    assert (first.running, second.running) == (0, 0)


def test_starts_of_one_decision_are_sent_in_one_poll(remote):
    first, second = remote.host.devices
    first.advance(0.0)
    remote.polls.clear()
    for task in range(6):
        device = (first, second)[task % 2]
        assert device.advance(0.0) == []
        device.start(task, WORK, 50, 100.0)
    assert (set(first.read().residents), set(second.read().residents)) == ({0, 2, 4}, {1, 3, 5})
    assert [len(commands) for commands in remote.polls] == [6]


def test_poll_wakes_the_device_of_another_gpu_with_an_event(remote):
    first, second = remote.host.devices
    second.start(1, WORK, 100, 100.0)
    first.read()
    remote.clock.wait_until(11.0)
    assert not ready(second)
    assert first.advance(11.0) == []
    assert ready(second)
    assert second.next_event_s() == 11.0
    assert set(second.read().residents) == {1}  # it stays until the loop has processed its end
    assert second.advance(11.0) == [1]
    assert not ready(second)


def test_stop_and_refused_commands_poll_at_once(remote):
    first = remote.host.devices[0]
    first.start(0, WORK, 100, 100.0)
    assert first.stop(0) == 3.5
    assert first.ended.pop(0).number == 1
    with pytest.raises(DeviceError, match="no job 0 on it"):
        first.stop(0)
    with pytest.raises(InputError):
        first.set_clock(7)
    first.start(0, WORK, 100, 100.0)
    remote.refuses = True
    with pytest.raises(DeviceError, match=r"^there: too many clients"):
        first.read()
    assert first.read().residents[0].resident.mps_pct == 100


def test_attempts_are_numbered_over_all_gpus(remote):
    first, second = remote.host.devices
    first.start(0, WORK, 100, 1.0)
    first.stop_all()
    second.start(0, WORK, 100, 1.0)
    second.read()
    assert (first.ended[0].number, second.shares_j(), second.model_shares_j()) == (1, {0: 5.0}, {0: 7.0})
    assert remote.polls[-1][0].attempt == 2


def test_jobs_of_a_lost_host_fail_without_a_charge(remote):
    first, second = remote.host.devices
    first.start(0, WORK, 100, 100.0)
    first.read()
    first.start(1, WORK, 100, 100.0)  # never sent
    remote.lost = True
    assert set(first.read().residents) == {0, 1}
    assert first.lost == second.lost == "no connection"
    assert ready(first)
    assert ready(second)
    assert first.next_event_s() == remote.clock.now_s()
    assert first.advance(0.0) == []
    failed = first.take_failures()
    assert failed == [TaskFailure(task, "lost", first.lost, charged=False) for task in (0, 1)]
    assert [first.ended[task].number for task in (0, 1)] == [1, 1]
    assert math.isnan(first.ended[1].began_s)
    assert first.take_failures() == second.take_failures() == []
    assert second.next_event_s() == math.inf
    assert first.read().power_w == 0.0
    assert second.notes == ["0.0 s: no connection"]


class LosesHost(Observer):
    """Loses a host once a task has completed, and retries everything."""

    def __init__(self, remote):
        self.remote = remote

    def on_interval_end(self, interval, failed):
        if failed is None:
            self.remote.lost = True

    def should_retry(self, failed):
        return True


@pytest.mark.parametrize("policy", ["random", "heshare:trade-off", "morak"])
def test_event_loop_plans_again_on_the_remaining_hosts(policy):
    going = FakeHost(gpus=1, took_s=5.0)
    staying = FakeHost(gpus=1, took_s=7.0, clock=going.clock)
    tasks = [Task(index, WORK, 100.0) for index in range(6)]
    devices = [going.host.devices[0], staying.host.devices[0]]
    done = run(
        tasks,
        Cluster((CARD, CARD)),
        FaultTolerantPolicy(make(policy)),
        predictor=ToyPredictor(),
        rng=np.random.default_rng(1),
        devices=devices,
        clock=going.clock,
        observer=LosesHost(going),
    )
    completed = [interval for interval in done.record.intervals if interval.outcome == "completed"]
    assert sorted(interval.task for interval in completed) == list(range(6))
    assert going.lost
    for remote in (going, staying):
        remote.host.close()
