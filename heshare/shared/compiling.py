"""Decorators of functions that numba compiles: kept on disk, with strict IEEE arithmetic, as their numpy forms have.

Without numba (the extra `fast`) they run as Python, with the same bytes. That, and the first compilation of a process,
is told in one line on stderr, unless `compilation_told_by` says otherwise. `heshare compile` compiles everything ahead.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

_F = TypeVar("_F", bound=Callable[..., Any])
Tell = Callable[[str], object]


class Compilations:
    """Counts compilations of this package's functions by numba, and tells of the first one; loads do not count."""

    def __init__(self) -> None:
        self.count = 0
        self.tell: Tell = lambda text: print(f"heshare: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def add(self, kept: str) -> None:
        self.count += 1
        if self.count == 1:
            place = f"kept in {kept}" if kept else "not kept, since no folder can be written: set NUMBA_CACHE_DIR"
            takes = "10 s for a plan and 30 s for an improved search"  # on two cores of 2020
            self.tell(f"compiling for this machine, which takes about {takes}; {place}")


compilations = Compilations()


@contextmanager
def compilation_told_by(tell: Tell) -> Iterator[None]:
    before, compilations.tell = compilations.tell, tell
    try:
        yield
    finally:
        compilations.tell = before


def _maker() -> Callable[..., Any] | None:
    try:
        from heshare.shared.caches.numba_code import compile_function
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        return None
    return compile_function


@cache
def _tell_of_no_numba() -> None:
    from heshare.shared.extras import install_command

    slow = "no numba in this environment: functions run as Python, with the same results and much slower"
    compilations.tell(f"{slow}; {install_command('fast')} for speed")


def compiler(plain: Callable[..., Any] | None = None, small: bool = False, **options: Any) -> Callable[[_F], _F]:
    """Return a decorator as `compiled`; without numba `plain` runs, and a `small` function is not told of."""

    def decorate(function: _F) -> _F:
        if _make is not None:
            return cast(_F, _make(function, **options))
        if not small:
            _tell_of_no_numba()
        return cast(_F, plain or function)

    return decorate


_make = _maker()
compiled = compiler()
"""Decorator: compile with numba, keep the result on disk, use strict IEEE arithmetic."""
small = compiler(small=True)
"""Decorator: compile as `compiled` does a function that is short and fast enough as Python."""
allocation_free = compiler(_nrt=False)
"""Decorator: compile as `compiled` does, without reference counts, for functions that create no array.

Numba counts the references to every array argument in every call. A function that only does arithmetic on many arrays
spends most of its time on that.
"""
inlined = compiler(_nrt=False, inline="always")
"""Decorator: compile as `allocation_free` does, and copy the function into its callers.

A call also copies the descriptors of all arrays of a tuple argument; an inlined function saves that.
"""


@small
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
