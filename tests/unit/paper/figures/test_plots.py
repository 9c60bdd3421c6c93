"""Plots show the values of their frame: medians, intervals, rows, names and ticks."""

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
ROWS = pd.DataFrame(
    {
        "gpu": ["T4", "T4", "A100", "A100"],
        "system": ["Morak", "μ-Serve"] * 2,
        "x": [1.0, 2.0, 3.0, 4.0],
        "low": [0.5, 1.5, 2.5, 3.5],
        "high": [1.5, 2.5, 3.5, 4.5],
    }
)


@pytest.fixture
def ax() -> Iterator[Axes]:
    import matplotlib.pyplot as plt

    from heshare.paper.figures import style

    with style.using():
        figure, axes = plt.subplots()
        yield axes
        plt.close(figure)


def medians(points: dict[str, tuple[float, float]], metrics: tuple[str, str] = (ENERGY, JCT)) -> pd.DataFrame:
    """Return the medians of two metrics by system, each with an interval of 10 % to both sides."""
    rows = [
        {"title": title, "metric": metric, "median": value, "low": 0.9 * value, "high": 1.1 * value}
        for title, both in points.items()
        for metric, value in zip(metrics, both, strict=True)
    ]
    return pd.DataFrame(rows)


def ticks(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_diagram(ax: Axes) -> None:
    """The diagram of the system draws each task of the plan as high as its share."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    from heshare.paper.figures import diagram, style
    from heshare.paper.figures.series_styles import LOAD_CLASSES, category_style

    batches = (Batch((2, 0), (50, 100), 1005), Batch((1,), (80,)))
    tasks = tuple(Task(id=at, workload=Workload("resnet50", 8), iterations=9.0) for at in range(3))
    frame = diagram.batches(Plan(Cluster.parse("1xA100"), tasks, (batches,), 1.0, 1.0))
    assert frame[["task", "mps_pct", "sm_mhz", "top_mhz"]].to_numpy().tolist() == [
        [2, 50, 1005, 1410], [0, 100, 1005, 1410], [1, 80, 1410, 1410]
    ]  # fmt: skip

    ax.figure.set_size_inches(style.PAGE_IN, 2.9)
    diagram.system(ax, frame)
    assert [text.get_text() for text in ax.texts].count("2") == 3, "in the set, the queue and the batch"
    colour = to_rgba(category_style(LOAD_CLASSES.index("medium")).colour)
    drawn = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_facecolor() == colour]
    full, *others = sorted({round(patch.get_height(), 3) for patch in drawn if patch.get_x() > 5.3}, reverse=True)
    assert others == pytest.approx([0.8 * full, 0.5 * full], abs=2e-3)


def test_plane(ax: Axes) -> None:
    """The plane of energy and JCT names each system and has an arrow from one form of a rival to the next."""
    from heshare.paper.figures import comparison_plane

    titles = ["Trade-off", "En-opt", "Morak", "Morak, HeShare's placement", "Morak, own best"]
    frame = medians({title: (1e6 * (at + 2), 1e3 * (at + 2)) for at, title in enumerate(titles)})
    comparison_plane.draw(ax, frame, forms=[titles[2:]], plans=["Trade-off", "En-opt"])
    arrows = [(text.xyann, text.xy) for text in ax.texts if text.arrow_patch is not None and text.xyann[0] >= 4]
    assert arrows == [((4, 4), (5, 5)), ((5, 5), (6, 6))]
    assert set(titles) <= {text.get_text() for text in ax.texts}


def test_load_planes() -> None:
    """Systems that no other dominates, and those asked for, have names; the others are dots."""
    import matplotlib.pyplot as plt

    from heshare.paper.figures import comparison_plane, load_planes

    at_a_load = medians(
        {
            "FIFO": (9.0, 9.0),
            "SJF": (2.0, 8.1),
            "EaCO": (2.0, 2.1),
            "Random": (10.0, 10.0),
            "Marginal, 30 W": (1.0, 8.0),
            "Marginal": (1.9, 2.0),
        }
    )
    assert load_planes.not_dominated(comparison_plane.points(at_a_load)) == ["Marginal, 30 W", "Marginal"]

    figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    load_planes.draw(axes, pd.concat([at_a_load.assign(load=load) for load in (0.3, 1.2)]), named=["EaCO"])
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"Marginal, 30 W", "Marginal", "EaCO"} <= names
    assert not {"FIFO", "SJF", "Random"} & names
    dots = next(line for line in axes[1].lines if line.get_label() == "all others")
    assert len(dots.get_xydata()) == 3
    plt.close(figure)


def test_bars(ax: Axes) -> None:
    """Bars are as high as the medians, in the systems' colours, with their intervals, where `bar_place` says."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    from heshare.paper.figures import plots
    from heshare.paper.figures.series_styles import series_style

    plots.bars(ax, RUNS, x="title", y="jct_s", hue="title", order=TITLES, hue_order=TITLES)
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [12.5, 2.5]
    assert [bar.get_facecolor() for bar in bars] == [to_rgba(series_style(title).colour) for title in TITLES]
    ends = [line.get_ydata() for line in ax.lines]
    assert [[min(each), max(each)] for each in ends] == [[10.0, 15.0], [0.0, 5.0]], "the interval of six values"
    places = [plots.bar_place(at, 0, 1) for at in range(2)]
    assert places == [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]

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
    assert ax.get_xticks().tolist() == [4, 8]


def test_interval_rows(ax: Axes) -> None:
    """A row has a mark and an interval for each series; without series each row has its own style."""
    from heshare.paper.figures.rows import interval_rows, paper_values

    interval_rows(ax, ROWS, row="gpu", value="x", low="low", high="high", series="system")
    assert ticks(ax) == ["T4", "A100"]
    marks = {str(line.get_label()): line for line in ax.lines}
    assert np.allclose(marks["Morak"].get_xdata(), [1.0, 3.0])
    spans = np.concatenate([each.get_segments() for each in ax.collections])
    assert np.allclose(spans[:, :, 0], ROWS.sort_values("system")[["low", "high"]])

    ax.clear()
    paper_values(ax, ROWS.head(2), least="low", most="high")
    assert np.allclose([line.get_xdata() for line in ax.lines[:2]], ROWS.head(2)[["low", "high"]].T)
    assert all(np.allclose(line.get_ydata(), [0.0, 1.0]) for line in ax.lines[:2])

    ax.clear()
    interval_rows(ax, ROWS.head(2), row="system", value="x", low="low", high="high", names=False)
    assert [line.get_ydata()[0] for line in ax.lines] == [0.0, 1.0]
    assert len({line.get_color() for line in ax.lines}) == 2


def test_effect_rows(ax: Axes) -> None:
    """Rows of effects have their numbers and a line at no change."""
    from heshare.paper.figures.rows import effect_rows

    names = ["no placement", "no clocks"]
    changes = pd.DataFrame(
        {"ours": names, "change_pct": [50.9, -0.04], "low_pct": [38.6, -1.0], "high_pct": [76.3, 1.0]}
    )
    effect_rows(ax, changes, row="ours")
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["+51", "+0.0"]
    assert ticks(ax) == names
    assert [0.0, 0.0] in [list(line.get_xdata()) for line in ax.lines]


def test_language_panels(ax: Axes) -> None:
    """Figures of language models have a named point, or a row of changes, for each policy."""
    from heshare.paper.figures import language_panels

    frame = medians({"SRTF": (1.0, 0.5), "Marginal": (10.0, 0.4)}, ("ttft_s", "token_j"))
    language_panels.plane(ax, frame, "ttft_s", xlabel="Time (s)", ylabel="Energy (J)", log=True)
    points = {tuple(line.get_xydata()[0].tolist()) for line in ax.lines if len(line.get_xdata()) == 1}
    assert points == {(1.0, 0.5), (10.0, 0.4)}
    assert {"SRTF", "Marginal"} <= {text.get_text() for text in ax.texts}

    ax.clear()
    rows = [
        {"title": title, "images": images, "change_pct": -10.0 * images, "low_pct": -60.0, "high_pct": 5.0}
        for title in ("Morak", "EaCO")
        for images in (1, 2)
    ]
    language_panels.changes(ax, pd.DataFrame(rows), series="images", label="Energy (%)", names=True)
    assert ticks(ax) == ["Morak", "EaCO"]
    assert ax.get_legend_handles_labels()[1] == ["1", "2"]


def test_mix_panels() -> None:
    """Mixes of GPUs have bars with the ratios and the paper's values below, numbers of tasks have lines."""
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
    over = pd.concat(
        [mixes.ratios(frame, "Trade-off", JCT, ["load"]), mixes.ratios(frame, "Trade-off", JCT).assign(load="all")]
    )
    mixed = mix_panels.over_mixes(frame, over, JCT, systems=titles, paper={("all", "Morak"): 1.5})
    below = mixed.axes[-1]
    assert [bar.get_height() for bar in below.containers[0]] == pytest.approx([2.0, 8.0, 4.0])
    (tick,) = [line for line in below.collections if line.get_label() == "the paper"]
    assert tick.get_segments()[0][0][1] == pytest.approx(1.5)

    one = frame[frame["cluster"] == "1xA100"]
    over = mixes.ratios(one, "Trade-off", JCT, ["cluster", "tasks"])
    figure = mix_panels.over_tasks(one, over, JCT, systems=titles, paper={("1xA100", "Morak"): 30.0})
    assert figure.axes[1].get_ylim()[1] > 30.0, "the paper's mark lies inside"
    plt.close("all")


@pytest.mark.parametrize("which", ["x", "y"])
@pytest.mark.parametrize("ends", [(1.0, 1000.0), (1.2, 2.6), (0.97, 1.04), (3e-4, 7e5)])
def test_log_ticks(ax: Axes, ends: tuple[float, float], which: str) -> None:
    """A logarithmic axis has at least three ticks within its ends."""
    from heshare.paper.figures import plots

    ax.plot(ends, ends)
    plots.log_axis(ax, which)  # type: ignore[arg-type]
    (ax.set_xlim if which == "x" else ax.set_ylim)(*ends)
    found = (ax.xaxis if which == "x" else ax.yaxis).get_majorticklocs()
    assert len(found) >= 3
    assert ends[0] <= min(found) <= max(found) <= ends[1]


def test_round_ticks() -> None:
    """Decades alone are ticks where there are enough of them, else 1, 2 and 5 as well."""
    from heshare.paper.figures import plots

    assert plots.LogTicks().tick_values(0.5, 2000.0) == [1.0, 10.0, 100.0, 1000.0]
    assert plots.LogTicks().tick_values(0.5, 6.0) == [0.5, 1.0, 2.0, 5.0]
