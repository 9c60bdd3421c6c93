"""Decorators of compiled functions: those of numba with its cache on disk, which no function needs to run.

numba raises an error if a compiled function cannot be written, such as on a full disk. Here that is a warning, and the
function is compiled again by the next process.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, TypeVar, cast

import numba

from heshare.shared.disk_cache import NotCachedWarning

_F = TypeVar("_F", bound=Callable[..., Any])


def njit(*, cache: bool = True, error_model: Literal["python", "numpy"] = "python") -> Callable[[_F], _F]:
    """Compile a function when it is first called, as `numba.njit`."""

    def decorate(function: _F) -> _F:
        made: Any = numba.njit(cache=cache, error_model=error_model)(function)
        if made is function:  # NUMBA_DISABLE_JIT
            return function
        made._cache._guard_against_spurious_io_errors = _warning_of_errors
        return cast(_F, made)

    return decorate


def vectorize(signatures: Sequence[str], *, cache: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of numbers to a NumPy function of arrays for these signatures, as `numba.vectorize`."""

    def decorate(function: Callable[..., Any]) -> Any:
        made: Any = numba.vectorize(cache=cache)(function)  # type: ignore[no-untyped-call]
        made._dispatcher.cache._guard_against_spurious_io_errors = _warning_of_errors
        for signature in signatures:
            made.add(signature)
        made.disable_compile()
        return made

    return decorate


@contextmanager
def _warning_of_errors() -> Iterator[None]:
    # In place of the context in which numba reads and writes its cache; on POSIX its own does nothing.
    try:
        yield
    except OSError as error:
        _warn(error.strerror or str(error))


@cache
def _warn(reason: str) -> None:
    text = f"numba's cache cannot be used ({reason}), so functions are compiled again every time"
    warnings.warn(f"{text}; set NUMBA_CACHE_DIR to a folder with space", NotCachedWarning, stacklevel=2)
