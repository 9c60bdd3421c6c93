"""Task sets by MISO's recipe from Helios (Section V-A: "We follow the workloads settings of MISO").

MISO takes, as the durations of 100 jobs, the percentiles 0 to 99 of the GPU jobs of Helios' cluster Venus that ran
for more than a minute and at most two hours, none below two minutes. Here a duration is read as the task's time
alone on an A100 at its top clock, which gives its number of iterations.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heshare import files
from heshare.errors import InputError
from heshare.world.catalogue import models
from heshare.world.table import Header, RowError, read_rows
from heshare.world.task import Task
from heshare.world.trace import Job, stream_jobs
from heshare.world.workload import Workload

FloatArray = NDArray[np.float64]

LOADS = ("low", "medium", "high", "mixed")
ARRIVALS = ("at_once", "poisson", "front_loaded")
SHORTEST_S, LONGEST_S, FLOOR_S = 60.0, 7200.0, 120.0
PERCENTILES = 100


def recipe_durations_s(jobs: Iterable[Job]) -> FloatArray:
    """MISO's durations from a trace: percentiles 0..99 of its GPU jobs, s, ascending, shape (100,).

    Of the jobs with at least one GPU and 60 < duration <= 7200 s; nothing below 120 s. `jobs` may be a stream: only
    the durations of the jobs that count are kept.

    Raises:
        InputError: no job counts.
    """
    kept = array("d", (job.duration_s for job in jobs if job.gpus > 0 and SHORTEST_S < job.duration_s <= LONGEST_S))
    if not kept:
        raise InputError(
            column="duration",
            found="no GPU job of that length",
            expected=f"GPU jobs that ran more than {SHORTEST_S:g} and at most {LONGEST_S:g} s",
            action="Give a longer trace.",
        )
    durations_s: FloatArray = np.percentile(np.asarray(kept), np.arange(PERCENTILES))
    return np.maximum(durations_s, FLOOR_S)


def helios_durations_s() -> FloatArray:
    """The 100 durations that MISO uses, from `data/helios_percentiles.csv`, s, shape (100,)."""
    return np.array(_shipped_durations_s())


@cache
def _shipped_durations_s() -> tuple[float, ...]:
    durations_s = []
    for row in read_rows(files.data("helios_percentiles.csv")):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            row.need(("percentile", "duration", "unit"))
        else:
            if row.text("unit") != "s":
                raise row.bad("unit", "wrong unit", "s", "Convert the durations to seconds.")
            durations_s.append(row.number_of("duration", least=FLOOR_S))
    return tuple(durations_s)


def sample_durations_s(n: int, *, rng: np.random.Generator, percentiles: ArrayLike) -> FloatArray:
    """Durations of n tasks in shuffled order, s, shape (n,).

    Up to as many as there are percentiles they are drawn without replacement; beyond, all are used in turn, as in
    MISO, where job i has the duration of job i modulo 100.
    """
    durations_s = np.asarray(percentiles, dtype=np.float64)
    known = len(durations_s)
    index = rng.choice(known, n, replace=False) if n <= known else rng.permutation(np.arange(n) % known)
    return durations_s[index]


def arrivals_s(n: int, *, rng: np.random.Generator, arrivals: str = "at_once", interval_s: float = 60.0) -> FloatArray:
    """When n tasks arrive, s, never decreasing, shape (n,).

    Args:
        n: how many tasks.
        rng: the source of randomness; `at_once` draws nothing.
        arrivals: `at_once`: all at zero. `poisson`: steps are whole seconds, Poisson with mean `interval_s`.
            `front_loaded`: the same, but half the mean for the first third of the tasks (MISO's own recipe).
        interval_s: mean time between two arrivals, s.

    Raises:
        InputError: an unknown kind of arrivals or an interval that is not a finite number above zero.
    """
    _choice("arrivals", arrivals, ARRIVALS)
    _above_zero("interval_s", interval_s)
    if arrivals == "at_once":
        return np.zeros(n)
    mean_s = np.full(n, float(interval_s))
    if arrivals == "front_loaded":
        mean_s[: n // 3] /= 2
    return np.cumsum(rng.poisson(mean_s)).astype(np.float64)


def models_of(load: str) -> tuple[str, ...]:
    """The models of a load class in Table IV's order; all of them for `mixed`.

    Raises:
        InputError: no such load class.
    """
    _choice("load", load, LOADS)
    return tuple(name for name, model in models().items() if load in ("mixed", model.load))


def task_set(
    n: int = 60,
    *,
    rng: np.random.Generator,
    time_alone_s: Callable[[Workload], float],
    load: str = "mixed",
    arrivals: str = "at_once",
    interval_s: float = 60.0,
    batch_sizes: Sequence[int] = (4, 8),
    percentiles: ArrayLike | None = None,
    trace: str | Path | Iterable[Job] | None = None,
) -> tuple[Task, ...]:
    """A task set T by MISO's recipe (Section V-A: 60 inference jobs from Table IV).

    Durations, then models, then inference batch sizes, then arrivals are drawn, so that one seed gives the same
    tasks whatever the arrivals.

    Args:
        n: how many tasks.
        rng: the source of randomness.
        time_alone_s: seconds per iteration of a workload alone on an A100 at its top clock; iterations are the
            duration divided by it.
        load: `low`, `medium`, `high` (Section V-B) or `mixed`: which models are drawn, uniformly.
        arrivals: as in `arrivals_s`.
        interval_s: as in `arrivals_s`, s.
        batch_sizes: inference batch sizes, drawn uniformly.
        percentiles: durations to draw from, s; the shipped Helios percentiles unless given.
        trace: a trace (file or jobs) to make the percentiles from, instead.

    Returns:
        Tasks 0 .. n-1, by arrival.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    _whole("n", n, "a task set has at least one task")
    for size in batch_sizes:
        _whole("batch_sizes", size, "inference batch sizes")
    if not len(batch_sizes):
        raise _bad("batch_sizes", "no inference batch size", "at least one")
    durations_s = sample_durations_s(n, rng=rng, percentiles=_durations_s(percentiles, trace))
    pool = models_of(load)
    names = [pool[i] for i in rng.integers(len(pool), size=n)]
    sizes = [int(batch_sizes[i]) for i in rng.integers(len(batch_sizes), size=n)]
    workloads = [Workload(name, size) for name, size in zip(names, sizes, strict=True)]
    alone_s = {workload: _time_alone_s(workload, time_alone_s) for workload in sorted(set(workloads))}
    times_s = arrivals_s(n, rng=rng, arrivals=arrivals, interval_s=interval_s)
    return tuple(
        Task(i, workload, float(durations_s[i] / alone_s[workload]), float(times_s[i]))
        for i, workload in enumerate(workloads)
    )


def _durations_s(percentiles: ArrayLike | None, trace: str | Path | Iterable[Job] | None) -> FloatArray:
    if percentiles is not None and trace is not None:
        raise _bad("trace", "percentiles and a trace", "one of the two")
    if trace is not None:
        return recipe_durations_s(stream_jobs(trace) if isinstance(trace, str | Path) else trace)
    if percentiles is None:
        return helios_durations_s()
    try:
        durations_s = np.asarray(percentiles, dtype=np.float64)
    except (TypeError, ValueError):
        raise _bad("percentiles", "values that are not numbers", "durations in seconds") from None
    if durations_s.ndim != 1 or not durations_s.size or not (np.isfinite(durations_s) & (durations_s > 0)).all():
        raise _bad("percentiles", f"an array of shape {durations_s.shape}", "a list of finite durations above zero, s")
    return durations_s


def _time_alone_s(workload: Workload, time_alone_s: Callable[[Workload], float]) -> float:
    alone_s = float(time_alone_s(workload))
    _above_zero("time_alone_s", alone_s, f" for {workload}")
    return alone_s


def _choice(column: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise _bad(column, repr(value), "one of " + ", ".join(known))


def _whole(column: str, value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise _bad(column, repr(value), f"a whole number of at least 1 ({what})")


def _above_zero(column: str, value: float, where: str = "") -> None:
    if not (np.isfinite(value) and value > 0):
        raise _bad(column, f"{value}{where}", "a finite number above zero")


def _bad(column: str, found: str, expected: str) -> InputError:
    return InputError(column=column, found=found, expected=expected, action="Correct the argument.")
