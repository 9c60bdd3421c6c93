"""Figures and tables: they show the values of the frame; saved files are complete and the same each time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch, Rectangle
from support.pdf_text import texts_outside

from heshare.paper.figures import comparison_plane, diagram, plots, style
from heshare.paper.figures.series_styles import LOAD_CLASSES, category_style, series_style
from heshare.paper.notebooks import notebook, parameters
from heshare.paper.notebooks.execute_notebook import missing_files
from heshare.paper.provenance.run_record import RunRecord
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import InputError
from heshare.shared.files import root
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

FRAME = pd.DataFrame(
    {"group": ["a", "a", "b"], "gpu": ["T4", "A100", "T4"], "value": [1.0, 2.0, 3.0], "low": 0.5, "high": 4.0}
)


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.using():
        figure, axes = plt.subplots()
        yield axes
        plt.close(figure)


def context(out: Path, *, by_hand: bool = False) -> notebook.Context:
    source = parameters.Notebook(
        root() / "notebooks/01_motivation.ipynb",
        {"profile": "paper", "seed": 0},
        ("fig01_toy", "table1_toy", "x01a_toy"),
    )
    run = RunRecord("01_motivation", "smoke", by_hand=by_hand)
    return notebook.Context(source, {"profile": "smoke", "seed": 3, "out_dir": str(out)}, out, run)


def test_the_systems_diagram_draws_each_task_of_the_plan_as_high_as_its_share(ax: Axes) -> None:
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
    ax.set_position((0, 0, 1, 1))
    ax.figure.draw_without_rendering()
    boxes = [patch.get_window_extent() for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    for text in ax.texts:
        extent = text.get_window_extent()
        assert any(box.x0 <= extent.x0 and extent.x1 <= box.x1 and box.y0 <= extent.y0 for box in boxes), text


def test_the_plane_has_a_name_for_each_system_and_an_arrow_between_forms(ax: Axes) -> None:
    titles = ["Trade-off", "En-opt", "Morak", "Morak, HeShare's placement", "Morak, own best"]
    rows = [
        {"title": title, "metric": metric, "median": size * (at + 2)}
        for metric, size in (("avg_jct_s", 1e3), ("energy_active_j", 1e6))
        for at, title in enumerate(titles)
    ]
    frame = pd.DataFrame(rows).assign(low=lambda rows: 0.9 * rows["median"], high=lambda rows: 1.1 * rows["median"])
    comparison_plane.draw(ax, frame, forms=[titles[2:]], plans=["Trade-off", "En-opt"])
    arrows = [(text.xyann, text.xy) for text in ax.texts if text.arrow_patch is not None and text.xyann[0] >= 4]
    assert arrows == [((4, 4), (5, 5)), ((5, 5), (6, 6))]
    assert {*titles, "better"} <= {text.get_text() for text in ax.texts}


RUNS = pd.DataFrame(
    {
        "title": ["Random"] * 6 + ["Trade-off"] * 6,
        "tasks": [4, 8] * 6,
        "jct_s": [*np.arange(10.0, 16.0), *np.arange(6.0)],
    }
)


def test_bars_are_as_high_as_the_medians_and_have_the_systems_colours(ax: Axes) -> None:
    titles = ["Trade-off", "Random"]
    plots.bars(ax, RUNS, x="title", y="jct_s", hue="title", order=titles, hue_order=titles)
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [2.5, 12.5]
    assert [bar.get_facecolor() for bar in bars] == [to_rgba(series_style(title).colour) for title in titles]
    ends = [line.get_ydata() for line in ax.lines]
    assert [[min(each), max(each)] for each in ends] == [[0.0, 5.0], [10.0, 15.0]], "the interval of six values"

    places = [plots.bar_place(at, 0, 1) for at in range(2)]
    assert places == [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]


def test_bars_in_groups_are_where_bar_place_says(ax: Axes) -> None:
    groups = ["4", "8"]
    titles = ["Random", "Trade-off"]
    runs = RUNS.assign(tasks=RUNS["tasks"].astype(str))
    plots.bars(ax, runs, x="tasks", y="jct_s", hue="title", order=groups, hue_order=titles)
    drawn = [(bar.get_x(), bar.get_x() + bar.get_width()) for container in ax.containers for bar in container]
    expected = [plots.bar_place(group, system, 2) for system in range(2) for group in range(2)]
    assert np.array(drawn) == pytest.approx(np.array(expected))


def test_trends_go_through_the_medians_and_intervals_of_systems_lie_apart(ax: Axes) -> None:
    titles = ["Random", "Trade-off"]
    plots.trends(ax, RUNS, x="tasks", y="jct_s", hue="title", hue_order=titles)
    lines = {line.get_color(): line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() != "None"}
    random, trade_off = (lines[series_style(title).colour] for title in titles)
    assert random.get_ydata().tolist() == [12.0, 13.0]
    assert trade_off.get_ydata().tolist() == [2.0, 3.0]
    shift = trade_off.get_xdata() - random.get_xdata()
    assert (shift > 0).all()
    assert (shift < 4).all(), "numbers of tasks are 4 apart"
    assert ax.get_xticks().tolist() == [4, 8]


def test_smallest_text_is_that_in_print(ax: Axes) -> None:
    fig = ax.figure
    fig.set_size_inches(style.COLUMN_IN, 2)
    ax.set_xticks([0, 1], ["a", "b"])
    ax.text(0, 0, "small", fontsize=4)
    ax.text(0, 0, " ", fontsize=1)
    ax.text(0, 0, "hidden", fontsize=2, visible=False)
    assert style.smallest_text_pt(fig) == 4
    fig.set_size_inches(2 * style.PAGE_IN, 2)
    assert style.smallest_text_pt(fig) == 2


def test_the_caption_is_in_the_png_and_not_in_the_pdf(tmp_path: Path) -> None:
    with style.using():
        fig, _ = plt.subplots(figsize=(style.COLUMN_IN, 2), layout="constrained")
        preview = style.write_figure(fig, tmp_path, "one", "A caption of some lines. " * 9)
        height, width, _ = plt.imread(preview).shape
    assert width == int(style.COLUMN_IN * style.DPI)
    assert height > 2.3 * style.DPI
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", (tmp_path / "one.pdf").read_bytes())
    assert box
    assert [float(size) for size in box.groups()] == pytest.approx([72 * style.COLUMN_IN, 72 * 2], abs=0.5)


def test_save_writes_four_files_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ctx = context(tmp_path / name)
        with style.using():
            fig, ax = ctx.figure()
            ax.set_xticks([0, 1], ["a", "b"])
            preview = ctx.save(fig, "fig01_toy", data=FRAME, caption="a caption " * 20, rows="emulated")
        assert preview.path.is_file()
    for suffix in (".pdf", ".png", ".csv", ".json"):
        one, two = ((tmp_path / name / f"fig01_toy{suffix}").read_bytes() for name in ("one", "two"))
        assert one == two
        assert one
    assert b"Type3" not in (tmp_path / "one/fig01_toy.pdf").read_bytes()
    metadata = json.loads((tmp_path / "one/fig01_toy.json").read_text())
    assert metadata["provenance"] == {"emulated": 3}
    assert metadata["parameters"] == {"profile": "smoke", "seed": 3}
    assert metadata["caption"].startswith("A caption a caption")
    assert metadata["caption"].endswith(" Emulated (calibrated on published measurements).")
    assert metadata["smallest_text_pt"] == 6.5
    assert pd.read_csv(tmp_path / "one/fig01_toy.csv").equals(FRAME)


def test_each_kind_of_output_names_its_files_and_a_missing_one_is_found(tmp_path: Path) -> None:
    ctx, about = context(tmp_path), {"caption": "Rows.", "rows": "emulated"}

    def written() -> list[str]:
        assert missing_files("x01a_toy", tmp_path) == []
        found = sorted(path.suffix for path in tmp_path.iterdir())
        for path in tmp_path.iterdir():
            content = path.read_bytes()
            path.write_bytes(b"")
            if path.suffix != ".json":
                assert missing_files("x01a_toy", tmp_path) == [path.name]
            path.write_bytes(content)
        for path in tmp_path.iterdir():
            path.unlink()
        assert missing_files("x01a_toy", tmp_path) == ["x01a_toy.json"]
        return found

    ctx.data(FRAME, "x01a_toy", **about)
    assert written() == [".csv", ".json"]
    ctx.table(FRAME, "x01a_toy", shown=["gpu"], **about)
    assert "value" not in (tmp_path / "x01a_toy.md").read_text()
    assert written() == [".csv", ".json", ".md"]
    with style.using():
        ctx.save(ctx.figure()[0], "x01a_toy", data=FRAME, table=FRAME[:1], **about)
    assert len((tmp_path / "x01a_toy.md").read_text().splitlines()) == 7, "number, head, rule, row, caption, 2 gaps"
    assert written() == [".csv", ".json", ".md", ".pdf", ".png"]


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [("fig09_other", FRAME, "emulated"), ("fig01_toy", FRAME[:0], "emulated"), ("fig01_toy", FRAME, "invented")],
)
def test_save_refuses_an_undeclared_figure_empty_data_and_an_unknown_provenance(
    tmp_path: Path, name: str, data: pd.DataFrame, rows: str
) -> None:
    ctx = context(tmp_path / "out")
    fig, _ = ctx.figure()
    with pytest.raises(InputError):
        ctx.save(fig, name, data=data, caption="x", rows=rows)
    plt.close(fig)
    assert not (tmp_path / "out").exists()


def test_a_caption_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 60 words"):
        context(tmp_path).data(FRAME, "x01a_toy", caption="word " * 61, rows="emulated")


def test_wall_times_are_shown_and_not_written(tmp_path: Path) -> None:
    context(tmp_path).data(FRAME.assign(planning_s=1.0), "x01a_toy", caption="Rows.", rows="emulated")
    assert pd.read_csv(tmp_path / "x01a_toy.csv").equals(FRAME)


@pytest.mark.parametrize(("wide", "width"), [(False, 500), (True, 1050)])
def test_a_preview_is_shown_in_the_width_of_its_figure_in_print(tmp_path: Path, wide: bool, width: int) -> None:
    with style.using():
        ctx = context(tmp_path)
        fig, _ = ctx.figure(wide=wide)
        shown = ctx.save(fig, "fig01_toy", data=FRAME, caption="x", rows="emulated")
    assert shown._repr_png_()[1] == {"width": width}


@pytest.mark.parametrize("place", [0.5, 0.99])
def test_a_text_outside_the_page_of_a_pdf_is_found(tmp_path: Path, place: float) -> None:
    with style.using():
        fig = plt.figure(figsize=(3, 1))
        fig.text(place, 0.5, "inside (or not) µ")
        style.write_figure(fig, tmp_path, "one", "A caption.")
    assert texts_outside(tmp_path / "one.pdf") == ([] if place == 0.5 else ["inside (or not) µ"])
