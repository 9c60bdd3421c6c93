"""Work that is not timed, in two processes at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

PROCESSES = 2


def in_processes(call: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """Return the results of `map(call, *arguments)` from two new processes."""
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(call, *arguments))
