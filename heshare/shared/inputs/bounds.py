"""Upper bounds of sizes and times in inputs.

They are far above realistic values, and low enough that floats stay exact and the data fit into memory.
"""

import re
from numbers import Integral
from typing import Any

from heshare.shared import display
from heshare.shared.errors import require

MOST_GPUS = 100_000
"""GPUs of a cluster: as many as the largest existing clusters have."""

MOST_TASKS = 1_000_000
"""Tasks of a drawn task set: four times the jobs of Helios' Venus; a task takes about 3 kB."""

MOST_BATCH = 1_000_000
"""Inference batch size: a thousand times the most that fits on the largest GPU with the smallest network."""

MOST_S = 1e9
"""Arrivals, deadlines and durations, s: 32 years. A double of that size is exact to 0.2 microseconds."""

MOST_ITERATIONS = 1e15
"""Iterations of a task: a double is exact for whole numbers up to nine times as many."""

MOST_LOAD = 10.0
"""Offered load of a cluster: at ten times what it can do, nearly all tasks wait from the start; 80 is 80 %."""

MOST_SAMPLES = 100_000
"""Samples or repeats of a recording: at one second each, more than a day."""

MOST_PROCESSES = 1024
"""Worker processes: the number of cores of a large server."""

MOST_CELLS = 1_000_000
"""Cells of a grid: their descriptions are in memory, and each gets a file."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def parse_whole(text: str, column: str, *, least: int, most: int, found: str = "") -> int:
    """Return the whole number in a text; in errors, `column` names its place, and `found` is shown instead of it."""
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
