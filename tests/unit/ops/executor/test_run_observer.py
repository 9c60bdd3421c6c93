"""The observer of a run, on GPUs that are missing: its lines, and when the energy is journalled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.run_entries import run_of, session, state_of

from heshare.ops.executor.executor_device import LostDevice
from heshare.ops.executor.run_observer import SAMPLE_S, JournalingObserver
from heshare.policies.policy import Event, EventKind, Start, Wait
from heshare.world.catalogue import gpu


class Scene:
    """An observer of two GPUs and one job, a clock that its waits advance, and what it writes and tells."""

    def __init__(self):
        self.now_s, self.lines, self.told, self.entries = 0.0, [], [], []
        log = SimpleNamespace(interactive=False, show=self._show, event=self._event)
        journal = SimpleNamespace(append=lambda entry, **_: self.entries.append(type(entry).__name__))
        self.devices = [LostDevice(gpu("T4"), f"GPU-{index}", "not found", lambda: self.now_s) for index in range(2)]
        jobs, state = {0: SimpleNamespace(key="a")}, state_of(run_of(1), session(0.0, 2))
        self.observer = JournalingObserver(
            journal, state, jobs, self.devices, lambda: self.now_s, log, SimpleNamespace(wait=self._wait)
        )

    def _wait(self, owners, timeout_s):
        self.now_s += timeout_s
        return []

    def _event(self, text, *, gpu="", job=""):
        self.told.append((gpu, text))

    def _show(self, text, *, last):
        self.lines.append((self.now_s, last))


@pytest.fixture
def scene():
    return Scene()


def test_progress(scene):
    """Progress is written every half minute and at the end, on a stream that is no terminal."""
    scene.observer.wait(65.0)
    scene.observer.finish()
    assert scene.lines == [(1.0, False), (31.0, False), (61.0, False), (65.0, True)]


def test_samples(scene):
    """Accounts are journalled regularly and at the end, so that a kill loses little of them."""
    scene.observer.wait(3.5 * SAMPLE_S)
    assert scene.entries.count("Sample") == 3
    scene.observer.finish()
    assert scene.entries.count("Sample") == 4


def test_first_action(scene):
    """Accounts are journalled before the first action alone: what was spent until then is no job's."""
    scene.observer.wait(0.0)
    scene.entries.clear()
    for actions in ((), (Wait(1.0),), (Start(0, 0),), (Start(0, 1),)):
        scene.observer.on_decision(Event(EventKind.ARRIVAL, 0.0, (0,)), actions)
    assert scene.entries == ["Decision", "Sample", "Decision", "Decision", "Decision"]


def test_notes(scene):
    """Notes of devices are told and journalled once."""
    scene.observer.wait(0.0)
    scene.observer.wait(0.0)
    assert scene.told == [(f"GPU-{index}", "0.0 s: lost: not found") for index in range(2)]
    assert scene.entries == ["Note"] * 2
    assert [device.notes for device in scene.devices] == [[], []]
