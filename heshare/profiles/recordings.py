"""Recorded GPUs by name: what `source = "recorded:H100"` of a notebook stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from heshare import files
from heshare.errors import InputError
from heshare.profiles import manifest, store

EMULATED, PREFIX, EVERY = "emulated", "recorded:", "all"
TABLE = "profile.csv"
COMMAND = "heshare profile --device nvml:0 --budget 15m --out data/profiles/measured"
"""What records a GPU, on a machine that has one."""


@dataclass(frozen=True, eq=False)
class Recording:
    """What was measured on one real GPU.

    Attributes:
        gpu: a name of the catalogue.
        table: rows of the profile schema, all of them measured.
        sharing: how tasks shared the GPU: `mps`, or `time-slice` where MPS was missing.
        path: the table's file.
    """

    gpu: str
    table: pd.DataFrame
    sharing: str
    path: Path

    @property
    def label(self) -> str:
        """Its name in figures: `H100 (measured)`."""
        return mark(self.gpu)


def mark(gpu: str) -> str:
    """How figures name a measured GPU, so that it is never taken for an emulated one of the same name."""
    return f"{gpu} (measured)"


def folder() -> Path:
    """Where recordings of real GPUs are: the checkout's `data/profiles/measured`."""
    return files.root() / "data" / "profiles" / "measured"


def read(source: str) -> tuple[Recording, ...]:
    """The recordings that a notebook's `source` names.

    Args:
        source: `emulated` (none), `recorded:H100`, `recorded:H100,H200`, `recorded:all` (every recording of the
            checkout, which may be none), or the path of a recorded folder instead of a name.

    Raises:
        InputError: another form, a GPU without a recording, a bad table, or one that no real GPU made.
    """
    if source == EMULATED:
        return ()
    names = [name.strip() for name in source.removeprefix(PREFIX).split(",")]
    if not source.startswith(PREFIX) or not all(names):
        raise InputError(
            column="source",
            found=repr(source),
            expected="emulated, recorded:GPU such as recorded:H100, or recorded:all",
            action="Name a recorded GPU: "
            + (", ".join(path.parent.name for path in _tables()) or "there is none yet."),
        )
    paths = _tables() if names == [EVERY] else [_path(name) for name in names]
    found = tuple(map(_read, paths))
    if len({one.gpu for one in found}) < len(found):
        raise InputError(
            column="source",
            found=", ".join(one.gpu for one in found),
            expected="each GPU once",
            action="Name one recording of a GPU.",
        )
    return found


def one(name: str) -> Recording:
    """The recording of one GPU, by its name or its folder's path.

    Raises:
        InputError: there is none, or it is bad.
    """
    return _read(_path(name))


def _tables() -> list[Path]:
    return sorted(folder().glob(f"*/{TABLE}"))


def _path(name: str) -> Path:
    """The table of a GPU's name or of a folder's path."""
    where = folder() / name if "/" not in name else files.root() / name
    table = where / TABLE
    if table.is_file():
        return table
    known = ", ".join(path.parent.name for path in _tables())
    raise InputError(
        file=where,
        column="source",
        found=f"no recording of {name!r}",
        expected=f"{TABLE} of a recorded GPU (recorded so far: {known or 'none'})",
        action=f"On a machine with that GPU, run: {COMMAND}",
    )


def _read(path: Path) -> Recording:
    table = store.read(path)
    origins, gpus = (sorted(set(table[name])) for name in ("provenance", "gpu"))
    if origins != ["measured"] or len(gpus) != 1:
        raise InputError(
            file=path,
            column="provenance" if origins != ["measured"] else "gpu",
            found=", ".join(origins if origins != ["measured"] else gpus) or "no rows",
            expected="measured rows of one GPU",
            action="What an emulated device recorded is never shown as measured; record a real GPU: " + COMMAND,
        )
    return Recording(gpus[0], table, _sharing(path), path)


def _sharing(path: Path) -> str:
    beside = path.with_name(manifest.NAME)
    if not beside.is_file():
        return "mps"
    said = json.loads(beside.read_text(encoding="utf-8"))
    return str(said.get("device", {}).get("sharing", "mps"))
