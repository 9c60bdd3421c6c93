"""Rows of `make bench`: intervals, targets, and what counts as worse than the last result."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def rows() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("bench_rows", BENCHMARKS / "bench_rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_rows"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bench_rows"]


def test_interval(rows: Any) -> None:
    """The interval is that of the sample's median."""
    row = rows.with_spread(rows.sample_row("speed_vs_moead", [30.0, 36.0, 33.0, 35.0, 34.0]))
    assert row["value"] == 34.0
    assert 30.0 <= row["low"] <= 34.0 <= row["high"] <= 36.0
    assert "low" not in rows.with_spread(rows.single_row("loop_exponent", 1.0))
    assert "low" not in rows.with_spread({**rows.sample_row("gap_bound_pct_largest", [0.1, 0.2, 0.4]), "value": 0.4})


@pytest.mark.parametrize(
    ("name", "now", "before", "worse"),
    [
        ("speed_vs_moead", [20.0] * 5, [35.0] * 5, True),
        ("speed_vs_moead", [40.0] * 5, [35.0] * 5, False),
        ("speed_vs_moead", [34.0, 36.0] * 3, [35.0, 37.0] * 3, False),
        ("gap_bound_pct_largest", [0.6], [0.5], True),
        ("gap_bound_pct_largest", [0.52], [0.5], False),
        ("gap_bound_pct_largest", [0.1], [0.5], False),
    ],
)
def test_worse(rows: Any, name: str, now: list[float], before: list[float], worse: bool) -> None:
    """A value is worse if it differs by more than the spread."""
    ours, theirs = (rows.with_spread(rows.sample_row(name, values)) for values in (now, before))
    assert rows.worse(ours, theirs) is worse
    assert not rows.worse(ours, None)
    lines = rows.table([ours], {name: theirs})
    assert ("WORSE" in lines[1]) is worse
    assert ("MISSED" in lines[1]) is not rows.targets()[name].met(ours["value"])
