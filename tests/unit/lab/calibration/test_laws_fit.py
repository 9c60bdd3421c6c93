"""Laws of GPUs and networks fitted to the records that compare several, and to made-up data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heshare.devices.constants import Power
from heshare.lab.calibration.laws_fit import (
    FeatureRows,
    comparisons,
    fit_law,
    fit_power_law,
    fit_speed_laws,
    left_out,
    left_out_errors,
    pooled_spread,
    speed_spread,
)
from heshare.world import catalogue

TIMED = frozenset({"T4", "V100", "V100-SXM2", "A100"})


def test_comparisons():
    """Comparisons have each GPU once and never alone."""
    rows = comparisons()
    keys = ["kind", "precision", "record", "workload"]
    assert not rows.duplicated([*keys, "gpu"]).any()
    assert (rows.groupby(keys).gpu.size() > 1).all()
    assert set(rows.gpu) <= set(catalogue.gpus())


def test_speed_laws():
    """Speeds grow with rate and bandwidth; a measured GPU is no less certain than the law."""
    laws, cards = fit_speed_laws(TIMED)
    assert all(law.rate > 0 and law.bandwidth > 0 for law in laws.values())
    assert {law.uncertainty for law in laws.values()} == {speed_spread()}
    assert all(speed.uncertainty <= speed_spread() for speed in cards.values())


def test_power_law():
    """The power law of GPUs that are alike is theirs and certain."""
    shares = {"clock": 0.1, "dynamic": 0.9}
    power = {
        name: Power(
            idle_w=card.idle_w,
            dynamic_w=shares["dynamic"] * (card.tdp_w - card.idle_w),
            memory=0.7,
            knee_mhz=0.8 * card.max_mhz,
            v_min=0.8,
            memory_knee_mhz=0.0,
            clock_w=shares["clock"] * (card.tdp_w - card.idle_w),
        )
        for name, card in ((name, catalogue.gpu(name)) for name in TIMED)
    }
    law = fit_power_law(power)
    assert (law.dynamic, law.clock, law.knee) == pytest.approx((0.9, 0.1, 0.8))
    assert law.uncertainty == pytest.approx(0.0, abs=1e-9)
    power["T4"] = replace(power["T4"], dynamic_w=2 * power["T4"].dynamic_w)
    assert fit_power_law(power).uncertainty > 0.2


def made_up_rows(offset: float, noise: float) -> FeatureRows:
    rng = np.random.default_rng(1)
    features, offsets = rng.normal(0.0, 1.0, (12, 2)), rng.normal(0.0, offset, 12)
    pairs = [(item, group) for item in range(12) for group in range(4)]
    logs = [
        float(features[item] @ (0.3, 0.6) + offsets[item] + 2.0 * group + rng.normal(0.0, noise))
        for item, group in pairs
    ]
    return FeatureRows(
        [f"card {item}" for item, _ in pairs],
        [f"record {group}" for _, group in pairs],
        np.array([features[item] for item, _ in pairs]),
        np.array(logs),
    )


def test_fit_law():
    """The fit recovers the exponents and spreads of made-up rows."""
    law = fit_law(made_up_rows(0.2, 0.05), (0.5, 0.5))
    assert law.exponents == pytest.approx([0.3, 0.6], abs=0.15)
    assert law.noise == pytest.approx(0.05, abs=0.03)
    assert 0.1 <= law.offset <= 0.4


def test_left_out():
    """An item that is left out is predicted within its stated spread."""
    rows = made_up_rows(0.2, 0.05)
    deviations = []
    for item in sorted(set(rows.items)):
        unseen, predicted, spread = left_out(rows, (0.5, 0.5), item)
        deviations += ((unseen.logs - predicted) / spread).tolist()
    assert 0.7 <= np.mean(np.abs(deviations) < 1.645) <= 1.0
    assert 0.1 < pooled_spread(left_out_errors(rows, (0.5, 0.5))) < 0.45


def test_lone_item():
    """An item that no record compares with others has no prediction."""
    rows = made_up_rows(0.1, 0.05)
    alone = FeatureRows(
        [*rows.items, "lone"], [*rows.groups, "its own"], np.vstack([rows.features, [0, 0]]), np.append(rows.logs, 1.0)
    )
    unseen, predicted, spread = left_out(alone, (0.5, 0.5), "lone")
    assert len(unseen) == len(predicted) == len(spread) == 0
