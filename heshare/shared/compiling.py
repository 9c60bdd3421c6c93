"""Numba decorators: compiled functions are kept on disk and use strict IEEE arithmetic, as their numpy forms do.

The first compilation of a process is told in one line on stderr, unless `compilation_told_by` says otherwise. `heshare
compile` compiles everything ahead.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import numpy as np

from heshare.shared import files
from heshare.shared.caches.cache_folders import cache_folders
from heshare.shared.errors import InputError

try:
    from numba import config, njit
    from numba.core import event
    from numba.core.dispatcher import Dispatcher
except ValueError as error:
    raise InputError(str(error), "settings that numba takes", "Correct the variables NUMBA_...") from error

_F = TypeVar("_F", bound=Callable[..., Any])
_settings = cast(Any, config)
Tell = Callable[[str], object]
"""Is called with a sentence once in a process, when something has to be compiled."""


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


def _compiler(**options: Any) -> Callable[[_F], _F]:
    def decorate(function: _F) -> _F:
        for folder in _cache_folders():
            # Numba raises a RuntimeError where it cannot write.
            with suppress(RuntimeError), _kept_in(folder):
                return cast(_F, _stamped(njit(cache=True, fastmath=False, **options)(function)))
        return cast(_F, njit(fastmath=False, **options)(function))

    return decorate


compiled = _compiler()
"""Decorator: compile with numba, keep the result on disk, use strict IEEE arithmetic."""
allocation_free = _compiler(_nrt=False)
"""Decorator: compile as `compiled` does, without reference counts, for functions that create no array.

Numba counts the references to every array argument in every call. A function that only does arithmetic on many arrays
spends most of its time on that.
"""
inlined = _compiler(_nrt=False, inline="always")
"""Decorator: compile as `allocation_free` does, and copy the function into its callers.

A call also copies the descriptors of all arrays of a tuple argument; an inlined function saves that.
"""


class Compilations(event.Listener):
    """Counts compilations of this package's functions by numba, and tells of the first one; loads do not count."""

    def __init__(self) -> None:
        self.count = 0
        self.tell: Tell = lambda text: print(f"heshare: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if not dispatcher.py_func.__module__.startswith("heshare."):
            return
        self.count += 1
        if self.count == 1:
            kept = dispatcher.stats.cache_path
            place = f"kept in {kept}" if kept else "not kept, since no folder can be written: set NUMBA_CACHE_DIR"
            self.tell(f"compiling for this machine, which takes about {TAKES}; {place}")

    def on_end(self, event: Any) -> None:
        """Do nothing."""


TAKES = "10 s for a plan and 30 s for an improved search"
"""How long the first compilation takes on two cores of 2020."""
compilations = Compilations()
cast(Any, event).register("numba:compile", compilations)


@contextmanager
def compilation_told_by(tell: Tell) -> Iterator[None]:
    before, compilations.tell = compilations.tell, tell
    try:
        yield
    finally:
        compilations.tell = before


@compiled
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
