"""Utilisations that a real card could not tell: the device model's stand in for them, and it is said."""

from __future__ import annotations

import warnings

import pandas as pd

from heshare.devices.model import co_run
from heshare.profiles.columns import parse_co_runners
from heshare.profiles.visit import UTILISATIONS
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload


class StandInWarning(UserWarning):
    """Some figures of a measured table are the device model's, not measurements."""


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """A table without holes: where a utilisation is missing, the device model's value stands in.

    Every other cell stays as it is, and the table on disk is not touched. One warning says of which GPU how many values
    of which columns are no measurements.

    Args:
        table: rows of the profile schema.

    Raises:
        InputError: the device model does not know the GPU.
    """
    holes = table[list(UTILISATIONS)].isna()
    if not holes.to_numpy().any():
        return table
    filled = table.copy()
    for at in filled.index[holes.any(axis=1)]:
        for name, value in _modelled(filled.loc[at]).items():
            if holes.loc[at, name]:
                filled.loc[at, name] = value
    counts = [
        f"{name} of {count} rows of {gpu}"
        for name in UTILISATIONS
        for gpu, count in table.loc[holes[name], "gpu"].value_counts(sort=False).sort_index().items()
    ]
    warnings.warn(f"Not measured, the device model's values stand in: {', '.join(counts)}.", StandInWarning, 2)
    return filled


def _modelled(row: pd.Series) -> dict[str, float]:
    precision, engine = str(row["precision"]), str(row["engine"])
    target = Resident(Workload(row["workload"], int(row["batch_size"]), precision, engine), int(row["mps_pct"]))
    others = parse_co_runners(row["co_runners"], precision=precision, engine=engine)
    tasks = co_run(find_gpu(row["gpu"]), (target, *others), int(row["sm_mhz"])).tasks
    return {name: min(100.0, sum(getattr(task, name) for task in tasks)) for name in UTILISATIONS}
