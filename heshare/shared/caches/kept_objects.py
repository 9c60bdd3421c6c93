"""Objects that take long to compute, in one file for each name, valid for one key.

A file that is missing, damaged, or of another key is computed again and replaced. It is a pickle, in folders that only
this user can write, as what numba keeps. Two processes may compute the same object at once: each replaces the file as a
whole.
"""

import hashlib
import os
import pickle
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from heshare.shared import files
from heshare.shared.caches.cache_folders import cache_folders
from heshare.shared.code_version import files_hash

_DIGEST = hashlib.sha256().digest_size


def key_of(paths: Iterable[Path], libraries: Iterable[str], *settings: object) -> str:
    """Return a SHA-256 over the bytes of files, versions of libraries and of Python, the processor, and settings."""
    versions = [(name, metadata.version(name)) for name in libraries]
    facts = repr((versions, platform.python_version(), platform.machine(), settings))
    return hashlib.sha256(files_hash(paths).encode() + facts.encode()).hexdigest()


def load_kept(name: str, key: str) -> Any | None:
    """Return the object that was kept under a name; None if no whole file has that key."""
    for folder in _folders():
        with suppress(OSError):
            content = (folder / f"{name}.pickle").read_bytes()
            if content[:_DIGEST] == _digest(key, content[_DIGEST:]):
                return pickle.loads(content[_DIGEST:])
    return None


def keep(name: str, key: str, value: object) -> Path | None:
    """Keep an object under a name, in place of what was there; None where no folder can be written."""
    pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    content = _digest(key, pickled) + pickled
    for folder in _folders():
        if not os.access(folder, os.W_OK | os.X_OK):
            continue
        with suppress(OSError):
            return files.write_atomic(folder / f"{name}.pickle", lambda path: path.write_bytes(content))
    return None


def _digest(key: str, pickled: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + pickled).digest()


def _folders() -> Iterator[Path]:
    # Beside what is compiled of a clone, or in the user's cache.
    if files.in_clone():
        folder = files.PACKAGE / "__pycache__"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
        yield folder
    yield from cache_folders("arrays")
