"""The harness: settings, the same tasks for every system, paired changes over settings and repetitions."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import harness
from heshare.paper.harness import ENERGY, JCT, Setting

SMALL = Setting(cluster="1xT4,1xA100", tasks=3)


def test_same_tasks() -> None:
    """Every system of a repetition gets the tasks of that repetition."""
    runs = harness.run(SMALL, {"Random": "random", "SJF": "sjf"}, seeds=2, seed=5)
    assert runs[["repetition", "title"]].to_numpy().tolist() == [[0, "Random"], [0, "SJF"], [1, "Random"], [1, "SJF"]]
    assert (runs["cluster"] == "1xT4,1xA100").all()
    assert runs.equals(harness.run(SMALL, {"Random": "random", "SJF": "sjf"}, seeds=2, seed=5).assign(
        planning_s=runs["planning_s"]
    ))  # fmt: skip

    first = Repetition(0, 5).rng(0)
    drawn = SMALL.draw(rng=first)
    assert len(drawn) == 3
    assert {task.arrival_s for task in drawn} == {0.0}


def test_paired_change() -> None:
    """A change pairs repetitions and averages settings."""
    values = {("A", 0): (2.0, 8.0), ("B", 0): (4.0, 16.0), ("A", 1): (3.0, 3.0), ("B", 1): (3.0, 3.0)}
    rows = [
        {"title": title, "repetition": number, "tasks": tasks, JCT: value, ENERGY: 1.0}
        for (title, number), both in values.items()
        for tasks, value in zip((4, 8), both, strict=True)
    ]
    runs = pd.DataFrame(rows)
    assert harness.seed_means(runs, JCT).loc[0].tolist() == pytest.approx([4.0, 8.0])
    size = harness.change(runs, "A", "B", JCT)
    assert (size.value, size.low, size.high, size.n) == pytest.approx((-25.0, -50.0, 0.0, 2))

    table = harness.changes(runs, ["A"], ["A", "B"], [JCT, ENERGY], by=["tasks"])
    assert table[["tasks", "metric", "change_pct"]].to_numpy().tolist() == [
        [4, JCT, -25.0], [4, ENERGY, 0.0], [8, JCT, -25.0], [8, ENERGY, 0.0]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"), [(-18.4, "18 % less"), (2.6, "3 % more"), (0.3, "0 % less"), (-0.3, "0 % less")]
)
def test_change_in_words(value: float, words: str) -> None:
    """A change in words has no sign."""
    assert harness.less_or_more(ConfidenceInterval(value, value, value, 1)) == words


def test_sizes_in_words() -> None:
    """One inference batch size is in the singular."""
    assert harness.sizes_in_words([8]) == "inference batch size 8"
    assert harness.sizes_in_words([4, 8]) == "inference batch sizes 4 and 8"


def test_medians() -> None:
    """Medians have a row for each system and metric."""
    runs = pd.DataFrame({"title": ["A"] * 3, "repetition": range(3), JCT: [1.0, 2.0, 9.0]})
    assert harness.medians(runs, [JCT])[["title", "metric", "median", "n"]].to_numpy().tolist() == [["A", JCT, 2.0, 3]]


def test_paired_ratios() -> None:
    """Ratios are paired by repetition and case."""
    rows = [(0, "A", "x", 2.0), (0, "A", "y", 9.0), (0, "B", "y", 3.0), (0, "B", "x", 4.0)]
    runs = pd.DataFrame(rows, columns=["repetition", "title", "network", "rate"])
    found = harness.ratios(runs, "A", "B", "rate", ["network"])
    assert found.to_dict() == {(0, "x"): 0.5, (0, "y"): 3.0}


def test_start_cost() -> None:
    """A start cost delays every task; measures are further columns."""
    measures = {"longest_s": lambda run: float(run.execution_s.max())}
    free, costly = (
        harness.run(SMALL, {"FIFO": "fifo"}, seeds=1, measures=measures, start_cost_s=cost_s) for cost_s in (0.0, 10.0)
    )
    assert (costly["longest_s"] - free["longest_s"]).item() == pytest.approx(10.0)
