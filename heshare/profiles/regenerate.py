"""Records the profiles that the checkout carries: `python -m heshare.profiles.regenerate`.

To be run again whenever the device model's constants change; the tables are the same bytes for the same constants.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heshare import files
from heshare.devices.device import Device
from heshare.devices.emulated import EmulatedDevice, NoiseModel
from heshare.errors import InputError
from heshare.profiles import design
from heshare.profiles.record import Settings, profile
from heshare.world.catalogue import gpu as find_gpu

GPUS = ("T4", "V100", "A100")
"""The paper's GPUs (Table III)."""


def emulated(gpu: str, *, seed: int = 0) -> EmulatedDevice:
    """An emulated GPU whose readings repeat as badly as real ones do.

    Raises:
        InputError: no such GPU.
    """
    card = find_gpu(gpu)
    rng = np.random.default_rng(np.random.SeedSequence([seed, *card.name.encode()], spawn_key=(1,)))
    return EmulatedDevice(card, noise=NoiseModel(rng=rng))


def open_device(text: str, *, seed: int = 0) -> Device:
    """The device that `emulated:T4` names.

    Args:
        text: the kind of device and its GPU.
        seed: of an emulated device's repeat noise.

    Raises:
        InputError: another form, an unknown kind or an unknown GPU.
    """
    kind, _, name = text.partition(":")
    if kind != "emulated" or not name:
        raise InputError(
            column="device", found=repr(text), expected="emulated:GPU, such as emulated:T4", action="Name a device."
        )
    return emulated(name, seed=seed)


def regenerate(
    out: str | Path | None = None,
    *,
    gpus: Sequence[str] = GPUS,
    samples: int = design.SAMPLES,
    seed: int = 0,
    settings: Settings | None = None,
    progress: bool = True,
) -> list[Path]:
    """Record the profiles of several emulated GPUs.

    Args:
        out: the folder of profiles; `data/profiles/emulated` of the checkout by default.
        gpus: which GPUs.
        samples: training samples over all of them, shared evenly.
        seed: of the design and of the repeat noise.
        settings: how to measure.
        progress: show a progress bar on a terminal.

    Returns:
        The tables' paths.
    """
    folder = files.root() / "data" / "profiles" / "emulated" if out is None else Path(out)
    parts = zip(gpus, design.split(samples, len(gpus)), strict=True)
    return [
        profile(emulated(name, seed=seed), folder, samples=part, seed=seed, settings=settings, progress=progress)
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
