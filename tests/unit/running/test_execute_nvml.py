"""Every NVML call failing at any step of a run: the run ends or goes on, and the GPU is as before."""

from __future__ import annotations

import threading
import zlib

import pytest

from heshare.devices import machine, saved
from heshare.errors import DeviceError
from heshare.testing.fakenvml import functions

TEXT = "jobs: [{name: a, command: [sleep, '0.1'], like: 'resnet50:8', iterations: 1, retries: 1, count: 2}]"
CODES = (999, 15, 3, 4, 10)


class Spoiler(threading.Thread):
    """Makes a function fail for good at a step of the run, told by how often NVML has been asked."""

    def __init__(self, fake, function, code, calls):
        super().__init__(daemon=True)
        self.fake, self.function, self.code, self.calls = fake, function, code, calls
        self.over = threading.Event()

    def run(self):
        while self.fake.get("calls") < self.calls and not self.over.wait(0.0005):
            pass
        self.fake.fail(self.function, self.code)


@pytest.fixture
def without_mps(doubles, monkeypatch):
    (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    monkeypatch.setattr("heshare.devices.nvml.WAITS_S", (0.0, 0.0))
    return doubles


def test_every_call_failing_at_any_step(without_mps, monkeypatch):
    doubles = without_mps
    asked = probe(doubles)
    ended = went_on = 0
    for function in functions():
        code = CODES[zlib.crc32(function.encode()) % len(CODES)]
        for part in (0.0, 0.55) if function.startswith("nvmlDevice") else (0.55,):
            doubles.fake.reset()
            spoiler = Spoiler(doubles.fake, function, code, part * asked)
            spoiler.start()
            try:
                doubles.run(TEXT, policy="drill", clocks=True, into=f"run-{function}-{part}")
                went_on += 1
            except DeviceError as error:
                ended += 1
                told = str(error)
                assert "\n" not in told
            spoiler.over.set()
            spoiler.join()
            # Where even giving back was made to fail, the note is there, and `heshare restore` does it.
            doubles.fake.set("lost0", 0)
            for name in functions():
                doubles.fake.fail(name, 0)
            if doubles.fake.get("locked_mhz"):
                assert saved.notes()
                saved_by_this_process(monkeypatch)
            machine.sweep()
            assert doubles.traces() == [], (function, part)
    assert ended > 5
    assert went_on > 5


def probe(doubles):
    """How often a run that nothing befalls asks NVML."""
    doubles.run(TEXT, policy="drill", clocks=True, into="first")
    assert doubles.traces() == []
    return doubles.fake.get("calls")


def saved_by_this_process(monkeypatch):
    """`heshare restore` runs in another process; here the one that locked the clock lives on."""
    with monkeypatch.context() as patch:
        patch.setattr("heshare.devices.saved.alive", lambda pid, started: False)
        assert saved.restore()
