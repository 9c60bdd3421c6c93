"""Compiled functions: their cache on disk is optional."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile

from heshare.shared import compiled
from heshare.shared.disk_cache import NotCachedWarning


def twice(x: float) -> float:
    return 2 * x


def square(x: Any) -> Any:
    return x * x


def test_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a compiled function cannot be cached, it runs, and one warning names the variable of the folder."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def results() -> list[Any]:
        compiled_twice = compiled.njit(cache=True)(twice)
        compiled_square = compiled.vectorize(["float64(float64)"])(square)
        return [compiled_twice(3.0), *compiled_square(np.array([2.0, 3.0]))]

    monkeypatch.setattr(IndexDataCacheFile, "load", lambda *_: None)
    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    compiled._warn.cache_clear()
    with pytest.warns(NotCachedWarning, match="NUMBA_CACHE_DIR") as caught:
        found = results()
    assert found == [6.0, 4.0, 9.0]
    assert len(caught) == 1
