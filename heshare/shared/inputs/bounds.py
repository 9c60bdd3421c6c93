"""Largest sizes and times that are accepted: beyond them an input is a mistake, or an attempt to exhaust the machine.

They are far above what anyone schedules, and below what is no longer exact or no longer fits into memory.
"""

import re
from numbers import Integral
from typing import Any

from heshare.shared import display
from heshare.shared.errors import require

MOST_GPUS = 100_000
"""GPUs of a cluster: the largest that have been built have as many."""

MOST_TASKS = 1_000_000
"""Tasks that are drawn at once: four times the jobs of Helios' Venus; a task takes about 3 kB."""

MOST_BATCH = 1_000_000
"""Inference batch size: a thousand times what the largest card holds of the smallest network."""

MOST_S = 1e9
"""Arrivals, deadlines and durations, s: 32 years. A double of that size is exact to 0.2 microseconds."""

MOST_ITERATIONS = 1e15
"""Iterations of a task: a double counts whole numbers exactly up to nine times as many."""

MOST_SAMPLES = 100_000
"""Samples or repeats of a recording: a second each is more than a day."""

MOST_PROCESSES = 1024
"""Processes of this machine: a large server's cores."""

MOST_CELLS = 1_000_000
"""Cells of a grid: its description is held in memory, and a file is written for each."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def parse_whole(text: str, column: str, *, least: int, most: int, found: str = "") -> int:
    """Return the whole number that a text is; in errors, `column` is its place, and `found` shows more of it."""
    value = int(text) if _WHOLE.fullmatch(text) else None
    good = value is not None and least <= value <= most
    require(
        column,
        repr(found or text),
        good,
        f"a whole number of at least {least} and at most {most}",
        "Correct the number.",
    )
    assert value is not None
    return value


def check_whole(column: str, value: Any, *, least: int) -> int:
    """Return a whole number of at least `least`, of Python or NumPy; `column` names it in the error."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(column, display.found(value), good, f"a whole number of at least {least}", "Correct the argument.")
    return int(value)
