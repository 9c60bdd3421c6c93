"""The figure of a run: which task ran where and when, at which share, clock and power."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.patches import StepPatch

from heshare.devices.task_sizes import draw
from heshare.paper.figures import style, timelines
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.cluster import Cluster

CLASSES = ("low", "medium", "high")


@pytest.fixture(scope="module")
def done() -> Run:
    tasks = draw(9, rng=np.random.default_rng(1))
    cluster = Cluster.parse("1xT4,1xA100")
    return run(tasks, cluster, make("sched-only"), predictor=DevicePredictor(), rng=np.random.default_rng(0))


def test_frame_has_every_interval_and_the_energy_of_the_run(done: Run) -> None:
    frame = timelines.frame(done)
    tasks, power = frame[frame["row"] == "task"], frame[frame["row"] == "power"]
    assert sorted(tasks["task"]) == list(range(9))
    energy_j = (power["value"] * (power["end_s"] - power["start_s"])).sum()
    assert energy_j == pytest.approx(done.energy_cluster_j, rel=1e-9)
    clock = frame[frame["row"] == "clock"]
    assert (clock["value"] <= clock["top"]).all()
    assert len(clock) == len(power) == len(done.record.segments)
    assert (frame.loc[frame["row"] != "task", "task"]).isna().all()
    for _, lane in tasks.groupby(["gpu", "lane"]):
        assert (lane["end_s"].to_numpy()[:-1] <= lane["start_s"].to_numpy()[1:]).all()


def test_timeline_rows_draws_tasks_clock_and_power_in_separate_rows(done: Run) -> None:
    frame = timelines.frame(done)
    labels = done.cluster.labels
    with style.using():
        figure, ax = plt.subplots()
        timelines.timeline_rows(ax, frame, gpus=labels, classes=CLASSES)
        boxes = [art for art in ax.collections if isinstance(art, PolyCollection)]
        strips = [art for art in ax.patches if isinstance(art, StepPatch)]
        assert len(boxes) == 9
        assert len(strips) == 2 * len(labels)
        for row, label in enumerate(labels):
            clock, power = strips[2 * row : 2 * row + 2]
            part = frame[(frame["gpu"] == label) & (frame["row"] == "power")]
            heights = np.asarray(power.get_data().values)
            share = (part["value"] / part["top"]).to_numpy()
            ends = (row + timelines._POWER[1], row + timelines._POWER[0])
            np.testing.assert_allclose(heights, np.interp(share, [0, 1], ends))
            assert row - 0.5 < np.min(clock.get_data().values) < np.min(heights) < row + 0.5
        texts = {note.get_text() for note in ax.texts}
        assert texts <= {str(task) for task in range(9)} | {text for text in texts if text.endswith(" %")}
        assert texts, "tasks have their numbers"
        assert not any("100 %" in text for text in texts), "where nothing else is said, it is 100 %"
        timelines.timeline_legend(ax, CLASSES)
        named = [text.get_text() for text in ax.get_legend().get_texts()]
        assert named == ["low load", "medium load", "high load", "SM clock", "power"]
        plt.close(figure)
