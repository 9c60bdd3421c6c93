"""Claims M1 to M7: their table of ratios has the inputs of every value, and the parts that hold or fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.claims import motivation_claims as claims
from heshare.paper.studies import motivation


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    return motivation.pairs(batch_size=8)


@pytest.fixture(scope="module")
def ratios(pairs: pd.DataFrame) -> pd.DataFrame:
    solo = motivation.solo(batch_sizes=[4, 8])
    clocks = motivation.clocks("resnet152", batch_sizes=[16, 32], points=6)
    return claims.ratios(solo, clocks, pairs)


def values(table: pd.DataFrame, measure: str, batch_size: str) -> pd.Series:
    rows = table[(table["measure"] == measure) & (table["batch_size"] == batch_size)]
    return rows.set_index("item")["value"]


def test_the_value_of_m1_follows_from_the_rows_beside_it(ratios: pd.DataFrame) -> None:
    energy = values(ratios, claims.ENERGY, "8")
    heavy, light = (energy[list(names)].mean() for names in (claims.HEAVY, claims.LIGHT))
    assert claims.energy_spread(ratios, 8)["measured"] == pytest.approx(heavy / light)
    solo = motivation.solo(batch_sizes=[8]).set_index(["workload", "gpu"])["energy_j"]["mobilenet"]
    assert energy["mobilenet"] == pytest.approx(solo.max() / solo.min())


def test_the_value_of_m5_is_the_mean_of_the_ranges(ratios: pd.DataFrame) -> None:
    ranges = [np.ptp(values(ratios, claims.ELASTICITY, size)) for size in ("16", "32")]
    found = claims.clock_effect(ratios)
    assert found["measured"] == pytest.approx(np.mean(ranges))
    assert (found["low"], found["high"]) == pytest.approx((min(ranges), max(ranges)))


def test_the_values_of_m6_and_m7_are_medians_of_the_rows_of_pairs(ratios: pd.DataFrame, pairs: pd.DataFrame) -> None:
    wide = pairs.pivot_table(index="pair", columns="gpu", values="degradation_pct")
    found = claims.pair_degradation(ratios, pairs)
    assert found["measured"] == pytest.approx((wide["T4"] - wide["A100"]).median())
    assert found["n"] == len(wide)
    assert claims.close_to_alone(ratios, pairs)["measured"] == pytest.approx(wide["A100"].median())


def test_pairs_are_close_to_alone_up_to_a_limit(ratios: pd.DataFrame) -> None:
    frame = pd.DataFrame({"gpu": ["A100", "A100", "T4"], "degradation_pct": [10.0, 30.0, 90.0]})
    assert list(claims.close_to_alone(ratios, frame)["holds"].values()) == [True]
    assert list(claims.close_to_alone(ratios, frame, most_pct=15.0)["holds"].values()) == [False]


def test_clock_effect_is_an_elasticity(pairs: pd.DataFrame) -> None:
    mhz = np.array([300, 600, 800, 1000])
    parts = [
        pd.DataFrame(
            {"batch_size": 16, "gpu": gpu, "requested_mhz": mhz, "sm_mhz": mhz, "time_s": mhz.astype(float) ** power}
        )
        for gpu, power in (("T4", 0.0), ("V100", -1.0), ("A100", -0.5))
    ]
    table = claims.ratios(motivation.solo(batch_sizes=[8]), pd.concat(parts), pairs)
    found = claims.clock_effect(table)
    assert found["measured"] == pytest.approx(1.0)
    assert all(found["holds"].values())
    assert "T4 -0.00" in found["note"] or "T4 0.00" in found["note"]
