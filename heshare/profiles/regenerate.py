"""Records the profiles that the checkout carries: `python -m heshare.profiles.regenerate`.

To be run again whenever the device model's constants change; the tables are the same bytes for the same constants.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from heshare import files
from heshare.devices.open import emulated
from heshare.profiles import design
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
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs.

    Args:
        out: the folder of profiles; `data/profiles/emulated` of the checkout by default.
        gpus: which GPUs.
        samples: training samples over all of them, shared evenly.
        seed: of the design and of the repeat noise.
        protocol: how to measure.
        progress: show a progress bar on a terminal.

    Returns:
        The tables' paths.
    """
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    parts = zip(gpus, design.split(samples, len(gpus)), strict=True)
    return [
        profile(
            emulated(name, seed=seed),
            folder,
            samples=part,
            seed=seed,
            protocol=protocol,
            command="python -m heshare.profiles.regenerate",
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
    arguments = parser.parse_args()
    regenerate(arguments.out, samples=arguments.samples, seed=arguments.seed)


if __name__ == "__main__":
    main()
