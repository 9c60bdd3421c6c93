"""Task sets whose durations become iterations by the emulated time alone on an A100 (Section IV, System Setup)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from numbers import Real
from typing import Unpack

import numpy as np

from heshare.devices.device_model import co_run
from heshare.shared.errors import InputError, require
from heshare.world.arrivals import split_load
from heshare.world.catalogue import gpu, memory_mib, resident
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.task_set import TaskOptions, task_set
from heshare.world.workload import Resident, Workload

SIZED_ON = "A100"


def time_alone_s(workload: Workload) -> float:
    """Return the seconds per iteration of a workload alone on an A100 at its top clock, by the device model."""
    return _alone_s(gpu(SIZED_ON), workload)


def iterations(workload: Workload | str, duration_s: float, card: str | Gpu = SIZED_ON) -> float:
    """Return how many iterations of a workload a time is, alone on a GPU at its top clock, by the device model.

    Args:
        workload: a workload, or its notation, such as `resnet50:8`.
        duration_s: the time, such as that of a job of a trace, s.
        card: the GPU, or its name.

    Raises:
        InputError: an unknown workload or GPU, or a time that is not a finite number above zero.

    Example:
        >>> import heshare as hs
        >>> round(hs.iterations("resnet50:8", 3600))
        627802
    """
    good = isinstance(duration_s, Real) and not isinstance(duration_s, bool) and 0 < duration_s < float("inf")
    require("duration_s", duration_s, good, "finite seconds above zero", "Give one time, s.")
    given = workload if isinstance(workload, Workload) else resident(workload).workload
    return float(duration_s) / _alone_s(gpu(card) if isinstance(card, str) else card, given)


draw = partial(task_set, time_alone_s=time_alone_s)
"""Returns a task set by MISO's recipe, sized by `time_alone_s`; arguments as `heshare.world.task_set.task_set`."""


def draw_for(
    draw: Callable[..., Sequence[Task]],
    n: int,
    cluster: Cluster | None,
    *,
    rng: np.random.Generator,
    **options: Unpack[TaskOptions],
) -> tuple[Task, ...]:
    """Return the tasks that `draw` draws, with arrivals such as `exponential@0.8` at that load of a cluster.

    `draw` takes n, `rng`, and the options.

    Raises:
        InputError: as `draw`, or a load without a cluster.
    """
    arrivals = options.get("arrivals", "at_once")
    kind, load = split_load(arrivals)
    action = "Give the cluster, or leave out the load."
    require("arrivals", f"{arrivals} without a cluster", load is None or cluster is not None, "both", action)
    options["arrivals"] = kind
    tasks = tuple(draw(n, rng=rng, **options))
    return tasks if load is None or cluster is None else at_load(tasks, cluster, load)


def offered_load(tasks: Sequence[Task], cluster: Cluster) -> float:
    """Return the rate of arrivals over the rate at which a cluster completes such tasks, one at a time on each GPU.

    The latter is the sum over GPUs of one over the mean time of the tasks that fit it, alone at the top clock by the
    device model. The rate of arrivals is that from the first to the last; infinite for tasks that arrive at once.
    """
    rate = 0.0
    for kind in cluster.kinds:
        fitting = [task for task in tasks if memory_mib(task.workload) <= kind.memory_mib]
        if fitting:
            mean_s = np.mean([task.iterations * _alone_s(kind, task.workload) for task in fitting])
            rate += cluster.gpus.count(kind) / float(mean_s)
    arrivals_s = [task.arrival_s for task in tasks]
    span_s = max(arrivals_s) - min(arrivals_s)
    return (len(tasks) - 1) / span_s / rate if span_s and rate else float("inf")


def at_load(tasks: Sequence[Task], cluster: Cluster, load: float) -> tuple[Task, ...]:
    """Return the tasks with all arrivals scaled by one factor, so that `offered_load` is `load`."""
    offered = offered_load(tasks, cluster)
    if not offered < float("inf"):
        found = f"{len(tasks)} tasks for a load of {load:g}"
        raise InputError(found, "tasks at more than one moment that fit a GPU", "Take more tasks.", column="arrivals")
    return tuple([replace(task, arrival_s=task.arrival_s * offered / load) for task in tasks])


@cache
def _alone_s(card: Gpu, workload: Workload) -> float:
    return co_run(card, (Resident(workload),)).tasks[0].time_s
