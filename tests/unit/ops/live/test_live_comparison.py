"""A whole live comparison on an emulated stand-in GPU, and its written results."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace

import numpy as np
import pytest
from support.fakenvml import compiler
from support.live_rehearsal import stand_in_gpu

from heshare.ops.live.live_comparison import DEVICE_MODELS, LiveComparisonConfig, run_live_comparison
from heshare.ops.live.live_task_set import MIN_MODELS
from heshare.ops.nvml.binding import Nvml
from heshare.paper.studies import live_results
from heshare.profiles.visit import MeasurementProtocol

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Record a stand-in GPU, run two policies, compare and write, as `heshare live` does; then run all of it again."""
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("l")  # before the stand-in changes TMPDIR
    before = dict(os.environ)
    config = LiveComparisonConfig(
        policies=("random", "sched-only"), tasks=6, minutes=0.05, budget_s=75.0, seed=4, allow_clocks=True
    )
    try:
        with stand_in_gpu(folder, load_s=0.0, warmup_s=0.05, look_s=0.1, period_s=0.02) as options:
            protocol = MeasurementProtocol(repeats=1, window_s=0.4, warmup_s=0.02, readings=1)
            options = replace(options, protocol=protocol, progress=False)
            first = run_live_comparison(config, folder / "work", options)
            runs = sorted((folder / "work" / "runs").iterdir())
            stamps = [path.stat().st_mtime_ns for path in runs]
            again = run_live_comparison(config, folder / "work", options)
            kept = stamps == [path.stat().st_mtime_ns for path in sorted((folder / "work" / "runs").iterdir())]
            with Nvml() as nvml:
                locked = nvml.binding.nvmlLib.fakenvml_get(b"locked_mhz")
        written = live_results.write(first, folder / "out", folder / "work" / "profiles", command="a test")
        yield first, again, kept, written, locked
    finally:
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None


def test_compared(rehearsed):
    """What ran is compared with what was simulated; energies and times add up."""
    first, _, _, written, _ = rehearsed
    table = live_results.comparison(first)
    assert set(table["policy"]) == {"random", "sched-only"}
    # How far apart they are depends on the time that this machine takes to start jobs, so no size is tested.
    for model in DEVICE_MODELS:
        assert np.allclose(table[f"{model}_error_pct"], 100.0 * (table[model] / table["measured"] - 1.0))
    average = table[table["quantity"].str.startswith("average JCT")].set_index("policy")
    jobs = written.tables["jobs"].groupby("policy")[["measured_jct_s", "shipped_jct_s"]].mean()
    assert np.allclose(average.loc[jobs.index, ["measured", "shipped"]], jobs)
    energy = table[table["quantity"].str.startswith("energy")].set_index(["policy", "quantity"])["measured"]
    for policy in first.measured:
        active, cluster = energy[policy]
        assert 0.0 < active <= cluster * 1.001


def test_reused(rehearsed):
    """A second call reuses all runs."""
    first, again, kept, _, locked_mhz = rehearsed
    assert kept
    assert locked_mhz == 0.0
    assert live_results.comparison(again).equals(live_results.comparison(first))


def test_task_set(rehearsed):
    """A live task set has tasks of six models, with loading times."""
    first, _, _, written, _ = rehearsed
    assert len({one.workload.model for one in first.tasks}) >= MIN_MODELS
    table = written.tables["jobs"]
    assert len(table) == 2 * len(first.tasks)
    assert (table["loading_s"] > 0).all()


def test_stand_in(rehearsed):
    """Results of a stand-in GPU are marked."""
    _, _, _, written, _ = rehearsed
    assert written.manifest["stand_in"] is True
    assert written.kind == "emulated"
    assert written.folder.name.startswith("stand-in-")
    assert not (written.folder / "profiles").exists()
    text = (written.folder / live_results.MANIFEST).read_text()
    assert os.sep + "tmp" not in text
    assert json.loads(text)["cards"][0]["driver"]
    assert set(written.tables["runs"]["sharing"]) == {"mps"}
