"""Arrivals of a task set: at once, drawn by a mean interval, or those of a trace; and their notation with a load."""

import re
from collections.abc import Sequence
from numbers import Real
from pathlib import Path

import numpy as np

from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require, unknown
from heshare.shared.inputs.bounds import MOST_LOAD, MOST_S
from heshare.shared.inputs.foreign_table import columns_of, read_foreign
from heshare.world.job_trace import read_trace

DRAWN = ("exponential", "miso", "front_loaded")
"""Kinds of arrivals that are drawn, with a mean interval."""
ARRIVALS = ("at_once", *DRAWN)
Arrivals = str | Path | Sequence[float]
"""One of `ARRIVALS`, a CSV file, or the arrivals in seconds; a text may end in `@LOAD`, such as `exponential@0.8`."""
INTERVAL_S = 60.0
_AT_LOAD = re.compile(r"^(?P<kind>.+)@(?P<load>[0-9]+(\.[0-9]*)?)$")
_RENAMED = "poisson"


def arrivals_s(
    n: int, *, rng: np.random.Generator, arrivals: Arrivals = "at_once", interval_s: float = INTERVAL_S
) -> FloatArray:
    """Return the arrivals of n tasks, s, never decreasing, shape (n,).

    Args:
        n: how many tasks.
        rng: the source of randomness; `at_once` and a trace draw nothing.
        arrivals: `at_once`: all at zero. `exponential`: a Poisson process, whose intervals have a coefficient of
            variation of 1. `miso`: intervals are whole seconds, drawn as MISO's code does, which vary by 13 % alone at
            a mean of 60 s. `front_loaded`: the same, but half the mean for the first third of the tasks (MISO's own
            recipe). Or a trace, whose first n arrivals count: seconds in ascending order, or a CSV file with the column
            `arrival_s`, or one of jobs of Helios (`heshare.world.job_trace`).
        interval_s: mean time between two arrivals that are drawn, s.

    Raises:
        InputError: an unknown kind of arrivals, a trace that is too short or bad, or an interval that is not a finite
            number above zero.
    """
    arrivals = check_arrivals(arrivals)
    good = isinstance(interval_s, Real) and not isinstance(interval_s, bool) and 0 < interval_s < float("inf")
    require("interval_s", interval_s, good, "a finite number above zero", "Correct the argument.")
    if arrivals == "at_once":
        return np.zeros(n)
    if arrivals == "exponential":
        return np.cumsum(rng.exponential(interval_s, n))
    if arrivals in DRAWN:
        mean_s = np.full(n, float(interval_s))
        if arrivals == "front_loaded":
            mean_s[: n // 3] /= 2
        return np.cumsum(rng.poisson(mean_s)).astype(np.float64)
    times_s = _file_s(arrivals, n) if isinstance(arrivals, str) else np.array(arrivals[:n])
    expected = f"at least {n}, one for each task"
    require(
        "arrivals", f"{len(times_s)} arrivals", len(times_s) == n, expected, "Draw fewer tasks, or give a longer one."
    )
    good = bool((np.diff(times_s) >= 0).all())
    require("arrivals", "an arrival before the one above it", good, "arrivals in ascending order", "Sort them.")
    return times_s


def check_arrivals(arrivals: object) -> str | tuple[float, ...]:
    """Return arrivals as a kind, the path of a file that exists, or numbers; the notation `@LOAD` is not part of it.

    Raises:
        InputError: neither of these.
    """
    if isinstance(arrivals, str | Path):
        text = str(arrivals)
        action = "The draw of that name is `miso` now, whole seconds near the mean; a Poisson process is `exponential`."
        require("arrivals", repr(text), text.lower() != _RENAMED, "one of " + ", ".join(ARRIVALS), action)
        if text not in ARRIVALS and not Path(text).is_file():
            raise unknown(text, ARRIVALS, "Choose one of those, or name a CSV file that exists.", column="arrivals")
        return text
    try:
        times_s = np.asarray(arrivals, dtype=np.float64)
    except (TypeError, ValueError):
        times_s = np.zeros(0)
    good = times_s.ndim == 1 and times_s.size > 0 and bool((np.isfinite(times_s) & (times_s >= 0)).all())
    expected = "one of " + ", ".join(ARRIVALS) + ", a CSV file, or a list of finite seconds of at least zero"
    require("arrivals", type(arrivals).__name__, good, expected, "Correct the argument.")
    return tuple(times_s.tolist())


def split_load(arrivals: Arrivals) -> tuple[Arrivals, float | None]:
    """Return arrivals without their offered load, and the load; `exponential@0.8` is `exponential` at 0.8.

    Raises:
        InputError: a load that is not above zero, or above `MOST_LOAD`.
    """
    match = _AT_LOAD.match(arrivals) if isinstance(arrivals, str) and not Path(arrivals).is_file() else None
    if match is None:
        return arrivals, None
    load = float(match["load"])
    expected = f"a load above 0, at most {MOST_LOAD:g}, for arrivals at more than one moment, such as exponential@0.8"
    good = 0 < load <= MOST_LOAD and match["kind"] != "at_once"
    require("arrivals", repr(arrivals), good, expected, "Correct the load or the arrivals.")
    return match["kind"], load


def _file_s(path: str, n: int) -> FloatArray:
    if "arrival_s" not in columns_of(path):
        trace = read_trace(path)
        trace.report().warn()
        return np.array([job.submit_s for job in trace.jobs[:n]])
    table = read_foreign(path, ("arrival_s",))
    table.read_numbers("arrival_s", "arrival_s", most=MOST_S)
    return table.parsed["arrival_s"].to_numpy()[:n]
