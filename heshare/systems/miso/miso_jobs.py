"""MISO's jobs: a training workload and a duration each, and when they arrive."""

from functools import cache

import numpy as np

from heshare import files
from heshare.errors import InputError
from heshare.systems.shared import training
from heshare.world.csv_table import read_table
from heshare.world.task import Task
from heshare.world.task_set import arrivals_s, helios_durations_s
from heshare.world.workload import Workload

START_S = 10.0
"""Time of a job that is no training, s: MISO takes it off a duration before it counts the steps."""


def miso_tasks(
    n: int = 100,
    *,
    rng: np.random.Generator,
    arrivals: str = "front_loaded",
    interval_s: float = 60.0,
    start_s: float = START_S,
) -> tuple[Task, ...]:
    """A task set as MISO's experiments have it: its fixed pairs of duration and workload, in shuffled order.

    Args:
        n: how many tasks; up to 100 without replacement, beyond that all pairs in turn.
        rng: the source of randomness.
        arrivals: as in `heshare.world.task_set.arrivals_s`.
        interval_s: mean time between two arrivals, s.
        start_s: what of a duration is not training, s; runs charge it with `start_cost_s`.

    Returns:
        Tasks 0 .. n-1 by arrival; a task's iterations are the rest of its duration over its step alone on an A100.

    Raises:
        InputError: an argument is out of its range.
    """
    durations_s, pairs = helios_durations_s(), _workloads()
    if n < 1 or not 0 <= start_s < durations_s.min():
        raise InputError(
            f"{n} tasks, {start_s} s to start",
            f"at least one task, and less than {durations_s.min():g} s",
            "Correct the argument.",
            column="miso",
        )
    known = len(pairs)
    order = rng.choice(known, n, replace=False) if n <= known else rng.permutation(np.arange(n) % known)
    times_s = arrivals_s(n, rng=rng, arrivals=arrivals, interval_s=interval_s)
    return tuple(
        Task(
            index,
            pairs[one],
            (float(durations_s[one]) - start_s) / training.step(pairs[one]).step_s,
            float(times_s[index]),
        )
        for index, one in enumerate(order.tolist())
    )


@cache
def _workloads() -> tuple[Workload, ...]:
    """The workload of each of MISO's 100 durations."""
    return tuple(
        Workload(row.text("model"), row.whole("batch_size", least=1), phase="training")
        for row in read_table(files.data("training", "jobs.csv"), ("percentile", "model", "batch_size"))
    )
