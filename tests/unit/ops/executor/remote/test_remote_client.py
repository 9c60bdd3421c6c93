"""`RemoteHost` and `RemoteDevice` without a host: which commands are sent when, and how replies are applied."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.ops.executor.executor_device import Attempt
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.remote.remote_client import GpuReport, HostLostError, HostReply, RemoteHost
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
        self.sent = []
        self.on = [{} for _ in range(gpus)]
        self.lost = self.refuses = False
        self.took_s = took_s
        cards = [(CARD, f"GPU-{index}") for index in range(gpus)]
        self.host = RemoteHost("there", cards, self.send, self.clock.now_s, dict.fromkeys(range(99), 0))

    def send(self, command):
        if self.lost:
            raise HostLostError("no connection")
        self.sent.append(command)
        refused = "too many clients" if self.refuses and command.call != "read" else ""
        result = None if refused else self.execute(command)
        return HostReply(tuple(self.report(index) for index in range(len(self.on))), result, refused)

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
        states = {"idle_j": 0.0, "lost": "", "drained": "", "counter_j": 0.0, "sharing": "mps"}
        return GpuReport(
            reading, states, math.inf, tuple(over), (), self.attempts(self.on[index]), self.attempts(left), ()
        )

    def attempts(self, which):
        return {
            task: Attempt(number, began_s, began_s, 5.0, 7.0, None, f"/out/{task}.{number}.log", 1590.0, (), 9.0)
            for task, (_, began_s, number) in which.items()
        }


@pytest.fixture
def remote():
    return FakeHost()


def test_a_host_is_asked_once_for_all_of_its_gpus_at_a_moment(remote):
    first, second = remote.host.devices
    first.set_clock(CARD.clocks_mhz[0])
    first.start(0, WORK, 50, 100.0)
    second.start(1, WORK, 100, 100.0)
    assert set(first.read().residents) == {0}
    assert set(second.read().residents) == {1}
    remote.clock.wait_until(10.0)
    assert first.advance(10.0) == [0]
    assert second.next_event_s() == 10.0
    assert set(second.read().residents) == {1}  # it stays until the loop has processed its end
    assert second.advance(10.0) == [1]
    assert [command.call for command in remote.sent] == ["read", "set_clock", "start", "start", "read"]
    assert first.ended[0].log == "there:/out/0.1.log"
    assert (first.running, second.running) == (0, 0)
    assert first.next_event_s() == math.inf


def test_stop_and_refused_commands(remote):
    first = remote.host.devices[0]
    first.start(0, WORK, 100, 100.0)
    assert first.next_event_s() == 0.25
    assert first.stop(0) == 3.5
    assert first.ended.pop(0).number == 1
    with pytest.raises(DeviceError, match="no job 0 on it"):
        first.stop(0)
    with pytest.raises(InputError):
        first.set_clock(7)
    remote.refuses = True
    with pytest.raises(DeviceError, match=r"^there: too many clients"):
        first.start(0, WORK, 100, 100.0)


def test_attempts_are_numbered_over_all_gpus(remote):
    first, second = remote.host.devices
    first.start(0, WORK, 100, 1.0)
    first.stop_all()
    second.start(0, WORK, 100, 1.0)
    second.read()
    assert (first.ended[0].number, second.shares_j(), second.model_shares_j()) == (1, {0: 5.0}, {0: 7.0})
    assert max(command.attempt for command in remote.sent) == 2


def test_jobs_of_a_lost_host_fail_without_a_charge(remote):
    first, second = remote.host.devices
    first.start(0, WORK, 100, 100.0)
    remote.lost = True
    first.start(1, WORK, 100, 100.0)  # never arrives
    assert set(first.read().residents) == {0, 1}
    assert first.lost == second.lost == "no connection"
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
