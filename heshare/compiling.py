"""Numba decorators: compiled functions are kept on disk and use strict IEEE arithmetic, as their numpy forms do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit

from heshare import files

_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def _kept_for_the_user() -> Iterator[None]:
    """Let numba keep what it compiles in the user's cache; in a clone, or with `NUMBA_CACHE_DIR`, where it does anyway.

    Beside the sources of an installed package it would leave files that nobody removes with the package.
    """
    settings = cast(Any, config)
    before = settings.CACHE_DIR
    if not before and not files.in_clone():
        settings.CACHE_DIR = str(files.user_cache() / "numba")
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def _compiler(**options: Any) -> Callable[[_F], _F]:
    def decorate(function: _F) -> _F:
        with _kept_for_the_user():
            return cast(_F, njit(cache=True, fastmath=False, **options)(function))

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


def compiling() -> bool:
    """Return whether numba compiles at all; with `NUMBA_DISABLE_JIT=1` the numpy forms are used."""
    return not bool(getattr(config, "DISABLE_JIT"))  # noqa: B009 (numba sets its settings at run time)


@compiled
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
