"""Which rows train and which test."""

from __future__ import annotations

import numpy as np

from heshare.prediction.predictor import IntArray

TRAIN_PART = 0.75
"""Part of the samples that trains (Section III-A: 75 % training, 25 % validation)."""


def split_rows(rows: int, *, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Row numbers that train (75 %) and that validate (25 %), both ascending (Section III-A)."""
    order = rng.permutation(rows)
    cut = round(TRAIN_PART * rows)
    return np.sort(order[:cut]), np.sort(order[cut:])
