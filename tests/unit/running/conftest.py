"""A machine of stand-ins for the executor: two cards, an MPS daemon each, folders of its own; real processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from heshare.devices.meter import Patience
from heshare.policies.registry import make
from heshare.running import execute
from heshare.testing import drill
from heshare.testing.fakenvml import FakeNvml, compiler
from heshare.testing.toy import ToyPredictor

QUICK = Patience(look_s=0.1, memory_s=0.3, nvml_s=0.5, shared_s=1.0, grace_s=0.5)


@dataclass
class Doubles:
    """The stand-ins, and how to run jobs on them."""

    fake: FakeNvml
    folder: Path

    def write(self, text):
        path = self.folder / "jobs.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, text, *, policy="random", devices="nvml:0", into="run", clocks=False, full_s=1.0, **ways):
        ways = execute.Ways(patience=ways.pop("patience", QUICK), full_s=full_s, **ways)
        return execute.execute(
            self.write(text), self.folder / into, policy=policy, devices=devices, predictor=ToyPredictor(),
            allow_clocks=clocks, ways=ways,
        )  # fmt: skip

    def resume(self, into="run", full_s=1.0):
        ways = execute.Ways(patience=QUICK, full_s=full_s)
        return execute.resume(self.folder / into, predictor=ToyPredictor(), ways=ways)

    def traces(self):
        """What is left of a run; the kernel may take a moment to bury a process that was killed."""
        until = time.monotonic() + 0.5
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.02)
        return left

    def _left(self):
        """Notes, MPS folders, processes, clocks."""
        wrong = [path.name for path in (*drill.saved.notes(), *drill.watchdog.notes())]
        wrong += [path.name for path in (self.folder / "tmp").glob("hs-mps-*")]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(process.name) != os.getpid() and f"HESHARE_DRILL={self.folder}".encode() in environment:
                wrong.append((process / "cmdline").read_text())
        return wrong + [name for name in ("locked_mhz", "locked1_mhz") if self.fake.get(name)]


@pytest.fixture
def doubles(tmp_path_factory, monkeypatch):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("d", numbered=True)
    for name, value in drill.prepare(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", None)
    # The drill's policy sets clocks at every step; it is not for the registry, which figures are made from.
    monkeypatch.setattr(execute, "make", lambda name: drill.Drilled() if name == drill.POLICY else make(name))
    fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1", pynvml)
    fake.reset()
    fake.set("count", 2)
    yield Doubles(fake, folder)
    fake.close()
    monkeypatch.setattr("tempfile.tempdir", None)
