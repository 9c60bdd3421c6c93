"""Compiled code of numba: made, kept on disk, and not taken once what it was made of has changed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from heshare.shared import compiling, files
from heshare.shared.caches.cache_folders import cache_folders
from heshare.shared.errors import InputError
from heshare.shared.plugins import without_library

try:
    with without_library("scipy.linalg"):  # slow to import; numba has its products of matrices, and none is used here
        from numba.np import arraymath  # noqa: F401
    from numba import config, njit
    from numba.core import event
    from numba.core.dispatcher import Dispatcher
except ValueError as error:
    raise InputError(str(error), "settings that numba takes", "Correct the variables NUMBA_...") from error

_settings = cast(Any, config)


def _cache_folders() -> Iterator[str]:
    # That is `NUMBA_CACHE_DIR`, or beside the sources of a clone. Beside those of an installed package it would leave
    # files that nobody removes with the package, so there it is one of `cache_folders`. An empty text is numba's own
    # choice.
    if _settings.CACHE_DIR or (files.in_clone() and os.access(files.PACKAGE, os.W_OK)):
        yield ""
    yield from map(str, cache_folders("numba"))


@contextmanager
def _kept_in(folder: str) -> Iterator[None]:
    before = _settings.CACHE_DIR
    _settings.CACHE_DIR = folder or before
    try:
        yield
    finally:
        _settings.CACHE_DIR = before


_imports: dict[str, list[str]] = {}
"""By module: what its compiled functions may take from other modules."""


def _stamped(function: Any) -> Any:
    # Numba compares the text of the function's own file. The code of functions of other files, the values of their
    # constants and the order of a NamedTuple's fields are part of the compiled code as well.
    if not isinstance(function, Dispatcher):  # NUMBA_DISABLE_JIT
        return function
    module, names = function.py_func.__module__, function.py_func.__globals__
    if module not in _imports:
        taken = ((name, _stamp(value)) for name, value in names.items() if not name.startswith("__"))
        _imports[module] = sorted(f"{name} {stamp}" for name, stamp in taken)
    own = cast(Any, function)._cache._cache_file
    text = repr((own._source_stamp, _imports[module]))
    own._source_stamp = hashlib.sha256(text.encode()).hexdigest()
    return function


def _stamp(value: object) -> object:
    if isinstance(value, Dispatcher):
        return getattr(getattr(cast(Any, value)._cache, "_cache_file", None), "_source_stamp", None)
    return value if isinstance(value, int | float | tuple) else getattr(value, "_fields", None)


def compile_function(function: Any, **options: Any) -> Any:
    """Return numba's dispatcher of a function, with a cache in the first folder that can be written."""
    for folder in _cache_folders():
        # Numba raises a RuntimeError where it cannot write.
        with suppress(RuntimeError), _kept_in(folder):
            return _stamped(njit(cache=True, fastmath=False, **options)(function))
    return njit(fastmath=False, **options)(function)


class _Listener(event.Listener):
    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if dispatcher.py_func.__module__.startswith("heshare."):
            compiling.compilations.add(dispatcher.stats.cache_path)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


cast(Any, event).register("numba:compile", _Listener())
