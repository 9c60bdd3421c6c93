"""Errors on what was left out, and the intervals that follow from them, on made-up errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from heshare.devices.uncertainty import ALONE, CARD, CELL, NONE, NORMAL_90, SHARED
from heshare.lab.calibration import left_out
from heshare.lab.calibration.observations import Observation, Task, networks
from heshare.world import catalogue


def made_up(rng: np.random.Generator, spread: float, rows: int = 400, laboratories: int = 8, **words) -> pd.DataFrame:
    """Normal errors of laboratories with equal weights."""
    frame = {"quantity": "time", "support": CELL, "sharing": ALONE, **words}
    names = [f"lab {number % laboratories}" for number in range(rows)]
    return pd.DataFrame({"laboratory": names, "error": rng.normal(0.0, spread, rows), "weight": 1.0, **frame})


def every_group(rng: np.random.Generator, spread: float, **options) -> pd.DataFrame:
    parts = [
        made_up(rng, spread, quantity=quantity, support=support, sharing=sharing, **options)
        for quantity in ("time", "power")
        for support in (CELL, CARD, NONE)
        for sharing in (ALONE, SHARED)
    ]
    return pd.concat([*parts, made_up(rng, 0.05, quantity="limit")], ignore_index=True)


def test_quantile():
    """The quantile is of absolute errors, and counts weights."""
    errors = np.array([0.1, -0.5, 0.3, -0.2])
    assert left_out.quantile(errors, np.ones(4), 0.5) == 0.2
    assert left_out.quantile(errors, np.ones(4), 1.0) == 0.5
    assert left_out.quantile(errors, np.array([1.0, 9.0, 1.0, 1.0]), 0.5) == 0.5
    assert left_out.quantile(errors, np.array([1.0, 0.0, 1.0, 1.0]), 1.0) == 0.3
    assert left_out.quantile(errors, 7.0 * np.ones(4)) == left_out.quantile(errors, np.ones(4))


def test_normal_errors(rng: np.random.Generator):
    """The spread of normal errors is their standard deviation."""
    found = left_out.intervals(every_group(rng, 0.2, rows=2000), every_group(rng, 0.1, rows=2000))
    for quantity in ("time", "power"):
        for support in (CELL, CARD, NONE):
            assert found[quantity, support, ALONE].total == pytest.approx(0.2, rel=0.1)
            assert found[quantity, support, ALONE].within_framework == pytest.approx(0.1, rel=0.1)
    assert found["limit", "", ""].total == pytest.approx(0.05, rel=0.15)
    assert found["slowdown", "", "mps"].total == found["time", CELL, SHARED].within_framework


def test_coverage(rng: np.random.Generator):
    """Nine in ten of the errors of a laboratory are inside the interval of the others, whatever their distribution."""
    for draw in (lambda n: rng.normal(0.0, 0.3, n), lambda n: rng.laplace(0.1, 0.2, n)):
        frame = made_up(rng, 1.0, rows=4000).assign(error=draw(4000))
        (row,) = left_out.coverage(frame).to_dict("records")
        assert row["within_90_pct"] == pytest.approx(90.0, abs=2.0)
        assert (row["n"], row["laboratories"]) == (4000, 8)
        inside = np.abs(frame["error"]) <= 0.5 * np.log(row["width"])
        assert inside.mean() == pytest.approx(0.9, abs=0.01)


def test_own_laboratory(rng: np.random.Generator):
    """A laboratory with errors of its own does not widen its own interval."""
    far = made_up(rng, 0.01, rows=40, laboratories=1).assign(laboratory="far", error=2.0)
    (row,) = left_out.coverage(pd.concat([made_up(rng, 0.1, rows=40), far], ignore_index=True)).to_dict("records")
    assert row["within_90_pct"] <= 50.0


def test_small_groups(rng: np.random.Generator):
    """A group with few rows takes that of all supports, then of all sharings."""
    few = left_out.LEAST_ROWS - 1
    parts = [made_up(rng, 0.1, rows=500, support=CELL), made_up(rng, 3.0, rows=few, support=NONE)]
    frame = pd.concat([*parts, made_up(rng, 5.0, rows=few, sharing=SHARED)], ignore_index=True)
    alone = frame[frame["sharing"] == ALONE]

    def spread(part: pd.DataFrame) -> float:
        return left_out.quantile(part["error"].to_numpy(), part["weight"].to_numpy()) / NORMAL_90

    assert left_out._spread(frame, "time", CELL, ALONE) == spread(alone[alone["support"] == CELL])
    assert left_out._spread(frame, "time", NONE, ALONE) == spread(alone)
    assert left_out._spread(frame, "time", CELL, SHARED) == spread(frame)


def test_never_narrower(rng: np.random.Generator):
    """An interval against any laboratory is never narrower than one inside a record."""
    found = left_out.intervals(every_group(rng, 0.01), every_group(rng, 0.3))
    assert all(one.total >= one.within_framework for one in found.values())


def test_supports():
    """An estimate is judged by the rows that stay."""
    both = networks()["resnet50"], networks()["vgg16"]
    first, second = (Observation("lab|p", catalogue.gpu("T4"), "eager", "fp32", (Task(one, 8, 1.0),), "alone")
                     for one in both)  # fmt: skip
    shared = replace(first, tasks=(*first.tasks, *second.tasks))
    elsewhere = replace(first, gpu=catalogue.gpu("V100"))
    half = replace(first, precision="fp16")
    rows = [first, second, shared, elsewhere, half]
    every = np.ones(len(rows), dtype=bool)
    assert left_out.supports([first], rows, every) == [CELL, CARD, CARD, NONE, NONE]
    assert left_out.supports([first, second, half], rows, every) == [CELL, CELL, CELL, NONE, CELL]
    assert left_out.supports([], rows, np.array([True, False, False, False, True])) == [NONE, NONE]


def test_errors_by():
    """Errors of a group are relative: bias, mean, median and 90th percentile."""
    ratios = np.array([1.1, 0.9, 1.2, 1.0])
    frame = pd.DataFrame({"group": ["a"] * 4, "error": np.log(ratios)})
    (row,) = left_out.errors_by(frame, ["group"]).to_dict("records")
    assert row["n"] == 4
    assert (row["bias_pct"], row["mape_pct"], row["median_pct"]) == pytest.approx((5.0, 10.0, 10.0))
    assert row["p90_pct"] == pytest.approx(np.quantile([10, 10, 20, 0], 0.9))
