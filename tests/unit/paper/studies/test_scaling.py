"""Figs. 8 to 11: ratios are paired by seed, and every policy has its row in every panel."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heshare.paper.figures.series_styles import PLACED
from heshare.paper.studies import scaling, variants

TITLES = (*scaling.SEVEN, f"Morak{PLACED}", "HeShare+ Trade-off")
FACTORS = dict(zip(TITLES, (2.0, 1.5, 1.0, 1.2, 0.8, 1.8, 1.6, 1.1, 0.7), strict=True))


def runs() -> pd.DataFrame:
    """Runs in which seeds differ by up to 100 times and every policy is a fixed factor from Trade-off."""
    rows = [
        {"Load": load, "Mix": mix, "repetition": seed, "title": title}
        | dict.fromkeys(variants.METRICS, 10.0**seed * factor)
        for load in ("low load", "high load")
        for mix in ("2xT4", "2xA100")
        for seed in range(3)
        for title, factor in FACTORS.items()
    ]
    return pd.DataFrame(rows)


def test_ratios_are_paired_by_seed_beside_the_absolute_medians() -> None:
    frame = scaling.ratios(runs(), ["Load", "Mix"])
    assert len(frame) == 4 * len(TITLES) * len(variants.METRICS)
    wanted = frame["title"].map(FACTORS).to_numpy()
    for column in ("ratio", "ratio_low", "ratio_high"):
        assert frame[column].to_numpy() == pytest.approx(wanted), "seeds differ by 100 times and their ratios do not"
    assert frame["median"].to_numpy() == pytest.approx(10 * wanted)


def test_panels_have_all_worlds_with_numbers_first_and_ticks_where_the_paper_puts_a_policy() -> None:
    by = ["Load", "Mix"]
    frame, total = scaling.ratios(runs(), by), scaling.overall(runs(), by)
    assert total["ratio"].to_numpy() == pytest.approx(total["title"].map(FACTORS).to_numpy())
    paper = {(scaling.ALL, "Morak"): ("G2", "Morak", "Trade-off"), ("low load", "Morak"): ("O3", "T4", "En-opt")}
    fig, axes = plt.subplots(1, 3)
    scaling.panels(axes, frame, total, variants.ENERGY, by=by, paper=paper)
    assert [ax.get_title() for ax in axes] == ["all together", "low load", "high load"]
    assert [text.get_text() for text in axes[0].texts] == [
        "+100 %",
        "+50 %",
        "+20 %",
        "-20 %",
        "+80 %",
        "+10 %",
        "+60 %",
    ]
    ticks = [[line.get_xdata()[0] for line in ax.lines if line.get_linewidth() == 1.4] for ax in axes]
    assert ticks == [[pytest.approx(1 / 0.8)], [pytest.approx(1.2 / 0.72)], []]
    words = scaling.seen(total.replace("Random", "μ-Serve" + PLACED), variants.ENERGY, paper)
    assert "44 % less energy than Morak (9 % less if placed like HeShare; the paper -20 %)" in words
    plt.close(fig)
