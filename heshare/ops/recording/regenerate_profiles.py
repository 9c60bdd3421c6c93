"""Recording of the emulated profiles in the repository: `heshare calibrate --profiles`.

It must be repeated after every change of the device model's constants; equal constants give equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from heshare.devices.noise import POWER_CV, TIME_CV, repeat_cv
from heshare.ops.open_device import emulated
from heshare.ops.recording import recordings
from heshare.ops.recording.profile_device import profile
from heshare.profiles import design
from heshare.shared import files
from heshare.shared.errors import require
from heshare.world.catalogue import PAPER_GPUS


def noise_by_workload(table: pd.DataFrame) -> pd.DataFrame:
    """Return the repeat noise of each workload, and of all together (the last row, workload `all`).

    Returns:
        Columns gpu, provenance, workload, settings (number of those visited at least twice), time_pct and power_pct
        (standard deviation of one visit over the mean, %; NaN if no setting was visited twice).
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
    again, found = bool((table["repeats"] > 1).any()), "a recording in which no setting was visited twice"
    action = "Record for longer: `heshare profile` with a larger --budget continues this recording."
    require("repeats", found, again, "at least one setting with two visits", action)
    total = noise_by_workload(table).iloc[-1]
    return float(total["time_pct"]) / 100, float(total["power_pct"]) / 100


GPUS = PAPER_GPUS
"""The GPUs with emulated profiles in the repository."""


def regenerate(
    out: str | Path | None = None,
    *,
    gpus: Sequence[str] = GPUS,
    samples: int = design.SAMPLES,
    seed: int = 0,
    noise_of: str = "",
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs; return the tables' paths.

    The default folder is `data/profiles/emulated` of the checkout. `samples` are divided evenly among the GPUs.
    `noise_of` is a recorded GPU (such as `H100`) whose repeat noise to use; by default that of the public measurements.

    Raises:
        InputError: there is no such recording, or it has no repeats.
    """
    time_cv, power_cv = TIME_CV, POWER_CV
    if noise_of:
        time_cv, power_cv = time_and_power_cv(recordings.read(noise_of).table)
    command = "heshare calibrate --profiles" + (f" --noise-of {noise_of}" if noise_of else "")
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    counts = zip(gpus, design.split_evenly(samples, len(gpus)), strict=True)
    return [
        profile(
            emulated(name, seed=seed, time_cv=time_cv, power_cv=power_cv),
            folder,
            samples=count,
            seed=seed,
            command=command,
            keep_journal=False,
            progress=progress,
        )
        for name, count in counts
    ]
