"""Arrays that take long to compute, in one .npz file for each name, valid for one key.

A file that is missing, damaged, or of another key is computed again and replaced. It holds numbers and texts, no
pickled objects. Two processes may compute the same arrays at once: each replaces the file as a whole.
"""

import hashlib
import os
import platform
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from heshare.shared import files
from heshare.shared.caches.cache_folders import cache_folders

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Arrays of numbers or of texts by name."""
_KEY = "key"
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def key_of(paths: Iterable[Path], libraries: Iterable[str], *settings: object) -> str:
    """Return a SHA-256 over files, versions of libraries and of Python, the processor's kind, and settings.

    The path of a file does not count, only its bytes and its place in the order.
    """
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        # With its length, so that bytes cannot move from one file to the next unseen.
        digest.update(b"%d\0" % len(content) + content)
    versions = [(name, metadata.version(name)) for name in libraries]
    digest.update(repr((versions, platform.python_version(), platform.machine(), settings)).encode())
    return digest.hexdigest()


def package_files(parts: Iterable[str], tables: Iterable[str]) -> list[Path]:
    """Return the sources of parts of the package, with the modules at its top, and files of `data/`, in one order.

    Args:
        parts: folders of the package.
        tables: folders of `data/`; the tables at its top are always among the files.
    """
    package, data = files.PACKAGE, files.data()
    code = [*package.glob("*.py"), *(path for part in parts for path in (package / part).rglob("*.py"))]
    below = [path for part in tables for path in (data / part).rglob("*") if path.is_file() and path.name[0] != "."]
    return [*sorted(code), *sorted([*data.glob("*.csv"), *below])]


def load_arrays(name: str, key: str) -> Arrays | None:
    """Return the stored arrays of a name; None if no readable file has that key."""
    for folder in _folders():
        with suppress(*_UNREADABLE), (folder / f"{name}.npz").open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if stored[_KEY].item() == key:
                return {part: stored[part] for part in stored.files}  # reading to the end checks each part's CRC
    return None


def save_arrays(name: str, key: str, arrays: Arrays) -> Path | None:
    """Store arrays under a name, in place of those that were there; None where no folder can be written."""
    for folder in _folders():
        if not os.access(folder, os.W_OK | os.X_OK):
            continue
        with suppress(OSError):
            return files.write_atomic(
                folder / f"{name}.npz",
                lambda path: np.savez(path, allow_pickle=False, **{_KEY: np.array(key)}, **arrays),
            )
    return None


def _folders() -> Iterator[Path]:
    """Yield the folders of stored arrays, the best first: beside what is compiled of a clone, or the user's cache."""
    if files.in_clone():
        folder = files.PACKAGE / "__pycache__"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
        yield folder
    yield from cache_folders("arrays")
