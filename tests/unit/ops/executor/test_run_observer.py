"""The observer of a run, on GPUs that are missing: its lines, what it hears, and when the energy is journalled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heshare.ops.executor import run_observer
from heshare.ops.executor.lost_device import LostDevice
from heshare.ops.executor.run_observer import JournalingObserver
from heshare.ops.jobs.run_state import JobHistory
from heshare.policies.policy import Event, EventKind, Start, Wait
from heshare.world.workload import Workload


class Scene:
    """An observer of two GPUs and one job, a clock that its waits advance, and what it writes, tells and asks."""

    def __init__(self, monkeypatch):
        self.now_s, self.lines, self.idle, self.entries = 0.0, [], [], []
        monkeypatch.setattr(run_observer, "connection", SimpleNamespace(wait=self._wait))
        log = SimpleNamespace(interactive=False, show=self._show, tell=lambda *_, **more: None)
        steering = SimpleNamespace(log=log, meter=None, hear=lambda *, idle: self.idle.append(idle))
        journal = SimpleNamespace(append=lambda entry, **_: self.entries.append(type(entry).__name__))
        self.devices = [LostDevice("T4", f"GPU-{index}", "not found", lambda: self.now_s) for index in range(2)]
        jobs = {0: SimpleNamespace(key="a")}
        learning = SimpleNamespace(tasks=[None], source=lambda task: "")
        self.observer = JournalingObserver(
            journal, jobs, self.devices, lambda: self.now_s, JobHistory(), steering, learning
        )

    def _wait(self, owners, timeout_s):
        self.now_s += timeout_s
        return []

    def _show(self, text, *, last):
        self.lines.append((self.now_s, last))


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def test_progress_is_written_every_half_minute_and_at_the_end(scene):
    scene.observer.wait(65.0)
    scene.observer.finish()
    assert scene.lines == [(1.0, False), (31.0, False), (61.0, False), (65.0, True)]


def test_a_run_is_idle_only_if_no_gpu_has_a_job_or_a_result_that_is_not_journalled(scene):
    scene.observer.wait(0.0)
    scene.devices[1].start(0, Workload("resnet50", 8), 50)
    scene.observer.wait(0.0)
    scene.devices[1].take_failures()
    assert scene.devices[1].ended
    scene.observer.wait(0.0)
    assert scene.idle == [True, False, False]


def test_energy_is_journalled_before_the_first_action_alone(scene):
    scene.observer.wait(0.0)
    scene.entries.clear()
    for actions in ((), (Wait(1.0),), (Start(0, 0),), (Start(0, 1),)):
        scene.observer.on_decision(Event(EventKind.ARRIVAL, 0.0, (0,)), actions)
    assert scene.entries == ["Decision", "Sample", "Decision", "Decision", "Decision"]
