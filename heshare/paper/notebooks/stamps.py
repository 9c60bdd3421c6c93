"""Stamps of notebooks: hashes of their inputs, so that a notebook runs again only if an input has changed.

Inputs are the package, `data/`, `requirements.lock`, the notebook and its parameters.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from heshare.shared import files

NAME = "stamps.json"
"""The file of stamps, in `build/notebooks/`."""
_SOURCES = (".py", ".j2", ".css", ".js", ".html", ".yaml")


def stamp(notebook: Path, parameters: Mapping[str, object], records: Sequence[Path] = ()) -> str:
    """Return the current stamp of a notebook with its parameters and the records of its source."""
    values = {name: value for name, value in parameters.items() if name != "out_dir"}
    about = [files.sha256(notebook), values, _package_and_data(), *map(files.sha256, records)]
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _package_and_data() -> str:
    package = [path for path in sorted(files.PACKAGE.rglob("*")) if path.suffix in _SOURCES]
    inputs = [path for path in sorted(files.data().rglob("*")) if path.is_file()]
    lock = files.workplace() / "requirements.lock"

    sources = [*package, *inputs, *([lock] if lock.is_file() else [])]
    lines = [f"{files.sha256(path)} {path.name}\n" for path in sources]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def outputs_as_stamped(copies: Path, place: str, now: str) -> list[Path] | None:
    """Return the outputs of a notebook if they exist and have the stamp `now`, else None.

    Args:
        copies: the folder of the stamps.
        place: the notebook and the folder of its outputs, as text.
        now: the current stamp.
    """
    stamps = _read(copies).get(place, {})
    paths = [Path(name) for name in stamps.get("outputs", [])]
    good = stamps.get("stamp") == now and paths and all(path.is_file() for path in paths)
    return paths if good else None


def write(copies: Path, place: str, now: str, outputs: Sequence[Path]) -> None:
    """Write the stamp of the outputs of a notebook."""
    stamps = {**_read(copies), place: {"stamp": now, "outputs": [str(path) for path in outputs]}}
    files.write_text(copies / NAME, json.dumps(stamps, indent=1, sort_keys=True) + "\n")


def _read(copies: Path) -> dict[str, Any]:
    stamps: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        stamps = json.loads((copies / NAME).read_text(encoding="utf-8"))
    return stamps
