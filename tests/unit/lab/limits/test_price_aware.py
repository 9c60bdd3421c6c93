"""Policies under a price: equal to the wrapped one at a constant price, never beyond the bound, cheaper otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.scripted_policy import ScriptedPolicy

import heshare as hs
from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_aware import CheapestHourRule, PriceAwarePolicy, SavingRule, price_aware
from heshare.lab.limits.prices.signal_cost import run_cost
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.policies.policy import (
    Action,
    Event,
    EventKind,
    GpuView,
    Migrate,
    Pause,
    Policy,
    ReusedPlanning,
    SetClock,
    Start,
    Traits,
    View,
    Wait,
)
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.errors import InputError, NotProfiledError
from heshare.testing.policy_contract import PolicyContract, check_run
from heshare.testing.toy import ToyPredictor, toy_devices, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

STEPS = EnergySignal((0.0, 400.0, 900.0, 1_500.0), (0.3, 0.1, 0.4, 0.05))
FLAT = EnergySignal((0.0, 400.0), (0.3, 0.3))
POLICIES = (
    *(
        "random",
        "heshare:trade-off(generations=20)",
        "heshare-online:jct-opt(generations=20)",
        "morak",
        "mu-serve",
        "batch-dvfs",
        "eaco",
        "fifo-packed",
    ),
    *("fikit", "gandiva", "miso", "miso:mps", "power-flow", "pwr:fgd", "srtf", "sjf:fastest"),
)
CONTRACT = PolicyContract()


def _toy(policy: Policy, tasks: list[Task], gpus: int = 1) -> Run:
    cluster = Cluster(tuple([toy_gpu()] * gpus))
    devices = toy_devices(cluster)
    rng = np.random.default_rng(0)
    return run(tasks, cluster, policy, predictor=ToyPredictor(), rng=rng, devices=devices)


def _task(index: int, iterations: float = 10.0, **more: float) -> Task:
    return Task(index, Workload("resnet18", 4), iterations, **more)  # type: ignore[arg-type]


def _rule() -> SavingRule:
    return SavingRule(EnergySignal((0.0, 50.0), (0.5, 0.1)))


def _view(cluster: Cluster) -> View:
    """One task that waits on idle GPUs."""
    gpus = [
        GpuView(index, gpu, {}, None, gpu.max_mhz, gpu.idle_w, gpu.memory_mib) for index, gpu in enumerate(cluster.gpus)
    ]
    return View(0.0, [_task(0)], {0: 10.0}, gpus, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_a_constant_price_changes_nothing_and_another_one_breaks_nothing(name: str) -> None:
    tasks = CONTRACT.tasks(every_s=60.0, together=4)
    at_once = CONTRACT.go(make(name), tasks)
    assert CONTRACT.go(price_aware(make(name), FLAT), tasks).record == at_once.record
    for hold_s in (300.0, 900.0):
        check_run(CONTRACT.go(price_aware(make(name), STEPS, hold_s), tasks))
    check_run(CONTRACT.go(price_aware(make(name), STEPS, 900.0, CheapestHourRule(STEPS)), tasks))


@pytest.mark.parametrize("hold_s", [200.0, 450.0, 2_000.0])
def test_no_task_of_a_plan_is_delayed_by_more_than_the_bound(hold_s: float) -> None:
    tasks = CONTRACT.tasks()
    plan = hs.plan(tasks, CONTRACT.cluster, predictor=DevicePredictor()).jct_opt
    at_once = CONTRACT.go(FixedPlanPolicy(plan), tasks)
    held = CONTRACT.go(price_aware(FixedPlanPolicy(plan), STEPS, hold_s), tasks)
    assert (held.jct_s <= at_once.jct_s + hold_s + 1e-6).all()
    assert (held.jct_s >= at_once.jct_s - 1e-6).all()


def test_the_bound_counts_the_holds_of_tasks_before() -> None:
    """Each of three tasks in a row would wait 100 s for the next cheap step; together they may wait 150 s."""
    dear = [step for low in range(0, 2_000, 200) for step in (low + 0.0, low + 100.0)]
    saw = EnergySignal(tuple(dear), tuple([0.5, 0.1] * (len(dear) // 2)))
    done = _toy(price_aware(make("sjf"), saw, 150.0), [_task(index, 100.0) for index in range(3)])
    starts_s = sorted(interval.start_s for interval in done.record.intervals)
    assert starts_s == pytest.approx([100.0, 250.0, 350.0])


def test_money_is_saved() -> None:
    evening = EnergySignal((0.0, 7_200.0), (0.3, 0.1))
    for name in ("sjf", "heshare:trade-off"):
        at_once = hs.run(6, "1xT4,1xA100", name)
        held = hs.run(6, "1xT4,1xA100", price_aware(make(name), evening, 7_200.0))
        assert run_cost(held, evening).active < 0.9 * run_cost(at_once, evening).active
        assert held.avg_jct_s > at_once.avg_jct_s


def test_a_held_gpu_keeps_its_own_clock_and_gets_the_batches_clock_with_the_batch() -> None:
    tasks = CONTRACT.tasks()
    done = CONTRACT.go(price_aware(make("heshare:en-opt"), EnergySignal((0.0, 30.0), (0.5, 0.01)), 450.0), tasks)
    held = [segment for segment in done.record.segments if segment.start_s == 0.0 and not segment.residents]
    assert held
    assert all(segment.requested_mhz is None for segment in held)
    assert any(segment.requested_mhz for segment in done.record.segments if segment.residents)


class _Recorder(ScriptedPolicy):
    """A policy of one function that keeps the events and what the views showed."""

    def __init__(self, decide: object) -> None:
        super().__init__(decide)  # type: ignore[arg-type]
        self.seen: list[tuple[Event, tuple[int, ...], tuple[tuple[int, ...], ...]]] = []

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Keep the event, who waits, and who seems to run."""
        running = tuple([tuple(gpu.running) for gpu in view.gpus])
        self.seen.append((event, tuple([task.id for task in view.waiting]), running))
        return iter(super().decide(event, view))


def _starting(event: Event, view: View) -> list[Action]:
    return [Start(task.id, 0) for task in view.waiting if not len(view.gpus[0].running)][:1]


def test_a_held_task_seems_to_load_and_own_ticks_are_not_passed_on() -> None:
    policy = _Recorder(_starting)
    done = _toy(price_aware(policy, EnergySignal((0.0, 50.0), (0.5, 0.1)), 100.0), [_task(0), _task(1, arrival_s=20.0)])
    assert [event.kind for event, _, _ in policy.seen] == [EventKind.ARRIVAL] * 2 + [EventKind.COMPLETION] * 2
    assert policy.seen[1][1:] == ((1,), ((0,),))
    assert done.completion_s == pytest.approx([60.0, 70.0])
    assert done.events == 5  # one of them the wrapper's tick


def test_ticks_that_the_policy_asked_for_are_passed_on() -> None:
    def decide(event: Event, view: View) -> list[Action]:
        waits = [Wait(50.0)] if event.kind is EventKind.ARRIVAL else []
        return [*_starting(event, view), *waits]

    policy = _Recorder(decide)
    _toy(price_aware(policy, EnergySignal((0.0, 50.0), (0.5, 0.1)), 100.0), [_task(0)])
    assert [event.kind for event, _, _ in policy.seen].count(EventKind.TICK) == 1


def test_a_held_task_can_be_paused_moved_and_started_again() -> None:
    answers = {
        EventKind.ARRIVAL: [Start(0, 0), Wait(10.0), Wait(20.0), Wait(30.0)],
        10.0: [Migrate(0, 1, 50)],
        20.0: [Pause(0)],
        30.0: [Start(0, 0), Pause(0), SetClock(1, None), Start(0, 1)],
    }

    def decide(event: Event, view: View) -> list[Action]:
        answer = answers.get(event.time_s) or answers.get(event.kind) or []
        return list(answer)

    done = _toy(price_aware(ScriptedPolicy(decide), EnergySignal((0.0, 50.0), (0.5, 0.1)), 100.0), [_task(0)], gpus=2)
    assert [(interval.gpu, interval.outcome) for interval in done.record.intervals][-1] == (1, "completed")


def test_a_gang_is_held_on_all_its_gpus() -> None:
    def decide(event: Event, view: View) -> list[Action]:
        idle = [gpu.index for gpu in view.gpus if not len(gpu.running)]
        return [Start(task.id, 0, also=(1,)) for task in view.waiting if len(idle) == 2][:1]

    policy = ScriptedPolicy(decide)
    policy.gangs = True  # type: ignore[attr-defined]
    done = _toy(price_aware(policy, EnergySignal((0.0, 50.0), (0.5, 0.1)), 100.0), [_task(0, gpus=2)], gpus=2)
    assert {(interval.gpu, interval.start_s) for interval in done.record.intervals} == {(0, 50.0), (1, 50.0)}


def test_a_deadline_is_kept() -> None:
    evening = EnergySignal((0.0, 45.0), (0.5, 0.1))
    done = _toy(price_aware(make("sjf"), evening, 100.0), [_task(0, deadline_s=52.0)])
    assert done.completion_s.tolist() == pytest.approx([52.0])


def test_a_lost_gpu_ends_its_holds() -> None:
    cluster = Cluster((toy_gpu(),))
    policy = PriceAwarePolicy(ScriptedPolicy(_starting), _rule(), 100.0)
    policy.reset(cluster, ToyPredictor(), np.random.default_rng(0))
    view = _view(cluster)
    first = list(policy.decide(Event(EventKind.ARRIVAL, 0.0, (0,)), view))
    assert first == [Wait(50.0)]
    lost = Event(EventKind.FAILURE, 5.0, (), 0, lost=True)
    again = list(policy.decide(lost, replace(view, now_s=5.0)))
    assert Wait(50.0) not in again  # the tick is still to come
    assert list(policy.decide(Event(EventKind.TICK, 50.0), replace(view, now_s=50.0))) == [Start(0, 0)]


def test_what_the_predictor_does_not_cover_is_held_by_the_signal_alone() -> None:
    class Knows(ToyPredictor):
        def co_run(self, sets, gpu, sm_mhz):  # type: ignore[no-untyped-def]
            raise NotProfiledError("resnet18", "a profiled workload", "Profile it.")

    cluster = Cluster((toy_gpu(),))
    policy = price_aware(ScriptedPolicy(_starting), EnergySignal((0.0, 50.0), (0.5, 0.1)), 100.0)
    policy.traits = Traits(False, False, False)  # type: ignore[misc]
    devices, rng = toy_devices(cluster), np.random.default_rng(0)
    done = run([_task(0)], cluster, policy, predictor=Knows(), rng=rng, devices=devices)
    assert done.record.intervals[0].start_s == 50.0


def test_planning_that_the_policy_reused_is_counted() -> None:
    class Reuses(ScriptedPolicy):
        reused = ReusedPlanning(3.0, 50)

    plain, reusing = (_toy(price_aware(kind(_starting), STEPS, 100.0), [_task(0)]) for kind in (ScriptedPolicy, Reuses))
    assert reusing.predictor_calls - plain.predictor_calls == 50
    assert reusing.planning_s >= 3.0


def test_arguments_are_checked() -> None:
    with pytest.raises(InputError, match="hold"):
        price_aware(make("sjf"), FLAT, -1.0)
    assert price_aware(policy := make("sjf"), None) is policy
    assert price_aware(policy, FLAT, 0.0) is policy
    names = {price_aware(make("sjf"), signal, hold_s).name for signal in (FLAT, STEPS) for hold_s in (60.0, 70.0)}
    assert len(names) == 4
