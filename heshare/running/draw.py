"""Task sets with their sizes: durations of the recipe turned into iterations by the A100's emulated time alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from heshare.devices.model import co_run
from heshare.world.catalogue import gpu
from heshare.world.jobs import as_tasks, at_load, usable
from heshare.world.task import Task
from heshare.world.taskset import models_of, task_set
from heshare.world.trace import Job, Trace, read_trace
from heshare.world.training import workloads
from heshare.world.venus import generate
from heshare.world.workload import Resident, Workload

SIZED_ON = "A100"


@cache
def time_alone_s(workload: Workload) -> float:
    """Seconds per iteration of a workload alone on an A100 at its top clock, by the device model."""
    return co_run(gpu(SIZED_ON), (Resident(workload),)).tasks[0].time_s


def draw(
    n: int = 60,
    *,
    rng: np.random.Generator,
    load: str = "mixed",
    arrivals: str = "at_once",
    interval_s: float = 60.0,
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | Iterable[Job] | None = None,
) -> tuple[Task, ...]:
    """A task set by MISO's recipe, sized by `time_alone_s`; see `heshare.world.taskset.task_set`.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    return task_set(
        n,
        rng=rng,
        time_alone_s=time_alone_s,
        load=load,
        arrivals=arrivals,
        interval_s=interval_s,
        batch_sizes=batch_sizes,
        trace=trace,
    )


def venus(
    n: int | None = 60,
    *,
    rng: np.random.Generator,
    gpus: int,
    load: float | None = None,
    inference: float = 0.0,
    record: str = "gavel",
    file: str | Path | None = None,
    on_bad: str = "raise",
) -> tuple[tuple[Task, ...], Trace]:
    """The first jobs of Helios' cluster Venus as tasks for a cluster, and the trace that they come from.

    Args:
        n: how many jobs of those that the cluster can hold; None is all of the half-year.
        rng: the source of randomness.
        gpus: how many GPUs the cluster has. A generated job for more is left out and counted.
        load: time on GPUs asked for over what the cluster has; None leaves arrivals as they were.
        inference: which share of the jobs on one GPU are inference tasks of Table IV; the others train.
        record: whose training workloads, as in `heshare.world.training.workloads`.
        file: the published trace; without it, one that is generated to meet its published figures.
        on_bad: `raise` refuses the first row of the file that is bad or asks for more GPUs than there are, `skip`
            leaves such rows out and counts them.

    Returns:
        The tasks, and the trace: its `origin` says which it was, its `report()` what was left out.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    # Some jobs are for more GPUs than a small cluster has; three times as many leave enough of one GPU alone.
    trace = (
        read_trace(file, on_bad=on_bad, most_gpus=gpus)
        if file is not None
        else generate(None if n is None else 3 * n, rng=rng)
    )
    trace = usable(trace, most_gpus=gpus)
    trace = replace(trace, jobs=trace.jobs[:n])
    if load is not None:
        trace = at_load(trace, gpus, load)
    pool = [Workload(name, size) for name in models_of("mixed") for size in (4, 8)]
    tasks = as_tasks(
        trace,
        rng=rng,
        time_alone_s=time_alone_s,
        training_pool=workloads(record),
        inference_pool=pool,
        inference=inference,
    )
    return tasks, trace
