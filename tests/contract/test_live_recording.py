"""A rehearsal of a real recording: recorder, live device, MPS session, worker processes; only the GPU is a stand-in.

As a program it is the recording that a test kills: `python test_live_recording.py FOLDER BUDGET_S`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pynvml
import pytest
from support import kill_drill
from support.drills.machine import processes
from support.fakenvml import SONAME, FakeNvml, compiler
from support.waiting import until

from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.recording import budget_plan
from heshare.ops.recording.profile_device import enforceable_points, enforceable_steps, profile
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles import design, store
from heshare.profiles.visit import NOTHING, MeasurementProtocol, Visit

SPIN = (sys.executable, "-m", "support.spin_worker", "--ms", "5")
QUICK = MeasurementProtocol(repeats=1, window_s=0.15, warmup_s=0.02, readings=1)


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    """A machine of stand-ins for NVML and MPS."""
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("r")
    for name, value in kill_drill.prepare(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    monkeypatch.setattr("tempfile.tempdir", None)


@contextmanager
def live_device(folder):
    """A device over the stand-in library, which starts spinning processes."""
    fake = FakeNvml(folder / "lib" / SONAME, pynvml)
    fake.reset()
    mps = MpsSession(kill_drill.UUID)
    launcher = ProcessLauncher(mps, command=SPIN, period_s=0.02, warmup=1, warmup_s=0.0, log_dir=folder, keep=8)
    with NvmlDevice(0, launcher, mps=mps) as device:
        yield device
    assert fake.get("open") == 0
    fake.close()


def record(folder, budget_s, protocol=QUICK):
    """Record the stand-in; return the table and the facts of the device."""
    with live_device(folder) as device:
        path = profile(device, folder / "out", budget_s=budget_s, clocks=False, protocol=protocol, progress=False)
    return store.read(path), json.loads((path.parent / "manifest.json").read_text())["device"]


@pytest.mark.slow
def test_live_gpu(folder):
    """Rows of a live GPU are measured."""
    protocol = MeasurementProtocol(repeats=2, window_s=0.3, warmup_s=0.05, readings=2)
    table, facts = record(folder, 6.0, protocol)
    assert (folder / "out" / "H100").is_dir()
    assert len(table) >= 3
    assert set(table["provenance"]) == {"measured"}
    assert (table["time_s"] > 0.004).all()
    assert table["power_w"].to_numpy() == pytest.approx(100.0)
    assert table["sm_util_pct"].to_numpy() == pytest.approx(55.5)
    assert table["l2_util_pct"].isna().all()
    assert (facts["sharing"], facts["power_kind"]) == ("mps", "instant")


def test_without_mps(folder):
    """Without MPS all tasks are recorded at 100 %."""
    (folder / "bin" / "nvidia-cuda-mps-control").unlink()
    with live_device(folder) as device:
        steps = enforceable_steps(device, budget_plan.plan(device.gpu, rng=np.random.default_rng(0)))
        first = list(islice(steps, 200))
        assert len(set(first)) == len(first)
        assert {task.mps_pct for setup, _ in first for task in setup.residents} == {100}
        drawn = design.samples(device.gpu, 20, rng=np.random.default_rng(0))
        assert {point.target.mps_pct for point in enforceable_points(device, drawn)} == {100}
    table, facts = record(folder, 2.0)
    assert set(table["mps_pct"]) == {100}
    assert facts["sharing"] == "time-slice"
    assert "not on the PATH" in facts["sharing_reason"]


@pytest.mark.nightly
def test_killed_recording(folder):
    """A recording that is killed loses and repeats nothing, and leaves no process."""
    command = [sys.executable, __file__, str(folder), "16"]
    journal, kept = folder / "out" / "H100" / "recording.jsonl", b""
    for lines in (6, 22):
        killed = subprocess.Popen(command)
        while killed.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= lines):
            time.sleep(0.002)
        killed.kill()
        assert killed.wait() == -signal.SIGKILL
        whole = journal.read_bytes().rpartition(b"\n")[0]
        assert whole.startswith(kept)
        kept = whole
        assert not journal.with_name("profile.csv").exists()
    subprocess.run(command, check=True)
    content = journal.read_bytes()
    assert content.startswith(kept)

    entries = [json.loads(line.rpartition(b"\t")[0]) for line in content.splitlines()]
    visits = [Visit.from_dict(entry["visit"]) for entry in entries if "visit" in entry]
    assert len({(visit.setup, visit.number) for visit in visits}) == len(visits) > 15
    took_s = [entry["took_s"] for entry in entries if "took_s" in entry]
    assert sum(took_s) + sum(visit.took_s for visit in visits[:-1]) < 16.0
    shared = [visit.setup for visit in visits if not visit.setup.startswith(NOTHING)]
    tasks = {(setup, task) for setup in shared for task in setup.split("/")[0].split("+")}
    assert len(store.read(journal.with_name("profile.csv"))) == len(tasks)
    assert until(lambda: not processes(folder))


if __name__ == "__main__":
    record(Path(sys.argv[1]), float(sys.argv[2]))
