"""Utilisations that a real GPU could not measure are filled with the device model's values, with a warning."""

import warnings
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
        for name, value in _modelled_utilisations(row).items():
            if missing.loc[index, name]:
                filled.loc[index, name] = value
    counts = [
        f"{name} of {count} rows of {gpu}"
        for name in UTILISATIONS
        for gpu, count in table.loc[missing[name], "gpu"].value_counts(sort=False).sort_index().items()
    ]
    text = f"Not measured, filled with the device model's values: {', '.join(counts)}."
    warnings.warn(text, ModelledUtilisationWarning, 2)
    return filled


def _modelled_utilisations(row: Any) -> dict[str, float]:
    tasks = co_run(find_gpu(row.gpu), residents_of(row), row.sm_mhz).tasks
    return {name: min(100.0, sum(getattr(task, name) for task in tasks)) for name in UTILISATIONS}
