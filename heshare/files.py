"""Paths of the checkout's files, and atomic writing: a file is complete, or it is not there."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from heshare.errors import InputError

PACKAGE = Path(__file__).resolve().parent


def root() -> Path:
    """Return the checkout's top folder (the one with `pyproject.toml`), or `HESHARE_ROOT` if it is set."""
    override = os.environ.get("HESHARE_ROOT")
    if override:
        return Path(override).resolve()
    return PACKAGE.parent


def data(*parts: str) -> Path:
    """Return a path under the checkout's `data/`.

    Raises:
        InputError: the file does not exist.
    """
    path = root().joinpath("data", *parts)
    if not path.exists():
        raise InputError(
            "no such file",
            "a file of the checkout's data/ folder",
            "Run from a clone of the repository, or set HESHARE_ROOT to one.",
            file=path,
        )
    return path


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, hexadecimal."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_atomic(target: str | Path, write: Callable[[Path], object]) -> Path:
    """Call `write` with a temporary path beside `target`, rename that file to `target`, and return it.

    If `write` raises, `target` stays as it was.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_text(target: str | Path, text: str) -> Path:
    """Write `text` to `target` in UTF-8 with Unix line ends, atomically."""
    return write_atomic(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))
