"""Every NVML function failing at two steps of a run: the run ends or continues, and the GPU is as before."""

from __future__ import annotations

import threading
import zlib

import pytest
from support.fakenvml import functions
from support.waiting import until

from heshare.ops.clocks import clock_notes
from heshare.ops.executor.watchdog import clean_up_killed_runs
from heshare.shared.errors import DeviceError

TEXT = "jobs: [{name: a, command: [sleep, '0.1'], like: 'resnet50:8', iterations: 1, retries: 1, count: 2}]"
CODES = (999, 15, 3, 4, 10)


class FailureInjector(threading.Thread):
    """Makes a function fail from a step of the run on; the step is a number of calls of NVML."""

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
    monkeypatch.setattr("heshare.ops.nvml.binding.WAITS_S", (0.0, 0.0))
    return doubles


@pytest.mark.slow
def test_execute_restores_the_gpu_whichever_nvml_function_fails(without_mps):
    doubles = without_mps
    total_calls = count_calls(doubles)
    ended = continued = 0
    for function in functions():
        code = CODES[zlib.crc32(function.encode()) % len(CODES)]
        for part in (0.0, 0.55) if function.startswith("nvmlDevice") else (0.55,):
            doubles.fake.reset()
            injector = FailureInjector(doubles.fake, function, code, part * total_calls)
            injector.start()
            try:
                doubles.run(TEXT, policy="drill", clocks=True, into=f"run-{function}-{part}")
                continued += 1
            except DeviceError as error:
                ended += 1
                message = str(error)
                assert "\n" not in message
            injector.over.set()
            injector.join()
            # Where even giving back was made to fail, the note remains; the clock service and `heshare restore` use it.
            doubles.fake.set("lost0", 0)
            for name in functions():
                doubles.fake.fail(name, 0)
            if doubles.fake.get("locked_mhz"):
                clock_notes.restore()
            clean_up_killed_runs()
            assert until(lambda: doubles.traces() == []), (function, part)
    assert ended > 5
    assert continued > 5


def count_calls(doubles):
    """Return the number of NVML calls of a run without faults."""
    doubles.run(TEXT, policy="drill", clocks=True, into="first")
    assert doubles.traces() == []
    return doubles.fake.get("calls")
