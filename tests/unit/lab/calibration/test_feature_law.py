"""Laws from features: exponents of made-up data, offsets of items, errors of items left out."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.lab.calibration.laws_fit import FeatureRows, fit_law, left_out, left_out_spread


def _rows(offset: float, noise: float) -> FeatureRows:
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


def test_fit_law_recovers_exponents_and_spreads_of_made_up_data():
    law = fit_law(_rows(0.2, 0.05), (0.5, 0.5))
    assert law.exponents == pytest.approx([0.3, 0.6], abs=0.15)
    assert law.noise == pytest.approx(0.05, abs=0.03)
    assert 0.1 <= law.offset <= 0.4


def test_left_out_predicts_an_item_within_its_stated_spread():
    rows = _rows(0.2, 0.05)
    deviations = []
    for item in sorted(set(rows.items)):
        unseen, predicted, spread = left_out(rows, (0.5, 0.5), item)
        deviations += ((unseen.logs - predicted) / spread).tolist()
    assert 0.7 <= np.mean(np.abs(deviations) < 1.645) <= 1.0
    assert 0.1 < left_out_spread(rows, (0.5, 0.5)) < 0.4


def test_left_out_of_an_item_without_company_is_empty():
    rows = _rows(0.1, 0.05)
    alone = FeatureRows(
        [*rows.items, "lone"], [*rows.groups, "its own"], np.vstack([rows.features, [0, 0]]), np.append(rows.logs, 1.0)
    )
    unseen, predicted, spread = left_out(alone, (0.5, 0.5), "lone")
    assert len(unseen) == len(predicted) == len(spread) == 0
