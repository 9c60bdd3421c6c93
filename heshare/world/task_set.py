"""Task sets by MISO's recipe from Helios (Section IV, System Setup: "We follow the workloads settings of MISO").

MISO takes, as the durations of 100 jobs, the percentiles 0 to 99 of the GPU jobs of Helios' cluster Venus that ran for
more than a minute and at most two hours, none below two minutes. Here a duration is the task's time alone on an A100 at
its top clock, which gives its number of iterations.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from heshare.shared import display, files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.bounds import MOST_TASKS
from heshare.shared.inputs.csv_table import read_table
from heshare.world.arrivals import INTERVAL_S, Arrivals, arrivals_s
from heshare.world.catalogue import paper_models
from heshare.world.job_trace import TraceJob, read_trace
from heshare.world.task import Task
from heshare.world.workload import Workload

LOADS = ("low", "medium", "high", "mixed")
SHORTEST_S, LONGEST_S, FLOOR_S = 60.0, 7200.0, 120.0
PERCENTILES = 100
_ACTION = "Correct the argument."


def recipe_durations_s(jobs: Iterable[TraceJob]) -> FloatArray:
    """Return MISO's durations from a trace: percentiles 0..99 of its GPU jobs, s, ascending, shape (100,).

    Of the jobs with at least one GPU and 60 < duration <= 7200 s; nothing below 120 s. `jobs` may be a stream: only
    the percentiles of these jobs' durations are used.

    Raises:
        InputError: there is no such job.
    """
    kept = array("d", (job.duration_s for job in jobs if job.gpus > 0 and SHORTEST_S < job.duration_s <= LONGEST_S))
    expected = f"GPU jobs that ran more than {SHORTEST_S:g} and at most {LONGEST_S:g} s"
    require("duration", "no GPU job of that length", len(kept) > 0, expected, "Give a longer trace.")
    durations_s: FloatArray = np.percentile(np.asarray(kept), np.arange(PERCENTILES))
    return np.maximum(durations_s, FLOOR_S)


def helios_durations_s() -> FloatArray:
    """Return the 100 durations that MISO uses, from `data/helios_percentiles.csv`, s, shape (100,)."""
    return np.array(_shipped_durations_s())


def sample_durations_s(n: int, *, rng: np.random.Generator, percentiles: ArrayLike) -> FloatArray:
    """Return the durations of n tasks in shuffled order, s, shape (n,).

    Up to as many as there are percentiles, they are drawn without replacement; beyond, all are used in turn, as in
    MISO, where job i has the duration of job i modulo 100.
    """
    durations_s = np.asarray(percentiles, dtype=np.float64)
    count = len(durations_s)
    index = rng.choice(count, n, replace=False) if n <= count else rng.permutation(np.arange(n) % count)
    return durations_s[index]


def models_of(load: str) -> tuple[str, ...]:
    """Return the models of a load class (Section V-B) in Table IV's order; all of them for `mixed`."""
    if load not in LOADS:
        raise unknown(load, LOADS, column="load")
    return tuple(name for name, model in paper_models().items() if load in ("mixed", model.load))


class TaskOptions(TypedDict, total=False):
    """How tasks are drawn; arguments of `task_set`."""

    load: str
    arrivals: Arrivals
    interval_s: float
    batch_sizes: Sequence[int]
    trace: str | Path | Iterable[TraceJob] | None


def task_set(
    n: int = 60,
    *,
    rng: np.random.Generator,
    time_alone_s: Callable[[Workload], float],
    load: str = "mixed",
    arrivals: Arrivals = "at_once",
    interval_s: float = INTERVAL_S,
    batch_sizes: Sequence[int] = (4, 8),
    percentiles: ArrayLike | None = None,
    trace: str | Path | Iterable[TraceJob] | None = None,
) -> tuple[Task, ...]:
    """Return a task set T by MISO's recipe (Section IV: 60 inference jobs from Table IV).

    Durations, then models, then inference batch sizes, then arrivals are drawn, so that one seed gives the same tasks
    for all arrivals.

    Args:
        n: how many tasks.
        rng: the source of randomness.
        time_alone_s: seconds per iteration of a workload alone on an A100 at its top clock; iterations are the
            duration divided by it.
        load: `low`, `medium`, `high` (Section V-B) or `mixed`, the class of the models, which are drawn uniformly.
        arrivals: as in `heshare.world.arrivals.arrivals_s`.
        interval_s: as there, s.
        batch_sizes: inference batch sizes, drawn uniformly.
        percentiles: durations to draw from, s; the shipped Helios percentiles unless given.
        trace: a trace (file or jobs) to make the percentiles from, instead.

    Returns:
        Tasks 0 .. n-1, by arrival.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    _require_whole("n", n)
    require("n", n, n <= MOST_TASKS, f"at most {MOST_TASKS} tasks", _ACTION)
    listed = list(batch_sizes) if isinstance(batch_sizes, Iterable) else batch_sizes
    require("batch_sizes", listed, isinstance(listed, list), "a list of inference batch sizes, such as [8]", _ACTION)
    require("batch_sizes", listed, len(batch_sizes) > 0, "at least one inference batch size", _ACTION)
    for size in batch_sizes:
        _require_whole("batch_sizes", size)
    durations_s = sample_durations_s(n, rng=rng, percentiles=_durations_s(percentiles, trace))
    pool = models_of(load)
    names = [pool[i] for i in rng.integers(len(pool), size=n)]
    sizes = [int(batch_sizes[i]) for i in rng.integers(len(batch_sizes), size=n)]
    workloads = [Workload(name, size) for name, size in zip(names, sizes, strict=True)]
    alone_s = {workload: float(time_alone_s(workload)) for workload in sorted(set(workloads))}
    for workload, time_s in alone_s.items():
        good = bool(np.isfinite(time_s)) and time_s > 0
        require("time_alone_s", f"{time_s} for {workload}", good, "a finite number above zero", _ACTION)
    times_s = arrivals_s(n, rng=rng, arrivals=arrivals, interval_s=interval_s)
    return tuple(
        Task(i, workload, float(durations_s[i] / alone_s[workload]), float(times_s[i]))
        for i, workload in enumerate(workloads)
    )


@cache
def _shipped_durations_s() -> tuple[float, ...]:
    durations_s = []
    for row in read_table(files.data("helios_percentiles.csv"), ("percentile", "duration", "unit")):
        if row.text("unit") != "s":
            raise row.error("unit", "wrong unit", "s", "Convert the durations to seconds.")
        durations_s.append(row.number_of("duration", least=FLOOR_S))
    return tuple(durations_s)


def _durations_s(percentiles: ArrayLike | None, trace: str | Path | Iterable[TraceJob] | None) -> FloatArray:
    require("trace", "percentiles and a trace", percentiles is None or trace is None, "one of the two", _ACTION)
    if trace is not None:
        require("trace", display.found(trace), isinstance(trace, Iterable | Path), "a trace file, or its jobs", _ACTION)
        if not isinstance(trace, str | Path):
            return recipe_durations_s(trace)
        read = read_trace(trace)
        read.report().warn()
        return recipe_durations_s(read.jobs)
    if percentiles is None:
        return helios_durations_s()
    try:
        durations_s = np.asarray(percentiles, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("values that are not numbers", "durations in seconds", _ACTION, column="percentiles") from None
    good = durations_s.ndim == 1 and durations_s.size > 0 and (np.isfinite(durations_s) & (durations_s > 0)).all()
    found = f"an array of shape {durations_s.shape}"
    require("percentiles", found, bool(good), "a list of finite durations above zero, s", _ACTION)
    return durations_s


def _require_whole(column: str, value: object) -> None:
    good = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
    require(column, repr(value), bool(good), "a whole number of at least 1", _ACTION)
