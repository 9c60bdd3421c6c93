"""A rehearsal of a real recording: recorder, live device, MPS session, worker processes; only the GPU is a stand-in."""

from __future__ import annotations

import json
import os
import sys
from itertools import islice

import numpy as np
import pynvml
import pytest
from support import fake_mps
from support.fakenvml import FakeNvml, build, compiler

from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.recording import budget_plan
from heshare.ops.recording.profile_device import enforceable_points, enforceable_steps, profile
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles import design, store
from heshare.profiles.visit import MeasurementProtocol

SPIN = (sys.executable, "-m", "support.spin_worker", "--ms", "5")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    fake_mps.install(tmp_path)
    nvml = FakeNvml(build(tmp_path), pynvml)
    nvml.reset()
    yield nvml
    nvml.close()


def live_device(folder):
    """A device over the stand-in library, which starts spinning processes."""
    mps = MpsSession("GPU-00000000-1111-2222-3333-444444444444")
    launcher = ProcessLauncher(mps, command=SPIN, period_s=0.02, warmup_s=0.02, log_dir=folder)
    return NvmlDevice(0, launcher, mps=mps)


@pytest.mark.slow
def test_live_gpu(fake, tmp_path):
    """Rows of a live GPU are measured."""
    protocol = MeasurementProtocol(repeats=2, window_s=0.3, warmup_s=0.05, readings=2)
    with live_device(tmp_path) as device:
        path = profile(device, tmp_path / "out", budget_s=6.0, clocks=False, protocol=protocol, progress=False)
    table = store.read(path)
    assert path.parent.name == "H100"
    assert len(table) >= 3
    assert set(table["provenance"]) == {"measured"}
    assert (table["time_s"] > 0.004).all()
    assert table["power_w"].to_numpy() == pytest.approx(100.0)
    assert table["sm_util_pct"].to_numpy() == pytest.approx(55.5)
    assert table["l2_util_pct"].isna().all()
    facts = json.loads((path.parent / "manifest.json").read_text())["device"]
    assert facts["sharing"] == "mps"
    assert facts["power_kind"] == "instant"
    assert fake.get("open") == 0


def test_without_mps(fake, tmp_path, monkeypatch):
    """Without MPS all tasks are recorded at 100 %."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    protocol = MeasurementProtocol(repeats=1, window_s=0.1, warmup_s=0.02, readings=1)
    with live_device(tmp_path) as device:
        steps = enforceable_steps(device, budget_plan.plan(device.gpu, rng=np.random.default_rng(0)))
        first = list(islice(steps, 200))
        assert len(set(first)) == len(first)
        assert {task.mps_pct for setup, _ in first for task in setup.residents} == {100}
        drawn = design.samples(device.gpu, 20, rng=np.random.default_rng(0))
        assert {point.target.mps_pct for point in enforceable_points(device, drawn)} == {100}
        path = profile(device, tmp_path / "out", budget_s=2.0, clocks=False, protocol=protocol, progress=False)
    assert set(store.read(path)["mps_pct"]) == {100}
    facts = json.loads((path.parent / "manifest.json").read_text())["device"]
    assert facts["sharing"] == "time-slice"
    assert "not on the PATH" in facts["sharing_reason"]
