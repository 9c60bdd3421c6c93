"""The task set of a live comparison: drawn as for the figures, and scaled so that a policy takes minutes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.errors import InputError
from heshare.prediction.features import is_reference
from heshare.prediction.predictor import Predictor
from heshare.running.draw import draw
from heshare.world.catalogue import models
from heshare.world.cluster import Cluster
from heshare.world.task import Task

LEAST_WORKLOADS = 6
"""So many different models at least."""
SIZES = (4, 8)
"""The inference batch sizes of tasks, as everywhere; those that were not recorded are left out."""
PREFIX = "task-"
"""Of a job's name; the task's number follows."""
_DRAWS = 100


def task_set(
    count: int, cluster: Cluster, table: pd.DataFrame, predictor: Predictor, *, minutes: float, seed: int
) -> tuple[Task, ...]:
    """Tasks by the recipe of the figures, all of them there at once, with whole iterations.

    Sizes are scaled by one factor: run one after the other, spread evenly over the GPUs, they would take `minutes`.

    Args:
        count: how many tasks.
        cluster: the GPUs.
        table: what was recorded of them.
        predictor: tells the times alone.
        minutes: time of the whole set, min.
        seed: of the draw.

    Raises:
        InputError: too few tasks for `LEAST_WORKLOADS` models, or the record lacks workloads alone.
    """
    drawn = _drawn(count, recorded_sizes(table, cluster), seed)
    alone_s = np.mean([predictor.solo([one.workload for one in drawn], gpu).time_s[:, 0] for gpu in cluster.gpus], 0)
    work_s = np.array([one.iterations for one in drawn]) * alone_s
    scale = 60.0 * minutes * len(cluster) / work_s.sum()
    return tuple(Task(one.id, one.workload, max(1, round(one.iterations * scale))) for one in drawn)


def recorded_sizes(table: pd.DataFrame, cluster: Cluster) -> tuple[int, ...]:
    """The inference batch sizes at which every model was recorded alone on every GPU.

    Raises:
        InputError: there is none.
    """
    alone = table[is_reference(table) & (table["precision"] == "fp32")]
    names = {gpu.name for gpu in cluster.gpus}
    found = tuple(
        size
        for size in SIZES
        if all(
            set(models()) <= set(part["workload"])
            for part in (alone[(alone["gpu"] == name) & (alone["batch_size"] == size)] for name in names)
        )
    )
    if not found:
        raise InputError(
            column="budget",
            found=f"a record of {', '.join(sorted(names))} without every model of Table IV alone",
            expected="each of them at an inference batch size of 4 or 8",
            action="Allow more time for recording, such as --budget 15m; what is there is kept.",
        )
    return found


def as_yaml(tasks: Sequence[Task]) -> str:
    """A file of jobs for the executor, `task-0` and so on."""
    lines = ["jobs:"]
    lines += [
        f'  - {{name: {PREFIX}{one.id}, workload: "{one.workload.model}:{one.workload.batch_size}", '
        f"iterations: {one.iterations:.0f}, arrival_s: {one.arrival_s:g}}}"
        for one in tasks
    ]
    return "\n".join(lines) + "\n"


def _drawn(count: int, sizes: tuple[int, ...], seed: int) -> tuple[Task, ...]:
    """The first draw of this seed that has enough different models."""
    for child in np.random.SeedSequence(seed).spawn(_DRAWS):
        drawn = draw(count, rng=np.random.default_rng(child), batch_sizes=sizes)
        if len({one.workload.model for one in drawn}) >= LEAST_WORKLOADS:
            return drawn
    raise InputError(
        column="tasks",
        found=f"{count} tasks",
        expected=f"enough for {LEAST_WORKLOADS} different models",
        action="Ask for more tasks, such as --tasks 24.",
    )
