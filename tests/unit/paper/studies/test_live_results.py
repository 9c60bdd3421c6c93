"""Tables of a live comparison: errors, and what the simulator charged for starts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from heshare.paper.studies import live_results
from heshare.paper.studies.live_results import ENERGY, JCT


def values(jct_s, energy_j):
    return SimpleNamespace(avg_jct_s=jct_s, makespan_s=2 * jct_s, energy_active_j=energy_j, energy_cluster_j=energy_j)


TRIAL = SimpleNamespace(
    measured={"random": values(10.0, 100.0)},
    simulated={"fitted": {"random": values(11.0, 95.0)}, "shipped": {"random": values(12.0, 80.0)}},
    without_loading={"random": values(8.0, 70.0)},
)


def test_comparison():
    """Errors are relative to what was measured; starts are charged the difference to a simulation without them."""
    rows = live_results.comparison(TRIAL).set_index("quantity")
    assert rows.loc[JCT, ["measured", "fitted", "charged_for_starts"]].tolist() == [10.0, 11.0, 3.0]
    assert rows.loc[JCT, ["fitted_error_pct", "shipped_error_pct"]].tolist() == pytest.approx([10.0, 20.0])
    assert rows.loc[ENERGY, ["fitted_error_pct", "charged_for_starts"]].tolist() == pytest.approx([-5.0, 25.0])
    assert live_results.worst(rows.reset_index(), "shipped", "energy") == pytest.approx(20.0)


def test_beside():
    """A policy has one row, with average JCT and active energy."""
    table = live_results.beside(live_results.comparison(TRIAL))
    assert list(table.columns)[1:5] == ["JCT measured (s)", "simulated (s)", "JCT error (%)", "for starts (s)"]
    assert table.to_numpy().tolist() == [["Random", 10.0, 11.0, pytest.approx(10.0), 3.0, 100.0, 95.0,
                                          pytest.approx(-5.0), 25.0]]  # fmt: skip


def test_of_record(tmp_path):
    """A record belongs to the live comparison in whose folder it lies."""
    table = tmp_path / "2xH100" / "profiles" / "H100" / "profile.csv"
    assert live_results.of_record(table) is None
    table.parent.mkdir(parents=True)
    live_results.comparison(TRIAL).to_csv(tmp_path / "2xH100" / "comparison.csv")
    (tmp_path / "2xH100" / live_results.MANIFEST).write_text(json.dumps({"stand_in": False}))
    found = live_results.of_record(table)
    assert found is not None
    assert found.kind == "measured"
    assert found.tables["comparison"].loc[0, "charged_for_starts"] == 3.0
    assert live_results.of_record(tmp_path / "2xH100" / "measured" / "H100" / "profile.csv") is None
