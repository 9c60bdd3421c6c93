"""Repeat noise of a recording: how much measurements of one setting differ from visit to visit."""

import pandas as pd

from heshare.devices.noise import repeat_cv
from heshare.shared.errors import InputError


def noise_by_workload(table: pd.DataFrame) -> pd.DataFrame:
    """Return the repeat noise of each workload, and of all together (the last row, workload `all`).

    Args:
        table: rows of one GPU, of the profile schema.

    Returns:
        Columns gpu, provenance, workload, settings (how many were visited twice or more), time_pct and power_pct
        (standard deviation of one visit over the mean, %; NaN where no setting was visited twice).
    """
    groups = [*table.groupby("workload", sort=True), ("all", table)]
    rows = [
        {
            "gpu": group["gpu"].iloc[0],
            "provenance": group["provenance"].iloc[0],
            "workload": name,
            "settings": int((group["repeats"] > 1).sum()),
            "time_pct": 100 * repeat_cv(group["time_std_s"] / group["time_s"], group["repeats"]),
            "power_pct": 100 * repeat_cv(group["power_std_w"] / group["power_w"], group["repeats"]),
        }
        for name, group in groups
    ]
    return pd.DataFrame(rows)


def time_and_power_cv(table: pd.DataFrame) -> tuple[float, float]:
    """Return (time_cv, power_cv) of a recording for `heshare.devices.noise.NoiseModel`.

    Raises:
        InputError: no setting was visited twice.
    """
    if not (table["repeats"] > 1).any():
        raise InputError(
            "a recording in which no setting was visited twice",
            "at least one setting with two visits",
            "Record for longer: `heshare profile` with a larger --budget continues this recording.",
            column="repeats",
        )
    total = noise_by_workload(table).iloc[-1]
    return float(total["time_pct"]) / 100, float(total["power_pct"]) / 100
