"""Figs. 8 to 11: ratios are paired by seed, and every policy has its row in every panel."""

from __future__ import annotations

import numpy as np
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
    frame = scaling.ratios(runs(), ["Load", "Mix"], np.random.default_rng(0))
    assert len(frame) == 4 * len(TITLES) * len(variants.METRICS)
    wanted = frame["title"].map(FACTORS).to_numpy()
    for column in ("ratio", "ratio_low", "ratio_high"):
        assert frame[column].to_numpy() == pytest.approx(wanted), "seeds differ by 100 times and their ratios do not"
    assert frame["median"].to_numpy() == pytest.approx(10 * wanted)


def test_panels_in_which_trade_off_is_wholly_below_or_above_are_counted() -> None:
    frame = scaling.ratios(runs(), ["Load", "Mix"], np.random.default_rng(0))
    found = scaling.panel_counts(frame, ["Load", "Mix"], variants.ENERGY)
    others = ("Random", "Sched-only", "En-opt", "Morak", "μ-Serve")
    assert found == {"count": 4, "above": dict.fromkeys(others, 4), "below": {"JCT-opt": 4}}
