"""The profiles of the GPUs that are present, recorded now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pandas as pd

from heshare.devices.device import Device
from heshare.devices.open import opened
from heshare.profiles import manifest, store
from heshare.profiles.protocol import Protocol
from heshare.profiles.record import TABLE, profile
from heshare.running.live.cards import LiveCard

Open = Callable[[LiveCard], AbstractContextManager[Device]]


def open_card(card: LiveCard) -> AbstractContextManager[Device]:
    """A GPU for the recorder, with PyTorch workers."""
    return opened(f"nvml:{card.uuid}", clocks=card.clocks)


def record(
    cards: Sequence[LiveCard],
    folder: Path,
    *,
    budget_s: float,
    seed: int,
    protocol: Protocol | None = None,
    opener: Open = open_card,
    progress: bool = True,
) -> pd.DataFrame:
    """Record one GPU of each type, or go on with what is there until the budget is spent.

    Args:
        cards: the GPUs.
        folder: of profiles; the tables become `folder/<gpu>/profile.csv`.
        budget_s: time for each type, s.
        seed: of the plan.
        protocol: how to measure; by default the recorder's.
        opener: opens a GPU.
        progress: show the time that is left on a terminal.

    Returns:
        All tables as one.

    Raises:
        DeviceError: a GPU refuses.
        InputError: too short a budget, or the folder belongs to another recording.
    """
    tables: list[pd.DataFrame] = []
    for _, card in sorted({card.gpu.name: card for card in reversed(cards)}.items()):
        command = f"heshare live --budget {budget_s:g}s --seed {seed}" + (" --allow-clocks" if card.clocks else "")
        path = folder / card.gpu.name / TABLE
        if not _done(path, card, command):
            with opener(card) as device:
                profile(
                    device,
                    folder,
                    budget_s=budget_s,
                    clocks=card.clocks,
                    seed=seed,
                    protocol=protocol,
                    command=command,
                    progress=progress,
                )
        tables.append(store.read(path))
    return pd.concat(tables, ignore_index=True)


def _done(path: Path, card: LiveCard, command: str) -> bool:
    """Whether this very recording of this very card has been made to its end."""
    beside = path.with_name(manifest.NAME)
    if not (path.is_file() and beside.is_file()):
        return False
    said = json.loads(beside.read_text(encoding="utf-8"))
    same = all(said["device"].get(name) == card.facts.get(name) for name in ("uuid", "driver"))
    return same and said["command"] == command
