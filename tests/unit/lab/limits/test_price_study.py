"""The study of money against JCT: its rows add up, and waiting saves money."""

from __future__ import annotations

import pytest

from heshare.paper.studies.limits.price_study import AT_ONCE, CHEAPEST, SAVING, day_price, price_runs, savings


def test_waiting_saves_money_and_costs_jct() -> None:
    runs = price_runs(
        tasks=4,
        cluster="1xT4,1xA100",
        policies=("heshare:trade-off", "sjf"),
        savings_pct=(10.0, 0.0),
        holds_h=(2.0, 8.0),
        start_hours=(6.0, 17.0),
        seeds=2,
    )
    assert len(runs) == 2 * 2 * (2 * 3 + 2)  # the cheapest hour under the first policy only
    assert (runs["cost_period"] >= runs["cost_cluster"] - 1e-12).all()
    found = savings(runs).set_index(["title", "rule", "setting"]).sort_index()
    for title in ("Trade-off", "SJF"):
        assert found.loc[(title, AT_ONCE, 0.0), ["saved_pct", "added_jct_h"]].tolist() == [0.0, 0.0]
        longest = found.loc[(title, SAVING, 0.0)]
        assert longest["saved_pct"] >= found.loc[(title, SAVING, 10.0), "saved_pct"] > 0
        assert (found.loc[title, "added_jct_h"] <= 8.0 + 1e-6).all()
    first = found.loc["Trade-off", "saved_pct"]
    assert first[SAVING, 0.0] >= first[CHEAPEST, 8.0] - 1.0


def test_the_shipped_day_has_a_low_at_noon_and_a_peak_in_the_evening() -> None:
    price = day_price()
    hours = [price.at(3_600.0 * hour) for hour in range(24)]
    assert hours.index(min(hours)) == 12
    assert hours.index(max(hours)) == 19
    assert price.at(86_400.0) == pytest.approx(hours[0])
