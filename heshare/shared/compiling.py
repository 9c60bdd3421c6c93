"""Decorators of numba, for modules that do not import it themselves yet."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])
_options: Any = njit


def compiled(function: _F) -> _F:
    return cast(_F, _options(cache=True)(function))


def allocation_free(function: _F) -> _F:
    return cast(_F, _options(cache=True, _nrt=False)(function))


def inlined(function: _F) -> _F:
    return cast(_F, _options(cache=True, _nrt=False, inline="always")(function))
