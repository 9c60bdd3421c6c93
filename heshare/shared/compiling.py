"""Decorators of functions that numba compiles: kept on disk, with strict IEEE arithmetic, as their numpy forms have.

Without numba (the extra `fast`) they run as Python, with the same bytes. That, and the first compilation of a process,
is told in one line on stderr, unless `compilation_told_by` says otherwise. `python -m heshare.lab.compile_all` compiles
everything ahead.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar, cast

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


@cache
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


def compiler(plain: Callable[..., Any] | None = None, **options: Any) -> Callable[[_F], _F]:
    """Return a decorator as `compiled`; without numba `plain` runs."""

    def decorate(function: _F) -> _F:
        make = _maker()
        if make is not None:
            return cast(_F, make(function, **options))
        _tell_of_no_numba()
        return cast(_F, plain or function)

    return decorate


compiled = compiler()
"""Decorator: compile with numba, keep the result on disk, use strict IEEE arithmetic."""
allocation_free = compiler(_nrt=False)
"""Decorator: compile as `compiled` does, without reference counts, for functions that create no array.

Numba counts the references to every array argument in every call. A function that only does arithmetic on many arrays
spends most of its time on that.
"""
inlined = compiler(_nrt=False, inline="always")
"""Decorator: compile as `allocation_free` does, and copy the function into its callers.

A call also copies the descriptors of all arrays of a tuple argument; an inlined function saves that.
"""


class CompiledLater:
    """Decorator of a module's small functions: they run as Python, with the same bytes, until they are called often.

    So a process that estimates a few sets of workloads does not import numba, which takes longer than these estimates.
    `names` are the module's `globals()`; a function of it that others call calls `count`.
    """

    def __init__(self, names: dict[str, Any], calls: int) -> None:
        self._names, self._left, self._decorated = names, calls, list[str]()

    def __call__(self, function: _F) -> _F:
        self._decorated.append(function.__name__)
        return function

    def count(self) -> None:
        """Count a call; the last of the calls in Python compiles the functions."""
        self._left -= 1
        if self._left == 0:
            self.compile()

    def compile(self) -> None:
        """Compile the functions now, or load what is kept."""
        make, names, self._decorated = _maker(), self._decorated, []
        if make is not None:
            self._names.update({name: make(self._names[name]) for name in names})
