"""Golden predictions of trees that were trained on a formula: a change of any bit of the training shows here."""

from __future__ import annotations

import numpy as np
from pytest_regressions.num_regression import NumericRegressionFixture

from heshare.prediction.features import GUESSED_POWER
from heshare.prediction.trees import TreesOverRidge


def test_trees(num_regression: NumericRegressionFixture) -> None:
    rng = np.random.default_rng(11)
    x = rng.uniform(5, 100, size=(240, GUESSED_POWER + 1))
    x[:, 3] = rng.uniform(0.001, 0.2, size=240)
    x[:, 10:14] = np.array([[40, 300, 4, 20], [80, 900, 6, 25], [108, 2000, 40, 62]])[rng.integers(3, size=240)]
    time_s = x[:, 3] * (1 + x[:, 6] / 100) * 100 / x[:, 4]
    power_w = x[:, 13] * (1 + x[:, 0] / 50) + x[:, 5] / 10
    load_time_s, load_power_w = TreesOverRidge(seed=5).fit(x[:200], time_s[:200], power_w[:200]).predict(x[200:])
    predictions = {"load_time_s": load_time_s, "load_power_w": load_power_w}
    num_regression.check(predictions, default_tolerance={"rtol": 1e-9, "atol": 0.0})
