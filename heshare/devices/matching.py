"""Which GPU of the catalogue a real card is, from what NVML says of it."""

from __future__ import annotations

import re
from dataclasses import replace

from heshare.errors import InputError
from heshare.world.catalogue import gpus
from heshare.world.gpu import Gpu

MEMORY_RTOL = 0.1
"""How far a card's memory may lie from the catalogue's: ECC takes a few per cent, variants differ by more."""


def match(
    name: str,
    *,
    memory_mib: float,
    clocks_mhz: tuple[int, ...],
    cores: int | None = None,
    tdp_w: float | None = None,
) -> Gpu:
    """The GPU of `data/gpus.csv` that a card is, with the memory, clocks and power limit that the card itself tells.

    A name of the catalogue fits when each of its parts (`V100`, `SXM2`) is a word of the card's name; the name with
    most parts wins. Memory and cores must agree, so that a variant is not taken for another.

    Args:
        name: the vendor's name, such as `Tesla V100-SXM2-16GB`.
        memory_mib: the card's memory, MiB.
        clocks_mhz: the SM clocks that it offers, ascending, MHz.
        cores: its FP32 lanes, where the driver tells.
        tdp_w: its power limit, W, where the driver tells.

    Raises:
        InputError: an unknown card, or a variant that the catalogue does not describe; it says what to add.
    """
    words = set(re.findall(r"[A-Z0-9]+", name.upper()))
    fitting = [card for card in gpus().values() if set(card.name.upper().split("-")) <= words]
    if not fitting:
        raise _unknown(name, "a card whose name has one of " + ", ".join(gpus()), name.split()[-1])
    card = max(fitting, key=lambda one: len(one.name.split("-")))
    if abs(memory_mib / card.memory_mib - 1) > MEMORY_RTOL:
        expected = f"{card.memory_mib:.0f} MiB, the {card.name} of the catalogue"
        raise _unknown(f"{name} with {memory_mib:.0f} MiB", expected, f"{card.name}-{memory_mib / 1024:.0f}GB")
    if cores is not None and cores != card.cuda_cores:
        expected = f"{card.cuda_cores} cores, the {card.name} of the catalogue"
        raise _unknown(f"{name} with {cores} cores", expected, f"{card.name}-PCIE")
    return replace(card, memory_mib=memory_mib, clocks_mhz=clocks_mhz, tdp_w=card.tdp_w if tdp_w is None else tdp_w)


def _unknown(found: str, expected: str, example: str) -> InputError:
    return InputError(
        file="data/gpus.csv",
        column="gpu",
        found=found,
        expected=expected,
        action=f"Describe this card in data/gpus.csv: a row for each field, under a name made of words of the card's "
        f"name, such as {example}.",
    )
