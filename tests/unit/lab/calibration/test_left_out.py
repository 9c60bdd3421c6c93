"""Errors on what was left out, and the intervals that follow from them, on made-up errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from heshare.devices.uncertainty import ALONE, CARD, CELL, NONE, SHARED
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
    """At least nine in ten of the errors of a laboratory are inside the interval of the others."""
    for draw in (lambda n: rng.normal(0.0, 0.3, n), lambda n: rng.laplace(0.1, 0.2, n)):
        frame = made_up(rng, 1.0, rows=4000, laboratories=40).assign(error=draw(4000))
        (row,) = left_out.coverage(frame).to_dict("records")
        assert row["within_90_pct"] == pytest.approx(90.0 * 41 / 40, abs=1.0)
        assert (row["n"], row["laboratories"]) == (4000, 40)
        inside = np.abs(frame["error"]) <= 0.5 * np.log(row["width"])
        assert inside.mean() == pytest.approx(0.9 * 41 / 40, abs=0.01)


def test_offsets_of_laboratories(rng: np.random.Generator):
    """A further laboratory is inside nine times in ten where each has a common error of its own and other rows."""
    inside = []
    for _ in range(150):
        sizes = rng.choice([3, 300], 12)
        names = np.repeat([f"lab {number}" for number in range(12)], sizes)
        errors = np.repeat(rng.normal(0.0, 0.4, 12), sizes) + rng.normal(0.0, 0.1, len(names))
        frame = made_up(rng, 1.0, rows=len(names)).assign(laboratory=names, error=errors)
        further = rng.normal(0.0, 0.4) + rng.normal(0.0, 0.1, 100)
        inside.append(np.mean(np.abs(further) <= left_out.half_width(frame, "time", CELL, ALONE)))
    assert 0.88 < np.mean(inside) < 0.97


def test_own_laboratory(rng: np.random.Generator):
    """A laboratory with errors of its own does not widen its own interval."""
    far = made_up(rng, 0.01, rows=40, laboratories=1).assign(laboratory="far", error=2.0)
    (row,) = left_out.coverage(pd.concat([made_up(rng, 0.1, rows=40), far], ignore_index=True)).to_dict("records")
    assert row["within_90_pct"] <= 50.0


def test_weights_of_laboratories():
    """Laboratories weigh the same, however many rows they have, and a further one is unbounded."""
    errors = {f"lab {number}": 0.1 * number for number in range(1, 20)}
    rows = [(name, error) for number, (name, error) in enumerate(errors.items()) for _ in range(1 + 40 * (number < 3))]
    frame = pd.DataFrame(rows, columns=["laboratory", "error"])
    frame = frame.assign(quantity="time", support=CELL, sharing=ALONE, weight=1.0)
    assert left_out.half_width(frame, "time", CELL, ALONE) == errors["lab 18"]  # the 0.9 x 20th of 19


def test_pools(rng: np.random.Generator):
    """A group of few laboratories takes in its support, then supports by fewer rows, never those by more."""
    few, many = left_out.LEAST_LABORATORIES - 1, left_out.LEAST_LABORATORIES
    cell = made_up(rng, 0.1, laboratories=few, support=CELL)
    card = made_up(rng, 0.3, laboratories=few, support=CARD, sharing=SHARED)
    none = made_up(rng, 1.0, laboratories=many, support=NONE)
    frame = pd.concat([cell, card, none], ignore_index=True)

    def half_width(support: str, sharing: str = ALONE) -> float:
        return left_out.half_width(frame, "time", support, sharing)

    assert half_width(NONE) == half_width(NONE, SHARED) == left_out._over_laboratories(none)
    assert half_width(CARD) == half_width(CARD, SHARED) == left_out._over_laboratories(pd.concat([card, none]))
    assert half_width(CELL) == left_out._over_laboratories(frame)

    more = made_up(rng, 0.3, laboratories=many, support=CELL, sharing=SHARED)
    frame = pd.concat([frame, more], ignore_index=True)
    assert half_width(CELL, SHARED) == left_out._over_laboratories(more)
    assert half_width(CELL) == left_out._over_laboratories(pd.concat([cell, more]))


def test_few_laboratories(rng: np.random.Generator):
    """With few laboratories of a quantity all groups have the largest 90 % quantile of a single one."""
    small = made_up(rng, 0.1, laboratories=4, support=CELL, sharing=SHARED)
    large = made_up(rng, 0.4, rows=50, laboratories=1, support=NONE).assign(laboratory="large")
    frame = pd.concat([small, large], ignore_index=True)
    expected = left_out.quantile(large["error"].to_numpy(), large["weight"].to_numpy())
    assert left_out.half_width(frame, "time", CELL, SHARED) == expected
    assert left_out.half_width(frame, "time", NONE, ALONE) == expected


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
