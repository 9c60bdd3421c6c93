"""The form in which the outputs are learned: round trips, and the first guesses."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.prediction.features import FEATURE_NAMES, GUESSED_POWER
from heshare.prediction.targets import Targets


def _features(**cells: float) -> np.ndarray:
    values = dict.fromkeys(FEATURE_NAMES, 0.0) | {
        "sm_util_pct": 80,
        "alone_s": 0.01,
        "mps_pct": 50,
        "clock_pct": 50,
        "occupied_sm_pct": 70,
        "occupied_power_w": 40,
        "idle_w": 20,
        "guessed_w": 40,
    }
    names = [*FEATURE_NAMES, "guessed_w"]
    assert len(names) == GUESSED_POWER + 1
    return np.array([[float((values | cells)[name]) for name in names]])


def test_round_trip(rng: np.random.Generator) -> None:
    """Decoding inverts fitting."""
    rows = np.vstack([_features(mps_pct=pct, occupied_sm_pct=busy) for pct in (10, 60, 100) for busy in (0, 50, 300)])
    time_s, power_w = rng.uniform(0.01, 1, len(rows)), rng.uniform(25, 70, len(rows))
    targets = Targets()
    decoded_s, decoded_w = targets.decode(rows, targets.fit(rows, time_s, power_w))
    assert decoded_s == pytest.approx(time_s)
    assert decoded_w == pytest.approx(power_w)


def test_first_guess() -> None:
    """Time and power are guessed from clock, share and demand."""
    targets = Targets()
    # a = min(0.8, 0.5) + 0.7 = 1.2; 0.01 (0.2 + 0.8 / (0.5 x 0.5) x 1.2) = 0.0404.
    learned = targets.fit(_features(), np.array([0.0404]), np.array([40.0]))
    assert learned[0, 0] == pytest.approx(0, abs=1e-12)
    # The guess itself below the 40 W that were seen, never above; a GPU that was not seen has no limit.
    assert learned[0, 1] == pytest.approx(0, abs=1e-12)
    assert targets.decode(_features(guessed_w=30), np.zeros((1, 2)))[1] == pytest.approx([30.0])
    assert targets.decode(_features(guessed_w=60), np.zeros((1, 2)))[1] == pytest.approx([40.0])
    assert targets.decode(_features(guessed_w=60, sm_count=7), np.zeros((1, 2)))[1] == pytest.approx([60.0])


def test_more_demand() -> None:
    """More demand never has a shorter guess."""
    rows = np.vstack([_features(occupied_sm_pct=busy) for busy in range(0, 2000, 50)])
    targets = Targets()
    targets.fit(rows, np.full(len(rows), 0.02), np.full(len(rows), 60.0))
    assert (np.diff(targets.decode(rows, np.zeros((len(rows), 2)))[0]) >= 0).all()
