"""Fixtures for live devices: the stand-in for NVML's library and the stand-in for the MPS daemon."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest
from support import fake_mps, kill_drill
from support.drills.machine import left_behind
from support.fakenvml import FakeNvml, build, compiler
from support.waiting import until

from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.host import Host
from heshare.policies.registry import make
from heshare.testing.toy import ToyPredictor


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    return build(tmp_path_factory.mktemp("fakenvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """The stand-in in the place of the driver's library, with its state as at first; notes go to a private folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one = FakeNvml(library, pynvml)
    one.reset()
    one.set("open", 0)  # a test before may have made the end of NVML fail
    yield one
    one.close()


@pytest.fixture
def mps_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that puts a stand-in MPS daemon of some mode on the PATH."""

    def use(mode: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return fake_mps.install(folder, mode)

    return use


class TestHost(Host):
    """This machine, on which workloads of Table IV are stand-ins (`models`, as `Host.models`)."""

    __test__ = False

    def __init__(self, models=None):
        self._models = models

    def models_lack(self):
        return ""

    def models(self, mps, outputs):
        return super().models(mps, outputs) if self._models is None else self._models(mps, outputs)


QUICK = Timeouts(poll_s=0.1, memory_s=0.3, nvml_s=1.0, shared_s=1.0, grace_s=0.5, mps_pauses_s=(0.1, 0.2))


@dataclass
class Doubles:
    """The stand-ins, and how to run jobs on them."""

    fake: FakeNvml
    folder: Path

    def write(self, text):
        path = self.folder / "jobs.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def options(self, models=None, **options):
        return execute.ExecutorOptions(**{"timeouts": QUICK, "host": TestHost(models), **options})

    def run(self, text, *, policy="random:all-at-once", devices="nvml:0", into="run", clocks=False, **options):
        options = self.options(**options)
        return execute.execute(
            self.write(text), self.folder / into, policy=policy, devices=devices, predictor=ToyPredictor(),
            allow_clocks=clocks, options=options,
        )  # fmt: skip

    def resume(self, into="run", **options):
        options = self.options(**options)
        return execute.resume(self.folder / into, predictor=ToyPredictor(), options=options)

    def once_started(self, action, *, count=1):
        """Call a function in a thread once so many jobs of the run have been started."""
        outputs = self.folder / "run" / "outputs"

        def wait():
            assert until(lambda: outputs.exists() and len(list(outputs.iterdir())) >= count)
            time.sleep(0.2)
            action()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def traces(self):
        """What a run has left behind; the kernel may take a moment to remove a killed process."""
        until(lambda: not left_behind(self.folder, self.fake), 0.5)
        return left_behind(self.folder, self.fake)


@pytest.fixture
def doubles(tmp_path_factory, monkeypatch):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("d", numbered=True)
    for name, value in kill_drill.prepare(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", None)
    # The drill's policy sets clocks at every step; it is not for the registry, which figures are made from.
    monkeypatch.setattr(execute, "make", lambda name: kill_drill.Drilled() if name == kill_drill.POLICY else make(name))
    fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1", pynvml)
    fake.reset()
    fake.set("count", 2)
    yield Doubles(fake, folder)
    fake.close()
    monkeypatch.setattr("tempfile.tempdir", None)
