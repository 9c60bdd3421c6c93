"""How well a recording repeats: its noise from visit to visit, and the same as the noise of emulated profiles."""

from __future__ import annotations

import pandas as pd

from heshare.devices.noise import repeat_cv
from heshare.errors import InputError


def noise(table: pd.DataFrame) -> pd.DataFrame:
    """Repeat noise of each workload, and of all of them together (the last row, workload `all`).

    Args:
        table: rows of one GPU, of the profile schema.

    Returns:
        Columns gpu, provenance, workload, settings (how many were visited twice or more), time_pct and power_pct
        (standard deviation of one visit over the mean, %; NaN where no setting was visited twice).
    """
    parts = [*table.groupby("workload", sort=True), ("all", table)]
    rows = [
        {
            "gpu": part["gpu"].iloc[0],
            "provenance": part["provenance"].iloc[0],
            "workload": name,
            "settings": int((part["repeats"] > 1).sum()),
            "time_pct": 100 * repeat_cv(part["time_std_s"] / part["time_s"], part["repeats"]),
            "power_pct": 100 * repeat_cv(part["power_std_w"] / part["power_w"], part["repeats"]),
        }
        for name, part in parts
    ]
    return pd.DataFrame(rows)


def sizes(table: pd.DataFrame) -> tuple[float, float]:
    """(time_cv, power_cv) of a recording, as `heshare.devices.noise.NoiseModel` takes them.

    Raises:
        InputError: no setting was visited twice.
    """
    if not (table["repeats"] > 1).any():
        raise InputError(
            column="repeats",
            found="a recording in which no setting was visited twice",
            expected="at least one setting with two visits",
            action="Record for longer: `heshare profile` with a larger --budget goes on from this recording.",
        )
    whole = noise(table).iloc[-1]
    return float(whole["time_pct"]) / 100, float(whole["power_pct"]) / 100
