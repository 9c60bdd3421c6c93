"""Decorators of functions that numba compiles: kept on disk, with strict IEEE arithmetic, as their numpy forms have.

Numba is imported when a function needs it, since that outlasts an estimate; without it (the extra `fast`) they run as
Python, with the same bytes. That, and the first compilation of a process, is told in one line on stderr, unless
`compilation_told_by` says otherwise. `heshare compile` compiles everything ahead.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np

_F = TypeVar("_F", bound=Callable[..., Any])
Tell = Callable[[str], object]
_PLAIN_CALLS = 30_000
"""Calls of small functions that run as Python before numba is imported: they take a tenth of its time."""
_LOADING = RLock()


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


class Late:
    """A function that is compiled, or taken as it is without numba, when first needed, and then replaces this object.

    The first calls of a `small` one run as Python; `plain` is the form that runs without numba.
    """

    def __init__(self, function: Any, small: bool = False, plain: Any = None, **options: Any) -> None:
        update_wrapper(self, function)
        self.function, self.small, self.plain, self.options = function, small, plain or function, options
        # What its module had before the first of them.
        self.scope = _scopes.setdefault(function.__module__, dict(function.__globals__))
        self.made: Any = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        global _plain_calls
        if self.made is None and self.small and _plain_calls < _PLAIN_CALLS:
            _plain_calls += 1
            return self.function(*args, **named)
        return self.ready()(*args, **named)

    def ready(self) -> Any:
        """Return the compiled function, or without numba the function; all others are made ready too."""
        with _LOADING:
            if self.made is None:
                _load()
            return self.made


_plain_calls = 0
_waiting: list[Late] = []
_scopes: dict[str, dict[str, Any]] = {}
_make: Callable[[Late], Any] | None = None


def _load() -> None:
    # In the order of their definitions: what is compiled depends on the functions that it calls.
    global _make
    _make = make = _make or _maker()
    for late in _waiting:
        late.made = make(late)
    for name in [name for name in sys.modules if name.startswith("heshare.") or name in _scopes]:
        scope = vars(sys.modules[name])
        scope.update({key: value.made for key, value in scope.items() if type(value) is Late and value.made})
    _waiting.clear()


def _maker() -> Callable[[Late], Any]:
    try:
        from heshare.shared.caches.numba_code import compile_late
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        from heshare.shared.extras import install_command

        slow = "no numba in this environment: functions run as Python, with the same results and much slower"
        compilations.tell(f"{slow}; for speed: {install_command('fast')}")
        return lambda late: late.plain
    return compile_late


def compiler(**options: Any) -> Callable[[_F], _F]:
    """Return a decorator as `compiled`, with options of numba or of `Late`."""

    def decorate(function: _F) -> _F:
        late = Late(function, **options)
        with _LOADING:
            if _make is not None:
                return cast(_F, _make(late))
            _waiting.append(late)
        return cast(_F, late)

    return decorate


compiled = compiler()
"""Decorator: compile with numba, keep the result on disk, use strict IEEE arithmetic."""
small = compiler(small=True)
"""Decorator: compile as `compiled` does, but not before a process has made many calls, each of which is short."""
allocation_free = compiler(_nrt=False)
"""Decorator: compile as `compiled` does, without reference counts, for functions that create no array.

Numba counts the references to every array argument in every call. A function that only does arithmetic on many arrays
spends most of its time on that.
"""
inlined = compiler(_nrt=False, inline="always")
"""Decorator: compile as `allocation_free` does, and copy the function into its callers.

A call also copies the descriptors of all arrays of a tuple argument; an inlined function saves that.
"""


@compiled
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
