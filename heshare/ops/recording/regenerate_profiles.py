"""Recording of the profiles that the checkout carries: `heshare regenerate-profiles`.

It must be repeated whenever the device model's constants change; equal constants give equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from heshare.devices.noise import repeat_cv
from heshare.ops.open_device import emulated
from heshare.ops.recording.profile_device import profile
from heshare.profiles import design
from heshare.shared import files
from heshare.world.catalogue import PAPER_GPUS


def noise_by_workload(table: pd.DataFrame) -> pd.DataFrame:
    """Return the repeat noise of each workload, and of all together (the last row, workload `all`).

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


GPUS = PAPER_GPUS
"""The GPUs whose emulated profiles the checkout carries."""


def regenerate(
    out: str | Path | None = None,
    *,
    gpus: Sequence[str] = GPUS,
    samples: int = design.SAMPLES,
    seed: int = 0,
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs, with the public record's repeat noise; return the tables' paths.

    The folder is `data/profiles/emulated` of the checkout unless given. `samples` are shared evenly by the GPUs.
    """
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    counts = zip(gpus, design.split_evenly(samples, len(gpus)), strict=True)
    return [
        profile(
            emulated(name, seed=seed),
            folder,
            samples=count,
            seed=seed,
            command="heshare regenerate-profiles",
            keep_journal=False,
            progress=progress,
        )
        for name, count in counts
    ]
