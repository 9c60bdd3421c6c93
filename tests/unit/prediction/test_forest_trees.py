"""Compiled prediction of a forest gives the bits of scikit-learn's trees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from heshare.prediction.forest_trees import ForestTrees


@pytest.mark.parametrize("rows", [0, 1, 7, 400])
def test_total_has_the_bits_of_the_trees_one_by_one(rows: int) -> None:
    rng = np.random.default_rng(3)
    learned = rng.random((300, 5))
    outputs = np.column_stack([learned.sum(axis=1), learned[:, 0] * learned[:, 1]])
    model = RandomForestRegressor(n_estimators=20, random_state=0).fit(learned.astype(np.float32), outputs)
    asked = np.vstack([learned, rng.random((100, 5))])[:rows]
    expected = np.zeros((rows, 2))
    if rows:
        for tree in model.estimators_:
            expected += tree.tree_.predict(asked.astype(np.float32)).reshape(rows, 2)
    found = ForestTrees.of(model.estimators_).total(asked)
    assert found.shape == (rows, 2)
    assert np.array_equal(found, expected)
