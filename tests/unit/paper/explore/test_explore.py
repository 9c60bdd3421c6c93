"""`hs.explore`: predicted timelines, boxes of runs, the page of a front."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import heshare as hs
from heshare.paper.explore import front_page
from heshare.paper.explore.timeline_boxes import differs, predicted_timelines, run_boxes
from heshare.prediction.load import load_predictor
from heshare.shared.errors import InputError

CLUSTER = "1xT4,1xV100,1xA100"


@pytest.fixture(scope="module")
def front() -> hs.Front:
    return hs.plan(hs.task_set(8, seed=3), CLUSTER, seed=0)


def data_of(html: str) -> dict:
    return json.loads(html.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def test_predicted_timelines(front: hs.Front) -> None:
    """Predicted timelines give the plan's own average JCT."""
    for plan, timeline in zip(front, predicted_timelines(front.plans, load_predictor()), strict=True):
        assert timeline["end_s"].mean() == pytest.approx(plan.jct_s, rel=1e-9)
        assert (timeline["end_s"] <= timeline["batch_end_s"] + 1e-9).all()
        assert (timeline["lane"] < timeline["lanes"]).all()


def test_task_differs(front: hs.Front) -> None:
    """A task differs where its GPU, batch, MPS percentage or SM clock differs."""
    (one,) = predicted_timelines([front[0]], load_predictor())
    assert not differs(one, one.iloc[::-1]).any()
    for column, task in (("gpu", 2), ("batch", 3), ("mps_pct", 4), ("sm_mhz", 5)):
        other = one.copy()
        row = other.index[other["task"] == task]
        other.loc[row, column] = "none" if column == "gpu" else 7
        assert other.loc[differs(other, one), "task"].tolist() == [task]


def test_run_boxes() -> None:
    """Boxes of a run are its intervals, and strips are its clocks without idle time."""
    done = hs.run(hs.task_set(4, seed=0), "1xT4,1xA100", "fifo")
    tasks, clocks = run_boxes([done, done])
    first = tasks[tasks["plan"] == 0]
    assert sorted(first["task"]) == [0, 1, 2, 3]
    assert first["end_s"].mean() == pytest.approx(done.avg_jct_s, abs=0.1)
    assert first["bottom"].max() < len(done.cluster)
    assert (tasks["plan"] == 1).sum() == len(first)
    busy_s = {row: part["end_s"].max() for row, part in first.groupby(first["top"].astype(int))}
    of_first = clocks[clocks["plan"] == 0]
    strips_s = {row: part["end_s"].max() for row, part in of_first.groupby(of_first["top"].astype(int))}
    assert strips_s == busy_s


@pytest.mark.slow
def test_same_bytes(front: hs.Front, tmp_path: Path) -> None:
    """`explore` writes the same bytes twice, and a page that loads nothing."""
    page = hs.explore(front, tmp_path / "front.html")
    assert (tmp_path / "front.html").read_text("utf-8") == page.html == hs.explore(front).html
    assert 'src="' not in page.html.split("<script")[0]
    assert "<iframe" in page._repr_html_()


def test_plans_on_page(front: hs.Front) -> None:
    """The page has each plan with its timeline."""
    front = front[:4]
    data = data_of(hs.explore(front).html)
    assert list(map(int, data["about"])) == list(range(len(front)))
    tasks = pd.DataFrame(data["timeline"]["datasets"]["tasks"])
    assert (tasks["begin_s"] < tasks["end_s"]).all()
    for index, rows in tasks.groupby("plan"):
        assert rows["end_s"].mean() == pytest.approx(front[int(index)].jct_s, abs=0.1)
    (reference,) = (int(index) for index, text in data["about"].items() if ", Trade-off" in text)
    assert front[reference] == front.trade_off
    assert not tasks.loc[tasks["plan"] == reference, "differs"].any()
    assert tasks.loc[tasks["plan"] != reference, "differs"].any()


def test_large_front(front: hs.Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large front some plans are shown, among them the named ones."""
    monkeypatch.setattr("heshare.paper.explore.front_page.MOST_PLANS", 7)
    html = hs.explore(front).html
    shown = set(map(int, data_of(html)["about"]))
    assert len(shown) <= 7 < len(front)
    named = front.to_frame().query("choice != ''").index
    assert set(named) <= shown


def test_runs_on_page(front: hs.Front) -> None:
    """The page shows runs of other policies, and a link home."""
    runs = {title: hs.run(front[0].tasks, CLUSTER, title) for title in ("random", "fifo")}
    html = hs.explore(front, runs=runs, home="index.html").html
    data = data_of(html)
    assert '<a href="index.html">' in html
    assert len(data["run_about"]) == 2
    boxes = pd.DataFrame(data["runs"]["datasets"]["tasks"])
    for place, done in enumerate(runs.values()):
        assert boxes.loc[boxes["plan"] == place, "end_s"].mean() == pytest.approx(done.avg_jct_s, abs=0.1)


def test_other_tasks(front: hs.Front) -> None:
    """Runs of other tasks are refused."""
    with pytest.raises(InputError, match="runs of the tasks and GPUs of the front"):
        hs.explore(front, runs={"fifo": hs.run(3, CLUSTER, "fifo")})


def test_escaped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text of the data ends or opens a script of the page."""
    monkeypatch.setattr(front_page, "_vega", lambda: "")
    evil = {"about": {"0": "<!--<script></script>"}}
    html = front_page._html("t", evil)
    assert data_of(html) == evil
    assert "<!--<script" not in html
