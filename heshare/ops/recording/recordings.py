"""Recordings of GPUs, by name or folder: the profile that `heshare profile` made of a card."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from heshare.profiles import manifest, store
from heshare.profiles.schema import in_main_precision
from heshare.shared import files
from heshare.shared.errors import InputError, require

TABLE = "profile.csv"
COMMAND = "heshare profile --device nvml:0 --budget 15m --out data/profiles/measured"
"""The command that records a GPU, on a machine that has one."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The profile of one GPU.

    All rows of the `table` are of one `provenance`: measured on a real GPU, or emulated. Tasks shared the GPU by `mps`,
    or `time-slice` without MPS.
    """

    gpu: str
    table: pd.DataFrame
    sharing: str
    path: Path
    provenance: str = "measured"

    @property
    def label(self) -> str:
        """Its name in figures; that of a measured GPU differs from that of an emulated one."""
        return f"{self.gpu} (measured)" if self.provenance == "measured" else self.gpu

    @property
    def precision(self) -> str:
        """The precision of most of its rows, FP16 apart."""
        return str(in_main_precision(self.table)["precision"].iloc[0])


def folder() -> Path:
    return files.data("profiles") / "measured"


def shipped() -> tuple[Recording, ...]:
    """Return every record of a real GPU in `data/profiles/measured`; there may be none."""
    return tuple(map(_read, _tables()))


def read(name: str | Path) -> Recording:
    """Return the record of a GPU, by its name in `data/profiles/measured` or by a folder.

    The folder has the table itself, or the only table in a folder below it, as `heshare profile --out` writes it.

    Raises:
        InputError: no such record, or a bad table.
    """
    return _read(_path(str(name)))


def is_name(name: str) -> bool:
    """Return whether a record has this name in `data/profiles/measured`; otherwise it is a path."""
    return "/" not in name and (folder() / name).is_dir()


def _tables() -> list[Path]:
    return sorted(folder().glob(f"*/{TABLE}"))


def _path(name: str) -> Path:
    recorded = folder() / name if is_name(name) else Path(name)
    if recorded.is_file():
        return recorded
    tables = [recorded / TABLE] if (recorded / TABLE).is_file() else sorted(recorded.glob(f"*/{TABLE}"))
    if len(tables) == 1:
        return tables[0]
    known = ", ".join(path.parent.name for path in _tables())
    found = f"{len(tables)} records in {name!r}" if tables else f"no recording of {name!r}"
    raise InputError(
        found,
        f"the name of a recorded GPU ({known or 'none yet'}), or a folder with the {TABLE} of one",
        f"On a machine with that GPU, run: {COMMAND} (outside a clone, name the folder of the table)",
        file=recorded,
        column="source",
    )


def _read(path: Path) -> Recording:
    table = store.read(path)
    provenances, gpus = (sorted(set(table[name])) for name in ("provenance", "gpu"))
    for column, found in (("provenance", provenances), ("gpu", gpus)):
        action = "Name the record of one GPU."
        require(column, ", ".join(found) or "no rows", len(found) == 1, f"one {column} in a record", action, file=path)
    manifest_path = path.with_name(manifest.NAME)
    content = manifest.read(manifest_path) if manifest_path.is_file() else {}
    sharing = str(content.get("device", {}).get("sharing", "mps"))
    return Recording(gpus[0], table, sharing, path, provenances[0])
