"""A run in which devices are not asked about tasks that have GPUs to themselves is the run in which they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted_policy import ScriptedPolicy

from heshare.devices.emulated_device import EmulatedDevice
from heshare.policies.policy import EventKind, Migrate, Pause, SetClock, Start, Wait
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.actions import ActionExecutor
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTERS = tuple(map(Cluster.parse, ("4xV100", "1xT4,3xV100,2xA100", "8xT4")))
KINDS = tuple(Workload(model, batch) for model in ("resnet50", "mobilenet") for batch in (4, 8))


class AskedDevice(EmulatedDevice):
    """An emulated GPU that is asked at every change, since it is of another class."""


class Blind:
    """Random starts, clocks, pauses and moves by its own account of the GPUs, at which it looks only now and then."""

    def __init__(self, seed: int, look: float, cluster: Cluster) -> None:
        self._rng, self._look = np.random.default_rng(seed), look
        self._clocks_mhz = [gpu.clocks_mhz for gpu in cluster.gpus]
        self._gpus_of: dict[int, tuple[int, ...]] = {}
        self.policy = ScriptedPolicy(self._decide)

    def _decide(self, event, view):
        rng, calm = self._rng, len(self.policy.trace) > 50
        if event.kind is EventKind.COMPLETION:
            for task in event.tasks:
                self._gpus_of.pop(task, None)
        actions = []
        if rng.random() < self._look:
            gpu = view.gpus[int(rng.integers(len(view.gpus)))]
            assert gpu.running.keys() == {task for task, gpus in self._gpus_of.items() if gpu.index in gpus}
            assert all(0 <= one.remaining <= one.task.iterations for one in gpu.running.values())
        if not calm and rng.random() < 0.2:
            index = int(rng.integers(len(view.gpus)))
            clocks = self._clocks_mhz[index][::4]
            actions.append(SetClock(index, [None, *clocks][int(rng.integers(len(clocks) + 1))]))
        for task, gpus in list(self._gpus_of.items()) if not calm else []:
            if rng.random() < 0.05:
                actions.append(Pause(task))
                del self._gpus_of[task]
            elif rng.random() < 0.05:
                chosen = self._choice(len(gpus), len(view.gpus), task)
                if chosen:
                    actions.append(Migrate(task, chosen[0], also=chosen[1:]))
                    self._gpus_of[task] = chosen
        for task in view.waiting:
            chosen = self._choice(task.gpus, len(view.gpus), task.id)
            if chosen and (calm or rng.random() < 0.8):
                actions.append(Start(task.id, chosen[0], int(rng.choice([50, 100])), also=chosen[1:]))
                self._gpus_of[task.id] = chosen
        if not self._gpus_of:
            actions.append(Wait(event.time_s + 5.0))
        return actions

    def _choice(self, n: int, gpus: int, task: int) -> tuple[int, ...]:
        of_others = [index for other, each in self._gpus_of.items() if other != task for index in each]
        free = [index for index in range(gpus) if of_others.count(index) < (2 if self._rng.random() < 0.3 else 1)]
        return tuple(int(index) for index in self._rng.permutation(free)[:n]) if len(free) >= n else ()


@st.composite
def task_sets(draw: st.DrawFn) -> list[Task]:
    """One to fifteen tasks of one to four GPUs, many of them the same, some at one moment."""
    return [
        Task(
            index,
            draw(st.sampled_from(KINDS)),
            draw(st.sampled_from([1.0, 10.0, 77.7, 500.0])),
            float(draw(st.integers(0, 6))),
            gpus=draw(st.sampled_from([1, 1, 2, 4])),
        )
        for index in range(draw(st.integers(1, 15)))
    ]


@settings(max_examples=60, deadline=None)
@given(
    tasks=task_sets(), cluster=st.sampled_from(CLUSTERS), seed=st.integers(0, 999), look=st.sampled_from([0, 0.05, 0.5])
)
def test_what_is_known_ahead_is_what_devices_say(tasks, cluster, seed, look):
    asked, known = (
        run(
            tasks,
            cluster,
            Blind(seed, look, cluster).policy,
            predictor=DevicePredictor(),
            rng=np.random.default_rng(0),
            devices=[kind(gpu, sleep_w=5.0) for gpu in cluster.gpus],
        )
        for kind in (AskedDevice, EmulatedDevice)
    )
    # Segments that end at one moment on GPUs of gangs may come in another order.
    assert sorted(known.record.segments, key=str) == sorted(asked.record.segments, key=str)
    assert known.record.intervals == asked.record.intervals
    assert known.device_energy_j.tobytes() == asked.device_energy_j.tobytes()
    assert known.events == asked.events
    check_run(known)


@pytest.mark.parametrize(("policy", "asks"), [("fifo", False), ("sjf", False), ("random", True)])
def test_devices_are_asked_only_where_a_policy_looks_or_tasks_share(policy, asks, monkeypatch):
    cluster, asked = Cluster.parse("4xV100"), []
    tasks = [Task(index, KINDS[index % 4], 50.0, float(index % 3)) for index in range(12)]
    advance = ActionExecutor.advance
    monkeypatch.setattr(ActionExecutor, "advance", lambda self, *given: asked.append(given) or advance(self, *given))
    result = run(tasks, cluster, make(policy), predictor=DevicePredictor(), rng=np.random.default_rng(0))
    check_run(result)
    assert (len(asked) > len(cluster)) == asks, "each is asked once, at the beginning"
