"""Figures of language models: a named point a policy, and a row of changes a policy."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd

from heshare.paper.figures import language_panels

MEDIANS = pd.DataFrame(
    [
        {"title": title, "metric": metric, "median": value, "low": 0.9 * value, "high": 1.1 * value}
        for title, both in {"SRTF": (1.0, 0.5), "Marginal": (10.0, 0.4)}.items()
        for metric, value in zip(("ttft_s", "token_j"), both, strict=True)
    ]
)


def test_a_plane_has_a_named_point_for_each_policy() -> None:
    figure, ax = plt.subplots()
    language_panels.plane(ax, MEDIANS, "ttft_s", xlabel="Time (s)", ylabel="Energy (J)", log=True)
    points = {tuple(line.get_xydata()[0].tolist()) for line in ax.lines if len(line.get_xdata()) == 1}
    assert points == {(1.0, 0.5), (10.0, 0.4)}
    assert {"SRTF", "Marginal"} <= {text.get_text() for text in ax.texts}
    plt.close(figure)


def test_changes_have_a_row_for_each_policy_and_a_mark_for_each_number_of_tasks() -> None:
    rows = [
        {"title": title, "images": images, "change_pct": -10.0 * images, "low_pct": -60.0, "high_pct": 5.0}
        for title in ("Morak", "EaCO")
        for images in (1, 2)
    ]
    figure, ax = plt.subplots()
    language_panels.changes(ax, pd.DataFrame(rows), series="images", label="Energy (%)", names=True)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["Morak", "EaCO"]
    assert ax.get_legend_handles_labels()[1] == ["1", "2"]
    plt.close(figure)
