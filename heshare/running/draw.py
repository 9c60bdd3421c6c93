"""Task sets with their sizes: durations of the recipe turned into iterations by the A100's emulated time alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from heshare.devices.model import co_run
from heshare.world.catalogue import gpu
from heshare.world.task import Task
from heshare.world.taskset import task_set
from heshare.world.trace import Job
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
