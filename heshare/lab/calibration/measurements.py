"""The public measurements of `data/calibration/`."""

from functools import cache
from typing import Any

import pandas as pd

from heshare.shared import files

MPS_RECORD = "TensorRT 8.0"
"""Framework of iGniter: V100-SXM2, FP32, MPS percentages."""


@cache
def table(name: str) -> pd.DataFrame:
    """Return a table of `data/calibration/`."""
    return pd.read_csv(files.data("calibration", f"{name}.csv"))


def records(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a table as named tuples."""
    return list(frame.itertuples())
