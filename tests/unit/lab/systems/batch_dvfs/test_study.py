"""The figure of the study of BatchDVFS."""

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


def test_scatter_names_every_system_beside_its_point() -> None:
    figure, ax = plt.subplots()
    study.scatter(ax, GAINS)
    names = {text.get_text().replace("\n", " ") for text in ax.texts if text.get_text()}
    assert names == set(GAINS["title"])
    assert ax.get_legend() is None
    plt.close(figure)
