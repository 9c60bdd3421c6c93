"""Changes of a policy against another: paired by repetition, apart for each scenario, with the level of intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heshare as hs
from heshare.paper import harness
from heshare.shared.errors import InputError

JCT, ENERGY = "avg_jct_s", "energy_active_j"


@pytest.fixture
def table() -> pd.DataFrame:
    """Six repetitions of two policies on two clusters; `one` takes 20 % less time on T4 and 40 % less on A100."""
    rows = []
    for cluster, part in (("1xT4", 0.8), ("1xA100", 0.6)):
        for repetition in range(6):
            alone_s = 100.0 * (1 + repetition)
            for policy, jct_s in (("one", part * alone_s), ("other", alone_s)):
                about = {"cluster": cluster, "repetition": repetition, "policy": policy, "title": policy.title()}
                rows.append({**about, JCT: jct_s, ENERGY: 5.0, "waiting_s": 0.0})
    return pd.DataFrame(rows)


def test_scenarios(table: pd.DataFrame) -> None:
    """Scenarios are apart unless `by` says otherwise; then a repetition has their geometric mean."""
    found = hs.changes(table, "one", "other", JCT)
    assert found["cluster"].tolist() == ["1xT4", "1xA100"]
    assert found["change_pct"].tolist() == pytest.approx([-20, -40])
    assert (found[["n", "level_pct"]] == [6, 96.875]).all(axis=None)
    pooled = hs.changes(table, "One", "Other", [JCT, ENERGY], by=[])
    assert pooled["change_pct"].tolist() == pytest.approx([100 * (np.sqrt(0.8 * 0.6) - 1), 0])


def test_unequal_repetitions(table: pd.DataFrame) -> None:
    """Repetitions that one of them lacks, as after a Ctrl-C, are left out of both, and n and the level say so."""
    missing = (table["policy"] == "other") & (table["repetition"] > 2)
    found = hs.changes(table[~missing], "one", "other", JCT)
    assert found["change_pct"].tolist() == pytest.approx([-20, -40])
    assert (found[["n", "level_pct"]] == [3, 75]).all(axis=None)


def test_same_as_harness() -> None:
    """The changes of a comparison are those of the notebooks."""
    runs = hs.compare(3, "1xT4,1xA100", ["fifo", "sjf", "srtf"], seeds=3)
    mine = hs.changes(runs, ["SJF", "SRTF"], "FIFO")
    theirs = harness.changes(runs, ["SJF", "SRTF"], ["FIFO"], [ENERGY, JCT])
    pd.testing.assert_frame_equal(mine.drop(columns="level_pct"), theirs.drop(columns="provenance"))


WRONG: dict[str, Callable[[pd.DataFrame], Any]] = {
    "'onee'.*'one'\\?": lambda table: hs.changes(table, "onee", "other"),
    "other than theirs": lambda table: hs.changes(table, "one", "one"),
    "hs.compare": lambda table: hs.changes(table.drop(columns="policy"), "one", "other"),
    "no repetition of both": lambda table: hs.changes(
        table[(table["policy"] == "one") == (table["repetition"] > 2)], "one", "other", JCT
    ),
    "'jct_s'": lambda table: hs.changes(table, "one", "other", "jct_s"),
    "numbers above zero": lambda table: hs.changes(table, "one", "other", ["waiting_s"]),
    "numbers above": lambda table: hs.changes(table, "one", "other", "title"),
    "a run twice": lambda table: hs.changes(pd.concat([table, table]), "one", "other", JCT),
    "'load'": lambda table: hs.changes(table, "one", "other", JCT, by="load"),
    "found 3": lambda table: hs.changes(table, 3, "other"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("found", WRONG)
def test_wrong_arguments(found: str, table: pd.DataFrame) -> None:
    """A wrong argument is refused by its name."""
    with pytest.raises(InputError, match=found):
        WRONG[found](table)
