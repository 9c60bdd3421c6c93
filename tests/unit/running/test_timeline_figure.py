"""The figure of a run: which task ran where and when, at which share, clock and power."""

from __future__ import annotations

import numpy as np
import pytest
from support.policy_runs import run_emulated
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.devices.task_sizes import draw
from heshare.running.result import Run
from heshare.running.timeline_figure import frame
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings


@pytest.fixture(scope="module")
def done() -> Run:
    return run_emulated(draw(9, rng=np.random.default_rng(1)), "sched-only:all-at-once", "1xT4,1xA100")


def test_frame(done: Run) -> None:
    """Frame has every interval and the energy of the run."""
    shown = frame(done)
    tasks, power = shown[shown["row"] == "task"], shown[shown["row"] == "power"]
    assert sorted(tasks["task"]) == list(range(9))
    energy_j = (power["value"] * (power["end_s"] - power["start_s"])).sum()
    assert energy_j == pytest.approx(done.energy_cluster_j, rel=1e-9)
    clock = shown[shown["row"] == "clock"]
    assert (clock["value"] <= clock["top"]).all()
    assert len(clock) == len(power) == len(done.record.segments)
    assert (shown.loc[shown["row"] != "task", "task"]).isna().all()
    for _, lane in tasks.groupby(["gpu", "lane"]):
        assert (lane["end_s"].to_numpy()[:-1] <= lane["start_s"].to_numpy()[1:]).all()


def test_plot(done: Run) -> None:
    """The figure of a run has a row for each GPU; that of a front names its three plans."""
    assert [text.get_text() for text in done.plot().axes[0].get_yticklabels()] == ["T4-0", "A100-0"]
    rng, quick = np.random.default_rng(0), Settings(generations=5, clocks=2, mps_pcts=(100,))
    front = plan(mixed_tasks(4), done.cluster, Toy(demand=DEMANDS), rng=rng, settings=quick)
    named = [text.get_text() for text in front.plot().axes[0].get_legend().get_texts()]
    assert {name for text in named for name in text.split("/")} >= {"Trade-off", "En-opt", "JCT-opt"}
