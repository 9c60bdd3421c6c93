"""The cache of predictions: keys of sets, and values in the order of their members."""

from __future__ import annotations

import numpy as np

from heshare.prediction.features import FeatureEncoder, ReferenceFeatures
from heshare.prediction.prediction_cache import PredictionCache
from heshare.profiles import store
from heshare.world.catalogue import gpu


def test_keys() -> None:
    """Keys are equal for equal sets alone, whatever the width."""
    rng = np.random.default_rng(0)
    members = np.sort(rng.choice([-1, 0, 1, 255, 256, 65_535], size=(3000, 3)))[:, ::-1]
    clocks = rng.integers(1, 3, size=3000)
    wide = np.hstack((members, np.full((3000, 4), -1)))
    keys = PredictionCache.keys(clocks, members)
    assert PredictionCache.keys(clocks, wide) == keys
    sets = [(clock, *row) for clock, row in zip(clocks.tolist(), members.tolist(), strict=True)]
    assert len(set(keys)) == len(set(sets)) < 3000


def test_values() -> None:
    """Values come back as they were added, however many."""
    rng = np.random.default_rng(1)
    known = PredictionCache(FeatureEncoder(gpu("T4"), ReferenceFeatures(store.read_shipped())))
    members = np.sort(rng.integers(-1, 9, size=(9000, 6)))[:, ::-1]
    members = np.unique(members, axis=0)
    clocks = np.arange(len(members)) + 1
    time_s = rng.random(members.shape)
    power_w = rng.random(len(members))
    rows = (members >= 0).sum(axis=1)
    keys = PredictionCache.keys(clocks, members)
    for part in np.array_split(np.arange(len(members)), 40):
        known.add([keys[row] for row in part], members[part], time_s[part], power_w[part], rows[part])
    asked = rng.permutation(len(members))
    numbers = np.array([known.number[keys[row]] for row in asked])
    expected = np.where(members >= 0, time_s, np.nan)[asked]
    assert np.array_equal(known.times_s(numbers, members[asked]), expected, equal_nan=True)
    assert np.array_equal(known.power_w(numbers), power_w[asked])
    assert known.rows(numbers) == rows.sum()
