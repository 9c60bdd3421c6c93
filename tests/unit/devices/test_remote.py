"""GPUs of another host, without the host: what travels, when, and what is made of what comes back."""

from __future__ import annotations

import math
import select

import numpy as np
import pytest

from heshare.devices.device import Progress, Reading
from heshare.devices.failing import Failed
from heshare.devices.remote.host import RemoteHost
from heshare.devices.remote.messages import Answer, Card, HostLostError, Told
from heshare.devices.residents import Attempt
from heshare.errors import DeviceError, InputError
from heshare.policies.guarded import Guarded
from heshare.policies.registry import make
from heshare.running.clock import VirtualClock
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

WORK = Workload("resnet50", 8)
CARD = gpu("T4")


class There:
    """A host whose jobs take 10 s each, all at once; it can be told to refuse, or to go."""

    def __init__(self, cards=2, took_s=10.0):
        self.clock = VirtualClock()
        self.visits = []
        self.on = [{} for _ in range(cards)]
        self.gone = self.refuses = False
        self.took_s = took_s
        self.host = RemoteHost(
            "there", [Card(CARD, f"GPU-{index}", "mps", 0.0) for index in range(cards)], self.visit,
            self.clock.now_s, dict.fromkeys(range(99), 0),
        )  # fmt: skip

    def visit(self, orders):
        if self.gone:
            raise HostLostError("the line is dead")
        self.visits.append(list(orders))
        results = [self.obey(order) for order in orders if not self.refuses]
        told = tuple(self.tell(index) for index in range(len(self.on)))
        return Answer(told, tuple(results), "too many clients" if self.refuses and orders else "")

    def obey(self, order):
        if order.call == "start":
            task, workload, mps_pct, _ = order.arguments
            resident = Resident(workload, mps_pct)
            self.on[order.gpu][task] = (resident, self.clock.now_s(), order.attempt)
        elif order.call == "stop":
            del self.on[order.gpu][order.arguments[0]]
            return 3.5
        elif order.call == "stop_all":
            self.on[order.gpu].clear()
        return None

    def tell(self, index):
        now_s = self.clock.now_s()
        over = [task for task, (_, began_s, _) in self.on[index].items() if now_s >= began_s + self.took_s]
        left = {task: self.on[index].pop(task) for task in over}
        reading = Reading(
            now_s, None, 1590.0, 50.0, 50.0 * now_s,
            {task: Progress(task, one[0], 0.0, 0.1) for task, one in self.on[index].items()},
        )  # fmt: skip
        return Told(
            reading, math.inf, tuple(over), (), self.attempts(left), self.attempts(self.on[index]), 0.0, (), "", "mps"
        )

    def attempts(self, which):
        return {
            task: Attempt(number, began_s, began_s, 5.0, None, f"/out/{task}.{number}.log", 1590.0, (), 9.0)
            for task, (_, began_s, number) in which.items()
        }


def ready(device):
    watch = select.poll()
    watch.register(device.descriptors()[0], select.POLLIN)
    return bool(watch.poll(0))


@pytest.fixture
def there():
    made = There()
    yield made
    made.host.close()


def test_orders_travel_together_and_one_visit_tells_of_every_gpu(there):
    one, other = there.host.devices
    there.visits.clear()
    one.set_clock(CARD.clocks_mhz[0])
    one.start(0, WORK, 50, 100.0)
    other.start(1, WORK, 100, 100.0)
    assert there.visits == []
    assert set(one.read().residents) == {0}
    assert set(other.read().residents) == {1}
    assert [[order.call for order in orders] for orders in there.visits] == [["set_clock", "start", "start"]]
    there.clock.wait_until(10.0)
    assert one.advance(10.0) == [0]
    assert other.advance(10.0) == [1]
    assert len(there.visits) == 3  # who was woken asks, in case there is more
    assert one.attempts[0].log == "there:/out/0.1.log"
    assert (one.running, other.running) == (0, 0)


def test_a_batch_is_one_visit_though_the_loop_looks_before_each_start(there):
    one, other = there.host.devices
    one.advance(0.0)
    there.visits.clear()
    for task in range(6):
        device = (one, other)[task % 2]
        assert device.advance(0.0) == []
        device.start(task, WORK, 50, 100.0)
    assert (set(one.read().residents), set(other.read().residents)) == ({0, 2, 4}, {1, 3, 5})
    assert [len(orders) for orders in there.visits] == [6]


def test_news_of_a_neighbour_wakes_whoever_waits(there):
    one, other = there.host.devices
    other.start(1, WORK, 100, 100.0)
    one.read()
    there.clock.wait_until(11.0)
    assert not ready(other)
    assert one.advance(11.0) == []
    assert ready(other)
    assert other.next_event_s() == 11.0
    assert set(other.read().residents) == {1}  # it is on the books until it is told
    assert other.advance(11.0) == [1]
    assert not ready(other)


def test_stopping_and_refusals_are_answered_at_once(there):
    one = there.host.devices[0]
    one.start(0, WORK, 100, 100.0)
    assert one.stop(0) == 3.5
    assert one.attempts.pop(0).number == 1
    with pytest.raises(DeviceError, match="no job 0 on it"):
        one.stop(0)
    with pytest.raises(InputError):
        one.set_clock(7)
    one.start(0, WORK, 100, 100.0)
    there.refuses = True
    with pytest.raises(DeviceError, match=r"^there: too many clients"):
        one.read()
    assert one.read().residents[0].resident.mps_pct == 100


def test_attempts_are_counted_over_all_gpus(there):
    one, other = there.host.devices
    one.start(0, WORK, 100, 1.0)
    one.stop_all()
    other.start(0, WORK, 100, 1.0)
    other.read()
    assert (one.attempts[0].number, other.shares_j()) == (1, {0: 5.0})
    assert there.visits[-1][0].attempt == 2


def test_a_host_that_goes_takes_its_jobs_with_it_uncharged(there):
    one, other = there.host.devices
    one.start(0, WORK, 100, 100.0)
    one.read()
    one.start(1, WORK, 100, 100.0)  # never heard of there
    there.gone = True
    assert set(one.read().residents) == {0, 1}
    assert one.lost == other.lost == "the line is dead"
    assert ready(one)
    assert ready(other)
    assert one.next_event_s() == there.clock.now_s()
    assert one.advance(0.0) == []
    failed = one.take_failed()
    assert failed == [Failed(task, "lost", one.lost, charged=False) for task in (0, 1)]
    assert [one.attempts[task].number for task in (0, 1)] == [1, 1]
    assert math.isnan(one.attempts[1].began_s)
    assert one.take_failed() == other.take_failed() == []
    assert other.next_event_s() == math.inf
    assert one.read().power_w == 0.0
    assert other.notes == ["0.0 s: the line is dead"]


class Goes(Observer):
    """Takes a host away once something has completed, and has everything tried again."""

    def __init__(self, there):
        self.there = there

    def closed(self, interval, failed):
        if failed is None:
            self.there.gone = True

    def again(self, failed):
        return True


@pytest.mark.parametrize("policy", ["random", "heshare:trade-off", "morak"])
def test_the_loop_plans_again_on_the_hosts_that_are_left(policy):
    going, staying = There(cards=1, took_s=5.0), There(cards=1, took_s=7.0)
    staying.clock = going.clock
    staying.host.now_s = going.clock.now_s
    tasks = [Task(index, WORK, 100.0) for index in range(6)]
    devices = [going.host.devices[0], staying.host.devices[0]]
    done = run(
        tasks, Cluster((CARD, CARD)), Guarded(make(policy)), predictor=ToyPredictor(), rng=np.random.default_rng(1),
        devices=devices, clock=going.clock, observer=Goes(going),
    )  # fmt: skip
    completed = [one for one in done.record.intervals if one.outcome == "completed"]
    assert sorted(one.task for one in completed) == list(range(6))
    assert going.gone
    for there in (going, staying):
        there.host.close()
