"""Plots show the values of their frame: medians, intervals, ratios, ticks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from heshare.paper.harness import ENERGY, JCT
from heshare.scheduling.plan import Batch, Plan
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = ["Random", "Trade-off"]
RUNS = pd.DataFrame(
    {
        "title": ["Random"] * 6 + ["Trade-off"] * 6,
        "tasks": [4, 8] * 6,
        "jct_s": [*np.arange(10.0, 16.0), *np.arange(6.0)],
    }
)


@pytest.fixture
def ax() -> Iterator[Axes]:
    import matplotlib.pyplot as plt

    from heshare.paper.figures import style

    with style.using():
        yield plt.subplots()[1]
        plt.close("all")


def medians(points: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Return the medians of energy and JCT by system, each with an interval of 10 % to both sides."""
    rows = [
        {"title": title, "metric": metric, "median": value, "low": 0.9 * value, "high": 1.1 * value}
        for title, both in points.items()
        for metric, value in zip((ENERGY, JCT), both, strict=True)
    ]
    return pd.DataFrame(rows)


def test_diagram(ax: Axes) -> None:
    """The diagram of the system has each task's share and the clock of its batch."""
    from heshare.paper.figures import diagram

    batches = (Batch((2, 0), (50, 100), 1005), Batch((1,), (80,)))
    tasks = tuple(Task(id=at, workload=Workload("resnet50", 8), iterations=9.0) for at in range(3))
    frame = diagram.batches(Plan(Cluster.parse("1xA100"), tasks, (batches,), 1.0, 1.0))
    columns = frame[["task", "mps_pct", "sm_mhz", "top_mhz"]]
    assert columns.to_numpy().tolist() == [[2, 50, 1005, 1410], [0, 100, 1005, 1410], [1, 80, 1410, 1410]]
    diagram.system(ax, frame)


def test_not_dominated(ax: Axes) -> None:
    """Systems that no other dominates have names in the planes over load; the others are dots."""
    from heshare.paper.figures import comparison_plane, load_planes

    values = {"FIFO": (9.0, 9.0), "SJF": (2.0, 8.1), "Marginal, 30 W": (1.0, 8.0), "Marginal": (1.9, 2.0)}
    at_a_load = medians(values)
    assert load_planes.not_dominated(comparison_plane.points(at_a_load)) == ["Marginal, 30 W", "Marginal"]

    axes = ax.figure.subplots(1, 2)
    load_planes.draw(axes, pd.concat([at_a_load.assign(load=load) for load in (0.3, 1.2)]), named=["SJF"])
    dots = next(line for line in axes[1].lines if line.get_label() == "all others")
    assert len(dots.get_xydata()) == 1


def test_bars(ax: Axes) -> None:
    """Bars are as high as the medians, with their intervals, where `bar_place` says."""
    from matplotlib.patches import Rectangle

    from heshare.paper.figures import plots

    plots.bars(ax, RUNS, x="title", y="jct_s", hue="title", order=TITLES, hue_order=TITLES)
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [12.5, 2.5]
    ends = [line.get_ydata() for line in ax.lines]
    assert [[min(each), max(each)] for each in ends] == [[10.0, 15.0], [0.0, 5.0]], "the interval of six values"

    ax.clear()
    runs = RUNS.assign(tasks=RUNS["tasks"].astype(str))
    plots.bars(ax, runs, x="tasks", y="jct_s", hue="title", order=["4", "8"], hue_order=TITLES)
    drawn = [(bar.get_x(), bar.get_x() + bar.get_width()) for container in ax.containers for bar in container]
    expected = [plots.bar_place(group, system, 2) for system in range(2) for group in range(2)]
    assert np.array(drawn) == pytest.approx(np.array(expected))


def test_trends(ax: Axes) -> None:
    """Trends go through the medians."""
    from heshare.paper.figures import plots
    from heshare.paper.figures.series_styles import series_style

    plots.trends(ax, RUNS, x="tasks", y="jct_s", hue="title", hue_order=TITLES)
    lines = {line.get_color(): line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() != "None"}
    random, trade_off = (lines[series_style(title).colour] for title in TITLES)
    assert random.get_ydata().tolist() == [12.0, 13.0]
    assert trade_off.get_ydata().tolist() == [2.0, 3.0]


def test_interval_rows(ax: Axes) -> None:
    """A row has a mark and an interval for each series."""
    from heshare.paper.figures.rows import interval_rows

    values = [("T4", "Morak", 1.0), ("T4", "μ-Serve", 2.0), ("A100", "Morak", 3.0), ("A100", "μ-Serve", 4.0)]
    frame = pd.DataFrame(values, columns=["gpu", "system", "x"])
    frame = frame.assign(low=frame["x"] - 0.5, high=frame["x"] + 0.5)
    interval_rows(ax, frame, row="gpu", value="x", low="low", high="high", series="system")
    marks = {str(line.get_label()): line for line in ax.lines}
    assert np.allclose(marks["Morak"].get_xdata(), [1.0, 3.0])
    spans = np.concatenate([each.get_segments() for each in ax.collections])
    assert np.allclose(spans[:, :, 0], frame.sort_values("system")[["low", "high"]])


def test_mix_panels() -> None:
    """Below the bars of mixes stand the ratios, and a mark at the paper's value."""
    import matplotlib.pyplot as plt

    from heshare.paper.figures import mix_panels
    from heshare.paper.studies import mixes

    titles = ["Morak", "Trade-off"]
    rows = [
        {"cluster": cluster, "load": load, "tasks": tasks, "title": title, "repetition": seed, JCT: value * (1 + seed)}
        for cluster in ("2xT4,2xV100", "1xA100")
        for load, tasks, values in (("low", 4, (2.0, 1.0)), ("high", 8, (8.0, 1.0)))
        for title, value in zip(titles, values, strict=True)
        for seed in range(6)
    ]
    frame = pd.DataFrame(rows)
    by_load, every = mixes.ratios(frame, "Trade-off", JCT, ["load"]), mixes.ratios(frame, "Trade-off", JCT)
    over = pd.concat([by_load, every.assign(load="all")])
    below = mix_panels.over_mixes(frame, over, JCT, systems=titles, paper={("all", "Morak"): 1.5}).axes[-1]
    assert [bar.get_height() for bar in below.containers[0]] == pytest.approx([2.0, 8.0, 4.0])
    (tick,) = [line for line in below.collections if line.get_label() == "the paper"]
    assert tick.get_segments()[0][0][1] == pytest.approx(1.5)
    plt.close("all")


@pytest.mark.parametrize("ends", [(1.0, 1000.0), (1.2, 2.6), (0.97, 1.04), (3e-4, 7e5)])
def test_log_ticks(ax: Axes, ends: tuple[float, float]) -> None:
    """A logarithmic axis has at least three ticks within its ends."""
    from heshare.paper.figures import plots

    ax.plot(ends, ends)
    plots.log_axis(ax, "x")
    ax.set_xlim(*ends)
    found = ax.xaxis.get_majorticklocs()
    assert len(found) >= 3
    assert ends[0] <= min(found) <= max(found) <= ends[1]
