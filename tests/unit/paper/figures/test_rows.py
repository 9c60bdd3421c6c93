"""Rows of marks with intervals: one row a name, series under one another, names in the order of appearance."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from heshare.paper.figures.rows import effect_rows, interval_rows, paper_values

FRAME = pd.DataFrame(
    {
        "gpu": ["T4", "T4", "A100", "A100"],
        "system": ["Morak", "μ-Serve"] * 2,
        "x": [1.0, 2.0, 3.0, 4.0],
        "low": [0.5, 1.5, 2.5, 3.5],
        "high": [1.5, 2.5, 3.5, 4.5],
    }
)


def test_series_of_a_row_are_symmetric_about_it_with_their_own_intervals() -> None:
    figure, ax = plt.subplots()
    interval_rows(ax, FRAME, row="gpu", value="x", low="low", high="high", series="system")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["T4", "A100"]
    marks = {str(line.get_label()): line for line in ax.lines}
    assert np.allclose(marks["Morak"].get_xdata(), [1.0, 3.0])
    assert np.allclose(marks["Morak"].get_ydata() + marks["μ-Serve"].get_ydata(), [0.0, 2.0]), "symmetric"
    spans = np.concatenate([each.get_segments() for each in ax.collections])
    assert np.allclose(spans[:, :, 0], FRAME.sort_values("system")[["low", "high"]])
    assert ax.get_ylim() == (1.5, -0.5), "the first row is on top"
    plt.close(figure)


def test_without_series_a_row_has_one_mark_in_its_own_style() -> None:
    figure, ax = plt.subplots()
    rows = FRAME[FRAME["gpu"] == "T4"]
    interval_rows(ax, rows, row="system", value="x", low="low", high="high", names=False)
    assert [line.get_ydata()[0] for line in ax.lines] == [0.0, 1.0]
    assert len({line.get_color() for line in ax.lines}) == 2
    assert {label.get_text() for label in ax.get_yticklabels()} == {""}
    plt.close(figure)


def test_the_papers_value_is_in_the_row_of_its_claim() -> None:
    figure, ax = plt.subplots()
    paper_values(ax, FRAME.head(2), least="low", most="high")
    assert np.allclose([line.get_xdata() for line in ax.lines[:2]], FRAME.head(2)[["low", "high"]].T)
    assert all(np.allclose(line.get_ydata(), [0.0, 1.0]) for line in ax.lines[:2])
    plt.close(figure)


def test_rows_of_effects_have_a_line_at_no_change_and_their_numbers() -> None:
    changes = pd.DataFrame(
        {
            "ours": ["no placement", "no clocks"],
            "change_pct": [50.9, -0.04],
            "low_pct": [38.6, -1.0],
            "high_pct": [76.3, 1.0],
        }
    )
    figure, ax = plt.subplots()
    effect_rows(ax, changes, row="ours")
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["+51", "+0.0"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["no placement", "no clocks"]
    assert [0.0, 0.0] in [list(line.get_xdata()) for line in ax.lines]
    plt.close(figure)
