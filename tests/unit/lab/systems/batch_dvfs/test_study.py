"""The study of BatchDVFS: the sentence of its figure, and the figure."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd

from heshare.paper.studies.systems import batch_dvfs_study as study

GAINS = pd.DataFrame(
    {
        "title": ["BatchDVFS", "Clock alone, batch of 32", "Clipper"],
        "ratio": [1.0, 0.8, 0.9],
        "low": [1.0, 0.7, 0.8],
        "high": [1.0, 0.9, 1.0],
        "above_pct": [8.0, 4.0, 50.0],
    }
)


def test_seen_names_what_is_faster_and_less_above_the_cap() -> None:
    found = study.seen(GAINS)
    assert found.startswith("Clock alone, batch of 32 is 1.25 times as fast")
    assert "4.0 % of the time (BatchDVFS: 8.0 %)" in found
    assert "Clipper" not in found
    assert study.seen(GAINS[GAINS["title"] != "Clock alone, batch of 32"]).startswith("No system is both faster")


def test_scatter_names_every_system_beside_its_point() -> None:
    figure, ax = plt.subplots()
    study.scatter(ax, GAINS)
    names = {text.get_text().replace("\n", " ") for text in ax.texts if text.get_text()}
    assert names == set(GAINS["title"])
    assert ax.get_legend() is None
    plt.close(figure)
