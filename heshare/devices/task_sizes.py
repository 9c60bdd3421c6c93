"""Task sets whose durations become iterations by the emulated time alone on an A100 (Section IV, System Setup)."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from heshare.devices.device_model import co_run
from heshare.world.catalogue import gpu
from heshare.world.helios_trace import TraceJob
from heshare.world.task import Task
from heshare.world.task_set import task_set
from heshare.world.workload import Resident, Workload

SIZED_ON = "A100"


@cache
def time_alone_s(workload: Workload) -> float:
    """Return the seconds per iteration of a workload alone on an A100 at its top clock, by the device model."""
    return co_run(gpu(SIZED_ON), (Resident(workload),)).tasks[0].time_s


def draw(
    n: int = 60,
    *,
    rng: np.random.Generator,
    load: str = "mixed",
    arrivals: str = "at_once",
    interval_s: float = 60.0,
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | Iterable[TraceJob] | None = None,
) -> tuple[Task, ...]:
    """Return a task set by MISO's recipe, sized by `time_alone_s`; arguments as `heshare.world.task_set.task_set`."""
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
