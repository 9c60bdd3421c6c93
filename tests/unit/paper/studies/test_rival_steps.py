"""The steps from one task at a time to Morak and μ-Serve in HeShare's comparison."""

from __future__ import annotations

import pandas as pd
import pytest

import heshare as hs
from heshare.paper.studies import rival_steps
from heshare.policies import registry


def test_changes_are_paired_with_one_at_a_time() -> None:
    rows = []
    for repetition in range(3):
        for place, policy in enumerate(rival_steps.STEPS.values()):
            factor = (1 + repetition) * (1 + place / 10)
            values = dict.fromkeys(rival_steps.METRICS, factor)
            rows.append({"repetition": repetition, "policy": registry.canonical(policy), **values})
    found = rival_steps.changes(pd.DataFrame(rows))
    assert found["title"].tolist() == list(rival_steps.STEPS)
    for short in rival_steps.METRICS.values():
        assert found[f"{short}_pct"].tolist() == pytest.approx([0, 10, 20, 30, 40, 50])
    assert (found["n"] == 3).all()


def test_order_of_arrival_changes_no_energy_and_morak_without_a_cap_ends_at_the_top_clock() -> None:
    runs = hs.compare(8, policies=list(rival_steps.STEPS.values()), seeds=2)
    found = rival_steps.changes(runs).set_index("title")
    assert found.loc[rival_steps.IN_ORDER, "energy_pct"] == pytest.approx(0, abs=1e-6)
    assert found.loc[rival_steps.TWO, "jct_pct"] < found.loc[rival_steps.MORAK, "jct_pct"]
    assert found.loc[rival_steps.MU_SERVE, "jct_pct"] > found.loc[rival_steps.TIGHT, "jct_pct"] > 0
