"""Recordings of real GPUs for the `source` parameter of a notebook, such as `recorded:H100`."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from heshare.profiles import manifest, store
from heshare.shared import files
from heshare.shared.errors import InputError, require

EMULATED, PREFIX, EVERY = "emulated", "recorded:", "all"
TABLE = "profile.csv"
COMMAND = "heshare profile --device nvml:0 --budget 15m --out data/profiles/measured"
"""The command that records a GPU, on a machine that has one."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The profile of one real GPU.

    All rows of the `table` are measured; tasks shared the GPU by `mps`, or `time-slice` without MPS.
    """

    gpu: str
    table: pd.DataFrame
    sharing: str
    path: Path

    @property
    def label(self) -> str:
        return measured_label(self.gpu)


def measured_label(gpu: str) -> str:
    """Return the name of a measured GPU in figures, which differs from that of an emulated one."""
    return f"{gpu} (measured)"


def folder() -> Path:
    return files.data("profiles") / "measured"


def read(source: str) -> tuple[Recording, ...]:
    """Return the recordings that a notebook's `source` names.

    Args:
        source: `emulated` (none), `recorded:H100`, `recorded:H100,H200`, `recorded:all` (every recording of the
            checkout, which may be none), or the path of a recorded folder instead of a name.

    Raises:
        InputError: another form, a GPU without a recording, a bad table, or one that no real GPU made.
    """
    if source == EMULATED:
        return ()
    names = [name.strip() for name in source.removeprefix(PREFIX).split(",")]
    expected = "emulated, recorded:GPU such as recorded:H100, or recorded:all"
    action = "Name a recorded GPU: " + (_recorded_names() or "there is none yet.")
    require("source", repr(source), source.startswith(PREFIX) and all(names), expected, action)
    paths = _tables() if names == [EVERY] else [_path(name) for name in names]
    recordings = tuple(map(_read, paths))
    gpus = [recording.gpu for recording in recordings]
    if len(set(gpus)) < len(gpus):
        raise InputError(", ".join(gpus), "each GPU once", "Name one recording of a GPU.", column="source")
    return recordings


def _tables() -> list[Path]:
    return sorted(folder().glob(f"*/{TABLE}"))


def _recorded_names() -> str:
    return ", ".join(path.parent.name for path in _tables())


def _path(name: str) -> Path:
    recorded = folder() / name if "/" not in name else (files.checkout() or Path()) / name
    table = recorded / TABLE
    if table.is_file():
        return table
    raise InputError(
        f"no recording of {name!r}",
        f"{TABLE} of a recorded GPU (recorded so far: {_recorded_names() or 'none'})",
        f"On a machine with that GPU, run: {COMMAND}",
        file=recorded,
        column="source",
    )


def _read(path: Path) -> Recording:
    table = store.read(path)
    provenances, gpus = (sorted(set(table[name])) for name in ("provenance", "gpu"))
    measured = provenances == ["measured"]
    column, found = ("gpu", gpus) if measured else ("provenance", provenances)
    action = "The record of an emulated device is never shown as measured; record a real GPU: " + COMMAND
    good, expected = measured and len(gpus) == 1, "measured rows of one GPU"
    require(column, ", ".join(found) or "no rows", good, expected, action, file=path)
    manifest_path = path.with_name(manifest.NAME)
    content = manifest.read(manifest_path) if manifest_path.is_file() else {}
    return Recording(gpus[0], table, str(content.get("device", {}).get("sharing", "mps")), path)
