"""Records the profiles that the checkout carries: `python -m heshare.profiles.regenerate`.

To be run again whenever the device model's constants change; the tables are the same bytes for the same constants.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from heshare import files
from heshare.devices.noise import POWER_CV, TIME_CV
from heshare.devices.open import emulated
from heshare.profiles import design, recordings, repeats
from heshare.profiles.protocol import Protocol
from heshare.profiles.record import profile

GPUS = ("T4", "V100", "A100")
"""The paper's GPUs (Table III)."""


def regenerate(
    out: str | Path | None = None,
    *,
    gpus: Sequence[str] = GPUS,
    samples: int = design.SAMPLES,
    seed: int = 0,
    protocol: Protocol | None = None,
    noise_of: str = "",
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs.

    Args:
        out: the folder of profiles; `data/profiles/emulated` of the checkout by default.
        gpus: which GPUs.
        samples: training samples over all of them, shared evenly.
        seed: of the design and of the repeat noise.
        protocol: how to measure.
        noise_of: a recorded GPU (such as `H100`) whose repeat noise to use; by default the public record's.
        progress: show a progress bar on a terminal.

    Returns:
        The tables' paths.

    Raises:
        InputError: there is no such recording, or it holds no repeats.
    """
    sizes = repeats.sizes(recordings.one(noise_of).table) if noise_of else (TIME_CV, POWER_CV)
    command = "python -m heshare.profiles.regenerate" + (f" --noise-of {noise_of}" if noise_of else "")
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    parts = zip(gpus, design.split(samples, len(gpus)), strict=True)
    return [
        profile(
            emulated(name, seed=seed, time_cv=sizes[0], power_cv=sizes[1]),
            folder,
            samples=part,
            seed=seed,
            protocol=protocol,
            command=command,
            keep_journal=False,
            progress=progress,
        )
        for name, part in parts
    ]


def main() -> None:
    """Record with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder of profiles")
    parser.add_argument("--samples", type=int, default=design.SAMPLES, help="training samples over all GPUs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the design and of the noise")
    parser.add_argument("--noise-of", default="", help="recorded GPU whose repeat noise to use, such as H100")
    arguments = parser.parse_args()
    regenerate(arguments.out, samples=arguments.samples, seed=arguments.seed, noise_of=arguments.noise_of)


if __name__ == "__main__":
    main()
