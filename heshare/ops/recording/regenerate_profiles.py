"""Recording of the profiles that the checkout carries: `heshare regenerate-profiles`.

It must be repeated whenever the device model's constants change; equal constants give equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path

from heshare.devices.noise import POWER_CV, TIME_CV
from heshare.ops.open_device import emulated
from heshare.ops.recording import recordings, repeat_noise
from heshare.ops.recording.profile_device import profile
from heshare.profiles import design
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared import files
from heshare.world.catalogue import PAPER_GPUS

GPUS = PAPER_GPUS
"""The GPUs whose emulated profiles the checkout carries."""


def regenerate(
    out: str | Path | None = None,
    *,
    gpus: Sequence[str] = GPUS,
    samples: int = design.SAMPLES,
    seed: int = 0,
    protocol: MeasurementProtocol | None = None,
    noise_of: str = "",
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs; return the tables' paths.

    Args:
        out: the folder of profiles; `data/profiles/emulated` of the checkout by default.
        gpus: the GPUs' names.
        samples: training samples over all of them, shared evenly.
        seed: of the design and of the repeat noise.
        protocol: how to measure.
        noise_of: a recorded GPU (such as `H100`) whose repeat noise to use; by default the public record's.
        progress: show a progress bar on a terminal.

    Raises:
        InputError: there is no such recording, or it holds no repeats.
    """
    time_cv, power_cv = TIME_CV, POWER_CV
    if noise_of:
        time_cv, power_cv = repeat_noise.time_and_power_cv(recordings.read_one(noise_of).table)
    command = "heshare regenerate-profiles" + (f" --noise-of {noise_of}" if noise_of else "")
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    counts = zip(gpus, design.split_evenly(samples, len(gpus)), strict=True)
    return [
        profile(
            emulated(name, seed=seed, time_cv=time_cv, power_cv=power_cv),
            folder,
            samples=count,
            seed=seed,
            protocol=protocol,
            command=command,
            keep_journal=False,
            progress=progress,
        )
        for name, count in counts
    ]
