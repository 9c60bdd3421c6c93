"""A whole live comparison on emulated stand-in GPUs of two types, its results, and the figures of its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.drills.machine import left_behind
from support.fakenvml import compiler
from support.live_rehearsal import stand_in_gpus

from heshare.ops.live.live_comparison import DEVICE_MODELS, LiveComparisonConfig, run_live_comparison
from heshare.ops.live.live_task_set import MIN_MODELS
from heshare.paper.studies import live_results
from heshare.profiles.visit import MeasurementProtocol

pytestmark = pytest.mark.nightly

POLICIES = ("random", "sched-only", "heshare:trade-off")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Call `heshare live` on stand-ins three times: with no time, with enough, and when all is done."""
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("l")  # before the stand-ins change TMPDIR
    work = folder / "work"
    config = LiveComparisonConfig(policies=POLICIES, tasks=6, minutes=0.05, budget_s=75.0, seed=4, allow_clocks=True)

    def call(time_s):
        comparison = run_live_comparison(config, work, replace(options, time_s=time_s))
        stamps = {path.name: path.stat().st_mtime_ns for path in (work / "runs").iterdir()}
        return comparison, stamps

    with stand_in_gpus(folder, "2xH100,A100", load_s=0.0, warmup_s=0.05, look_s=0.1, period_s=0.02) as (options, fake):
        protocol = MeasurementProtocol(repeats=1, window_s=0.4, warmup_s=0.02, readings=1)
        options = replace(options, protocol=protocol, progress=False)
        calls = [call(time_s) for time_s in (0.0, 1e6, 1e6)]
    written = live_results.write(calls[-1][0], folder / "out", command="a test")
    return calls, written, left_behind(folder, fake)


def test_continued(rehearsed):
    """A call without time runs one policy, the next call the others, and a third reuses all runs."""
    ((first, first_runs), (second, second_runs), (third, third_runs)), _, _ = rehearsed
    assert list(first.measured) == ["heshare:trade-off"]
    assert first.left == ("random", "sched-only")
    assert tuple(second.measured) == POLICIES
    assert second.left == ()
    assert first_runs.items() < second_runs.items()
    assert third_runs == second_runs
    assert live_results.comparison(third).equals(live_results.comparison(second))


def test_restored(rehearsed):
    """No process, MPS daemon, lock or locked clock is left."""
    assert rehearsed[-1] == []


def test_compared(rehearsed):
    """What ran is compared with what was simulated; energies and times add up."""
    ((_, (done, _), _), written, _) = rehearsed
    table = live_results.comparison(done)
    assert set(table["policy"]) == set(POLICIES)
    # How far apart they are depends on the time that this machine takes to start jobs, so no size is tested.
    for model in DEVICE_MODELS:
        assert np.allclose(table[f"{model}_error_pct"], 100.0 * (table[model] / table["measured"] - 1.0))
    average = table[table["quantity"] == live_results.JCT].set_index("policy")
    jobs = written.tables["jobs"].groupby("policy")[["measured_jct_s", "shipped_jct_s"]].mean()
    assert np.allclose(average.loc[jobs.index, ["measured", "shipped"]], jobs)
    assert (average["charged_for_starts"] > 0).all()
    energy = table[table["quantity"].str.startswith("energy")].set_index(["policy", "quantity"])["measured"]
    for policy in done.measured:
        active, cluster = energy[policy]
        assert 0.0 < active <= cluster * 1.001


def test_task_set(rehearsed):
    """A live task set has tasks of six models, with loading times, and uses GPUs of both types."""
    ((_, (done, _), _), written, _) = rehearsed
    assert len({one.workload.model for one in done.tasks}) >= MIN_MODELS
    table = written.tables["jobs"]
    assert len(table) == len(POLICIES) * len(done.tasks)
    assert (table["loading_s"] > 0).all()
    first_h100, a100 = 0, 2
    assert {first_h100, a100} <= set(table.loc[table["policy"] == "random", "gpu"])


def test_stand_in(rehearsed):
    """Results and records of stand-in GPUs are marked; there is one record of each type."""
    _, written, _ = rehearsed
    assert written.manifest["stand_in"] is True
    assert written.kind == "emulated"
    assert written.folder.name == "stand-in-2xH100-1xA100"
    records = sorted((written.folder / "profiles").glob("*/profile.csv"))
    assert [path.parent.name for path in records] == ["A100", "H100"]
    for path in records:
        assert set(pd.read_csv(path)["provenance"]) == {"emulated"}
        assert live_results.of_record(path) is not None
    text = (written.folder / live_results.MANIFEST).read_text()
    assert os.sep + "tmp" not in text
    assert json.loads(text)["cards"][0]["driver"]
    assert set(written.tables["runs"]["sharing"]) == {"mps"}


def test_figures(rehearsed, tmp_path):
    """The paper's notebooks run on the records, and their page has the table of measured and simulated values."""
    _, written, _ = rehearsed
    words = ["notebook", "run", "--group", "paper", "--profile", "smoke", "--page"]
    source = f"source={live_results.source_of(written)}"
    command = [sys.executable, "-m", "heshare", *words, "-p", source, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (page,) = tmp_path.glob("recorded-*/index.html")
    text = page.read_text("utf-8")
    assert 'id="live"' in text
    assert "emulated stand-ins" in text
    for title in ("Random", "Sched-only", "Trade-off"):
        assert f'<th scope="row">{title}</th><td class="number">' in text
