"""Compiled functions: numba, kept on disk, in strict IEEE arithmetic, so that they give what their numpy forms give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from numba import config, njit

_F = TypeVar("_F", bound=Callable[..., Any])
if TYPE_CHECKING:

    def compiled(function: _F) -> _F:
        """Compile with numba, kept on disk, in strict IEEE arithmetic."""
        ...
else:
    compiled = njit(cache=True, fastmath=False)


def compiling() -> bool:
    """Whether numba compiles at all; `NUMBA_DISABLE_JIT=1` says no, and the numpy forms do the work."""
    return not bool(getattr(config, "DISABLE_JIT"))  # noqa: B009 (numba sets its settings at run time)
