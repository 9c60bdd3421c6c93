"""Utilisations that a real GPU could not measure are filled with the device model's values, with a warning."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd

from heshare.devices.device_model import co_run
from heshare.profiles.schema import UTILISATIONS, residents_of
from heshare.world.catalogue import gpu as find_gpu


class ModelledUtilisationWarning(UserWarning):
    """Some utilisations of a measured table are the device model's, not measurements."""


def fill_missing(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which missing utilisations are the device model's values; every other cell stays as it is.

    One warning states how many values of which columns and GPUs are not measured.
    """
    missing = table[list(UTILISATIONS)].isna()
    if not missing.to_numpy().any():
        return table
    filled = table.copy()
    incomplete = table[missing.any(axis=1)]
    for index, row in zip(incomplete.index, incomplete.itertuples(), strict=True):
        about: Any = row
        tasks = co_run(find_gpu(about.gpu), residents_of(about), about.sm_mhz).tasks
        for name in UTILISATIONS:
            if missing.loc[index, name]:
                filled.loc[index, name] = min(100.0, sum(getattr(task, name) for task in tasks))
    counts = [
        f"{name} of {count} rows of {gpu}"
        for name in UTILISATIONS
        for gpu, count in table.loc[missing[name], "gpu"].value_counts(sort=False).sort_index().items()
    ]
    text = f"Not measured, filled with the device model's values: {', '.join(counts)}."
    warnings.warn(text, ModelledUtilisationWarning, 2)
    return filled


@contextmanager
def without_fill_warning() -> Iterator[None]:
    """Suppress `ModelledUtilisationWarning`, where the filled values do not count or are reported elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelledUtilisationWarning)
        yield
