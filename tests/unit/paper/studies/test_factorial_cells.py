"""Cells of the factorial from runs: which policy enters which cell, how many numbers hold, and what an axis moves."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from heshare.paper.claims.factorial import AXES, SHIPPED
from heshare.paper.claims.fig6_numbers import NUMBERS
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.harness import ENERGY, JCT
from heshare.paper.studies import factorial_cells

QUEUEING = {
    "queueing": {"Random": "Random", "Sched-only": "Sched-only"},
    "all at once": {"Random": "Random, all at once", "Sched-only": "Sched-only"},
}
THROTTLE = {
    "cap 0.8, limit 1.5": {"Morak": "Morak", "μ-Serve": "μ-Serve"},
    "cap 1.0, limit 1.2": {"Morak": "Morak, cap 1.0", "μ-Serve": "μ-Serve"},
}
VALUES = {
    "Trade-off": 74.0, "En-opt": 70.0, "JCT-opt": 80.0, "Sched-only": 90.0, "Random": 200.0,
    "Random, all at once": 100.0, "Morak": 148.0, "Morak, cap 1.0": 100.0, "μ-Serve": 100.0,
}  # fmt: skip


@pytest.fixture
def runs() -> pd.DataFrame:
    """Return runs in which every policy takes the same in both metrics, and all more where tasks are equal."""
    rows = []
    for durations, number in product(("helios", "equal"), range(2)):
        setting = {"durations": durations, "platform": "as fitted", "batch_sizes": "4+8", "repetition": number}
        more = 2.0 if durations == "equal" else 1.0
        rows += [{**setting, "title": title, ENERGY: value, JCT: more * value} for title, value in VALUES.items()]
    return pd.DataFrame(rows)


def test_policies_of_cell(runs: pd.DataFrame) -> None:
    """A cell has the policies of its levels."""
    table = factorial_cells.cells(runs, QUEUEING, THROTTLE)
    assert len(table) == 2 * 2 * 2 * len(NUMBERS)
    values = table.set_index([*AXES, "id", "part"])["value"]
    shipped = tuple(SHIPPED.values())
    assert values[(*shipped, "H1", "energy")] == pytest.approx(-50.0)
    assert values[(*shipped, "H3", "Random")] == pytest.approx(-65.0)

    light = values.xs("cap 1.0, limit 1.2", level="throttle").xs("all at once", level="queueing")
    assert set(light.xs("H1", level="id").round(6)) == {-26.0}
    assert set(light.xs("Random", level="part").xs("H3", level="id").round(6)) == {-30.0}


def test_counts(runs: pd.DataFrame) -> None:
    """A cell counts the medians that are near the paper's; the cell with most is first."""
    table = factorial_cells.cells(runs, QUEUEING, THROTTLE)
    found = factorial_cells.counts(table)
    assert found["held"].is_monotonic_decreasing
    assert found["shipped"].sum() == 2 * 2 * 2 / 8
    best = found.iloc[0]
    assert (best["queueing"], best["throttle"]) == ("all at once", "cap 1.0, limit 1.2")

    own = table[(table[list(AXES)] == best[list(AXES)]).all(axis=1)]
    near = [
        abs(row["value"] - paper_claims()[row["id"], row["part"]].value)
        <= 0.25 * -paper_claims()[row["id"], row["part"]].value
        for row in own.to_dict("records")
    ]
    assert best["held"] == sum(near)


def test_effects(runs: pd.DataFrame) -> None:
    """An effect is the change between cells that differ in one axis."""
    found = factorial_cells.effects(factorial_cells.cells(runs, QUEUEING, THROTTLE))
    changes = found.set_index(["id", "part", "axis"])["change"]
    assert changes["H1", "energy", "throttle"] == pytest.approx(24.0)
    assert changes["H1", "energy", "durations"] == pytest.approx(0.0)
    assert changes["H3", "Random", "queueing"] == pytest.approx(35.0)
    assert ("H1", "energy", "queueing") not in changes.index


def test_h5(runs: pd.DataFrame) -> None:
    """H5 holds only where Random is the worst."""
    found = factorial_cells.h5_holds(runs, QUEUEING, THROTTLE).set_index(["queueing", "throttle"])["h5"]
    assert found["queueing", "cap 0.8, limit 1.5"].all()
    assert not found["all at once", "cap 0.8, limit 1.5"].any()
