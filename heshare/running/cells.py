"""Finished cells of a sweep, kept on disk: a small file each, named by the hash of all that decides its result.

A file is written whole or not at all, and carries the hash of its own content: one that was torn or changed counts
as not there. While a cell is computed its name is locked, so that no two processes compute it; the system lets the
lock of a dead process go.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare import files

Description = Mapping[str, Any]
"""All that decides a cell's result, as JSON knows it."""
Row = dict[str, float | int | str | None]
"""A cell's result."""

_LOG = logging.getLogger(__name__)


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values, whatever the order of their keys.

    Raises:
        ValueError: a number is not finite.
        TypeError: something that JSON does not know.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key(description: Description, code: str) -> str:
    """The SHA-256 that names a cell: of its description and of the code and data that compute it."""
    return _digest(canonical({"cell": description, "code": code}))


def plain(row: Mapping[str, Any]) -> Row:
    """A row as it comes back from disk: NumPy's numbers become Python's."""
    found: Row = json.loads(_encode(row))
    return found


@dataclass(frozen=True, slots=True)
class Cells:
    """A folder of finished cells.

    Attributes:
        folder: where they are; made when the first one is written.
    """

    folder: Path

    def path(self, name: str) -> Path:
        """The file of a cell."""
        return self.folder / name[:2] / f"{name}.json"

    def read(self, name: str) -> Row | None:
        """The row of a finished cell; None if it is not there or not whole."""
        path = self.path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            text = ""
        digest, _, content = text.partition("\n")
        if digest == _digest(content):
            found = json.loads(content)
            if found["key"] == name:
                row: Row = found["row"]
                return row
        _LOG.warning("%s is damaged; its cell is computed again", path)
        return None

    def write(self, name: str, description: Description, row: Mapping[str, Any]) -> None:
        """Keep a finished cell."""
        content = f'{{"key":"{name}","cell":{canonical(description)},"row":{_encode(row)}}}\n'
        path = self.path(name)
        # Whoever holds the cell's lock is alone with its name: what an earlier attempt left half written goes.
        path.parent.mkdir(parents=True, exist_ok=True)
        for torn in [one for one in path.parent.iterdir() if one.name.startswith(f".{name}-")]:
            torn.unlink(missing_ok=True)
        files.write_text(path, f"{_digest(content)}\n{content}")

    @contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[None]:
        """Be the only process that computes these cells; waits for others that do. In one order, so never in a ring.

        On a file system without locks every process goes ahead; results are the same, work may be done twice.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # One byte of one file for each name, far beyond the file's end.
            for place in sorted({int(name[:15], 16) for name in names}):
                with suppress(OSError):
                    fcntl.lockf(handle, fcntl.LOCK_EX, 1, place)
            yield
        finally:
            os.close(handle)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), separators=(",", ":"), ensure_ascii=False, default=_item)


def _item(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a cell's row holds a {type(value).__name__}; rows are numbers and text")
