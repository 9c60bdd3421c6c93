"""Which rows of a record can be learned from: those whose tasks were all recorded alone too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heshare.errors import InputError
from heshare.prediction.features import References, residents_of


def covered(profiles: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether the record knows every task of each row alone, shape (rows,): a predictor knows a task by that."""
    references = References(profiles)
    return np.array([_known(references, row) for row in profiles.itertuples(index=False)], dtype=bool)


def _known(references: References, row: Any) -> bool:
    try:
        for one in residents_of(row):
            references.task(row.gpu, one.workload)
    except InputError:
        return False
    return True
