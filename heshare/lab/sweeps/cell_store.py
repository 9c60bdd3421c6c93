"""Store of a sweep's finished cells on disk: one small file each, named by the hash of all inputs of its result.

A file is written whole or not at all and contains the hash of its own content; a damaged file counts as missing. While
a cell is computed its name is locked, so that no two processes compute it. The system releases the lock of a process
that has ended, however it ended.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.shared import files
from heshare.shared.file_lock import lock_bytes

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
    """A folder of finished cells.

    Attributes:
        folder: the folder; made when the first cell is written.
    """

    folder: Path

    def path(self, name: str) -> Path:
        """Return the file of a cell."""
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
        """Write a finished cell. The caller holds its lock."""
        content = f'{{"key":"{name}","cell":{canonical_json(description)},"row":{_row_json(row)}}}\n'
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Temporary files of a process that was killed while it wrote this cell: with the lock held, no other writes it.
        for torn in [file for file in path.parent.iterdir() if file.name.startswith(f".{name}-")]:
            torn.unlink(missing_ok=True)
        if path.is_fifo():
            path.unlink()  # writing would wait for a reader
        files.write_text(path, f"{_digest(content)}\n{content}")

    @contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[None]:
        """Lock cells, so that this process alone computes them; wait for processes that hold a lock.

        On a file system without locks no process waits; the results are the same, but work may be done twice.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # One byte of one file for each name, far beyond the file's end.
        with lock_bytes(self.folder / ".lock", (int(name[:15], 16) for name in names)):
            yield


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _row_json(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), separators=(",", ":"), ensure_ascii=False, default=_item)


def _item(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a cell's row holds a {type(value).__name__}; rows are numbers and text")
