"""Learning from the record of a GPU, which seldom holds everything: what can be learned from, and what comes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heshare.errors import InputError
from heshare.prediction.features import References, is_reference, residents_of
from heshare.prediction.forest import ForestPredictor, train
from heshare.prediction.predictor import Predictor
from heshare.profiles.completing import StandInWarning

LEAST_SAMPLES = 20
"""Samples below which nothing is learned."""


def covered(profiles: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether the record knows every task of each row alone, shape (rows,): a predictor knows a task by that."""
    references = References(profiles)
    return np.array([_known(references, row) for row in profiles.itertuples(index=False)], dtype=bool)


def learn(profiles: pd.DataFrame) -> Callable[[], Predictor]:
    """Makes predictors that were trained on a record once, each with a memory of its own.

    Rows whose tasks were not all recorded alone are left out; utilisations that the card did not tell are the device
    model's.

    Raises:
        InputError: too little is left.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandInWarning)
        kept = profiles[covered(profiles)].reset_index(drop=True)
        samples = int((~is_reference(kept)).sum())
        if samples < LEAST_SAMPLES:
            raise InputError(
                column="profiles",
                found=f"{samples} samples whose tasks were all recorded alone too",
                expected=f"at least {LEAST_SAMPLES}",
                action="Record for longer, such as --budget 15m; what is there is kept.",
            )
        return partial(ForestPredictor, *train(kept, seed=0))


def _known(references: References, row: Any) -> bool:
    try:
        for one in residents_of(row):
            references.task(row.gpu, one.workload)
    except InputError:
        return False
    return True
