"""Errors of the device model in figures: rows and their names, medians over laboratories."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt

from heshare.lab.calibration.measurements import table
from heshare.paper.studies import platform_errors

LABORATORIES = pd.DataFrame(
    {
        "laboratory": ["H100", "one/two", "three", "H100", "limits"],
        "quantity": ["time", "time", "time", "power", "limit"],
        "n": [4, 1000, 3, 4, 9],
        "bias_pct": -1.0,
        "mape_pct": [40.0, 20.0, 30.0, 12.0, 5.0],
        "median_pct": [44.0, 15.0, 10.0, 11.0, 4.0],
        "p90_pct": [90.0, 40.0, 50.0, 20.0, 9.0],
        "fitted_mape_pct": [4.0, 2.0, 3.0, 1.0, 0.5],
    }
)
ERRORS = LABORATORIES.iloc[[0, 3, 1]].assign(
    test=[platform_errors.HELD_OUT, platform_errors.HELD_OUT, "half of the settings"], sharing="shared"
)


def test_rows_of_laboratories() -> None:
    """A row for each laboratory and quantity, the smallest error first; its name has the number of measurements."""
    found = platform_errors.by_laboratory(LABORATORIES)
    assert found["name"].tolist() == [
        "limits, under a power limit (9)", "H100 (recorded here) (4)", "one/two (1,000)", "three (3)",
        "H100 (recorded here) (4)",
    ]  # fmt: skip
    assert platform_errors.points(LABORATORIES) == {"emulated": 1020, "measured": 8, "published": 1012}


def test_middle() -> None:
    """Medians over laboratories are of each measure by itself; times under a limit are apart."""
    found = platform_errors.middle(LABORATORIES)
    assert found.loc["time"].tolist() == [30.0, 15.0, 50.0]
    assert platform_errors.words(found.loc["time"]) == "30 % (mean; median 15, 90th percentile 50 %)"


def test_drawn() -> None:
    """Every row of a laboratory is drawn, times above and power below, with the goals."""
    rows = platform_errors.by_laboratory(LABORATORIES)
    figure, axes = plt.subplots(2, 1)
    platform_errors.draw(axes, rows, platform_errors.GOALS)

    names = [[label.get_text() for label in ax.get_yticklabels()] for ax in axes]
    is_power = rows["quantity"] == "power"
    assert names == [rows["name"][~is_power].tolist(), rows["name"][is_power].tolist()]
    plt.close(figure)


def test_committed_coverage() -> None:
    """Each committed group has a row; times come before power, tasks alone before shared ones."""
    coverage = table("coverage")
    rows = platform_errors.by_group(coverage)
    assert len(rows) == len(coverage)
    assert rows["name"].is_unique
    assert not rows["name"].isna().any()
    assert rows["quantity"].tolist() == sorted(rows["quantity"], reverse=True)
