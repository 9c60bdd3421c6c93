"""Numba decorators: compiled functions are kept on disk and use strict IEEE arithmetic, as their numpy forms do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba import config, njit

_F = TypeVar("_F", bound=Callable[..., Any])
if TYPE_CHECKING:

    def compiled(function: _F) -> _F:
        """Compile with numba, keep the result on disk, use strict IEEE arithmetic."""
        ...

    def allocation_free(function: _F) -> _F:
        """Compile as `compiled` does, without reference counts: for functions that create no array."""
        ...

    def inlined(function: _F) -> _F:
        """Compile as `allocation_free` does, and copy the function into its callers."""
        ...
else:
    compiled = njit(cache=True, fastmath=False)
    # Numba counts the references to every array argument in every call. A function that only does arithmetic on many
    # arrays spends most of its time on that, so the counting is switched off for it.
    allocation_free = njit(cache=True, fastmath=False, _nrt=False)
    # A call also copies the descriptors of all arrays of a tuple argument; an inlined function saves that.
    inlined = njit(cache=True, fastmath=False, _nrt=False, inline="always")


def compiling() -> bool:
    """Return whether numba compiles at all; with `NUMBA_DISABLE_JIT=1` the numpy forms do the work."""
    return not bool(getattr(config, "DISABLE_JIT"))  # noqa: B009 (numba sets its settings at run time)


@compiled
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
