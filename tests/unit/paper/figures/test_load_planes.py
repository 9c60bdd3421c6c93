"""Planes at several loads: systems that no other dominates have names, the others are dots."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd

from heshare.paper.figures import comparison_plane, load_planes
from heshare.paper.harness import ENERGY, JCT

POINTS = {
    "FIFO": (9.0, 9.0),
    "SJF": (2.0, 8.1),
    "EaCO": (2.0, 2.1),
    "Random": (10.0, 10.0),
    "Marginal, 30 W": (1.0, 8.0),
    "Marginal": (1.9, 2.0),
}
MEDIANS = pd.DataFrame(
    [
        {"load": load, "title": title, "metric": metric, "median": value, "low": 0.9 * value, "high": 1.1 * value}
        for load in (0.3, 1.2)
        for title, both in POINTS.items()
        for metric, value in zip((ENERGY, JCT), both, strict=True)
    ]
)


def test_a_system_that_no_other_is_better_than_in_both_is_not_dominated() -> None:
    points = comparison_plane.points(MEDIANS[MEDIANS["load"] == 0.3])
    assert load_planes.not_dominated(points) == ["Marginal, 30 W", "Marginal"]


def test_systems_not_dominated_and_those_named_have_marks_and_the_others_are_dots() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    load_planes.draw(axes, MEDIANS, named=["EaCO"])
    marks = {"Marginal, 30 W", "Marginal", "EaCO"}
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert names == marks | {"no system is better in both", "all others"}
    dots = next(line for line in axes[1].lines if line.get_label() == "all others")
    assert len(dots.get_xydata()) == len(POINTS) - len(marks)
    assert [ax.get_title(loc="left") for ax in axes] == ["Load 0.3", "Load 1.2"]
    plt.close(figure)
