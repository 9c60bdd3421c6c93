"""Notebook 05_search: Fig. 7 and its table in a smoke run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest


def table(smoke_results: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(smoke_results / f"{name}.csv")


def test_changes_between_searches_follow_from_their_runs(smoke_results: Path) -> None:
    runs, changes = table(smoke_results, "x05d_runs"), table(smoke_results, "x05a_search")
    assert len(changes) == 12, "three rivals from two starts, as run and as predicted"
    for row in changes.to_dict("records"):
        wide = runs.pivot_table(index="repetition", columns="title", values=row["metric"])
        expected = (100 * (wide[row["ours"]] / wide[row["theirs"]] - 1)).median()
        assert row["change_pct"] == pytest.approx(expected, abs=1e-9)


def test_fronts_of_fig_7_fall_from_left_to_right(smoke_results: Path) -> None:
    fronts = table(smoke_results, "fig07_fronts")
    assert set(fronts["title"]) == {"HeShare", "SPEA2", "NSGA-II", "MOEA/D"}
    for _, front in fronts.groupby("title"):
        assert front["energy_j"].is_monotonic_increasing
        assert front["jct_s"].is_monotonic_decreasing


def test_lead_of_s1_is_the_least_over_rivals_that_begin_at_random(smoke_results: Path) -> None:
    changes = table(smoke_results, "x05a_search")
    at_random = changes[(changes["metric"] == "hypervolume") & ~changes["theirs"].str.endswith("start")]
    claims = table(smoke_results, "claims").set_index("id")
    assert claims.loc["S1", "value"] == pytest.approx(at_random["change_pct"].min())
