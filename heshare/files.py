"""Where the project's files are, and how to write one so that nobody ever sees half of it."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heshare.errors import InputError

PACKAGE = Path(__file__).resolve().parent


def root() -> Path:
    """The checkout's top folder (the one with `pyproject.toml`), whatever the working directory is."""
    override = os.environ.get("HESHARE_ROOT")
    if override:
        return Path(override).resolve()
    return PACKAGE.parent


def data(*parts: str) -> Path:
    """A path under the checkout's `data/`.

    Raises:
        InputError: the file does not exist.
    """
    path = root().joinpath("data", *parts)
    if not path.exists():
        raise InputError(
            file=path,
            found="no such file",
            expected="a file of the checkout's data/ folder",
            action="Run from a clone of the repository, or set HESHARE_ROOT to one.",
        )
    return path


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it over `target` on success, delete it on failure."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(target: str | Path, write: Callable[[Path], object]) -> Path:
    """Call `write(temporary_path)` and put the result at `target` in one step."""
    with atomic_path(target) as temporary:
        write(temporary)
    return Path(target)


def write_text(target: str | Path, text: str) -> Path:
    """Write `text` to `target` in UTF-8 with Unix line ends, whole or not at all."""
    return write_atomic(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


def journal_line(entry: Mapping[str, Any]) -> bytes:
    """An entry of a journal as a line: JSON, a tab, its checksum."""
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def journal_entry(line: bytes) -> dict[str, Any] | None:
    """What a line of a journal, without its end, says; None if it is damaged."""
    text, _, checksum = line.rpartition(b"\t")
    if not text or checksum != b"%08x" % zlib.crc32(text):
        return None
    found = json.loads(text)
    return found if isinstance(found, dict) else None
