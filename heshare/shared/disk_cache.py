"""Disk cache of pickled results in the user's cache folder, keyed by the files and versions that they depend on."""

import hashlib
import pickle
import platform
import warnings
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from heshare.shared import files
from heshare.shared.code_version import files_hash
from heshare.shared.version import __version__

_T = TypeVar("_T")


class NotCachedWarning(UserWarning):
    """A result cannot be cached on disk, so it is computed again the next time."""


def key_of(paths: Iterable[Path], libraries: Iterable[str]) -> str:
    """Return a hash of the bytes of files, the versions of libraries, of this package and of Python, the processor."""
    versions = [(name, metadata.version(name)) for name in libraries]
    facts = repr((files_hash(paths), versions, __version__, platform.python_version(), platform.machine()))
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def cached(name: str, key: str, make: Callable[[], _T]) -> _T:
    """Return the cached object of a name and a key; without one, call `make` and cache what it returns.

    The file is a pickle, `$XDG_CACHE_HOME/heshare/NAME-KEY.pickle` (`~/.cache/heshare`), which only the user may write.
    A damaged file is replaced; where no file can be written, a `NotCachedWarning` names it.
    """
    try:
        path = files.user_cache() / f"{name}-{key}.pickle"
    except RuntimeError:  # no home folder
        path = Path("~/.cache/heshare") / f"{name}-{key}.pickle"
    try:
        with path.open("rb") as stream:
            found: _T = pickle.load(stream)
        return found
    except Exception:  # missing or damaged: of damaged bytes pickle makes errors of every kind
        made = make()

    try:
        files.write_atomic(path, lambda temporary: temporary.write_bytes(pickle.dumps(made)), private=True)
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written ({error.strerror}), so it is computed again every time; set XDG_CACHE_HOME to "
            "another folder",
            NotCachedWarning,
            stacklevel=2,
        )
    return made
