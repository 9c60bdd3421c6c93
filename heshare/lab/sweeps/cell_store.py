"""Store of a sweep's finished cells on disk: one small file each, named by the hash of all inputs of its result.

A file is written whole or not at all and contains the hash of its own content; a damaged file counts as missing. Two
sweeps at the same time may compute a cell twice, with the same result.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.lab.sweeps.resolve import plain_number
from heshare.shared import files

Description = Mapping[str, Any]
"""All inputs of a cell's result, as JSON values."""
Row = dict[str, float | int | str | None]
"""A cell's result."""

_LOG = logging.getLogger(__name__)


def canonical_json(value: Any) -> str:
    """Return JSON text that is the same for equal values, whatever the order of their keys.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value that JSON cannot express.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def cell_key(description: Description, code: str) -> str:
    """Return the SHA-256 that names a cell: of its description and of the code and data that compute it."""
    return _digest(canonical_json({"cell": description, "code": code}))


def plain_row(row: Mapping[str, Any]) -> Row:
    """Return a row as it is read from disk: NumPy's numbers become Python's."""
    plain: Row = json.loads(_row_json(row))
    return plain


@dataclass(frozen=True, slots=True)
class CellStore:
    """A folder of finished cells, made when the first one is written."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.json"

    def read(self, name: str) -> Row | None:
        """Return the row of a finished cell; None if its file is missing or damaged."""
        path = self.path(name)
        try:
            text = files.read_input(path)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            text = ""
        digest, _, content = text.partition("\n")
        if digest == _digest(content):
            cell = json.loads(content)
            if cell["key"] == name:
                row: Row = cell["row"]
                return row
        _LOG.warning("%s is damaged; its cell is computed again", path)
        return None

    def read_all(self, names: Iterable[str]) -> dict[str, Row]:
        """Return, by name, the rows of those cells that are finished."""
        rows = {name: self.read(name) for name in names}
        return {name: row for name, row in rows.items() if row is not None}

    def write(self, name: str, description: Description, row: Mapping[str, Any]) -> None:
        content = f'{{"key":"{name}","cell":{canonical_json(description)},"row":{_row_json(row)}}}\n'
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, f"{_digest(content)}\n{content}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _row_json(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), separators=(",", ":"), ensure_ascii=False, default=plain_number)
