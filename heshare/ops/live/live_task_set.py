"""The task set of a live comparison: drawn as for the figures, scaled to a given time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.devices.task_sizes import draw
from heshare.prediction.features import is_reference
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import InputError, require
from heshare.world.catalogue import paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import DEFAULT_PRECISION

MIN_MODELS = 6
"""Least number of different models in a task set."""
BATCH_SIZES = (4, 8)
"""The inference batch sizes of tasks, as in every task set, except those that were not recorded."""
JOB_PREFIX = "task-"
"""Beginning of a job's name, before the task's number."""
_MAX_DRAWS = 100


def draw_live_tasks(
    count: int, cluster: Cluster, table: pd.DataFrame, predictor: Predictor, *, minutes: float, seed: int
) -> tuple[Task, ...]:
    """Return tasks drawn as for the figures, which all arrive at 0 s and have whole numbers of iterations.

    Sizes are scaled by one factor so that the tasks would take `minutes` if run one at a time on each GPU.

    Raises:
        InputError: too few tasks for `MIN_MODELS` models, or the profiles lack workloads alone.
    """
    drawn = _draw_varied_tasks(count, recorded_batch_sizes(table, cluster), seed)
    workloads = [task.workload for task in drawn]
    alone_s = np.mean([predictor.solo(workloads, gpu).time_s[:, 0] for gpu in cluster.gpus], 0)
    work_s = np.array([task.iterations for task in drawn]) * alone_s
    scale = 60.0 * minutes * len(cluster) / work_s.sum()
    return tuple(Task(task.id, task.workload, max(1, round(task.iterations * scale))) for task in drawn)


def recorded_batch_sizes(table: pd.DataFrame, cluster: Cluster) -> tuple[int, ...]:
    """Return the sizes of `BATCH_SIZES` at which every model was recorded alone on every GPU.

    Raises:
        InputError: there is none.
    """
    alone = table[
        is_reference(table) & (table["precision"] == DEFAULT_PRECISION) & table["workload"].isin(list(paper_models()))
    ]
    names = {gpu.name for gpu in cluster.gpus}
    recorded = alone.groupby(["batch_size", "gpu"])["workload"].nunique()
    every = len(paper_models())
    sizes = tuple(size for size in BATCH_SIZES if all(recorded.get((size, name), 0) == every for name in names))
    found = f"a record of {', '.join(sorted(names))} without every model of Table IV alone"
    action = "Allow more time for recording, such as --budget 15m; existing measurements are reused."
    require("budget", found, bool(sizes), "each of them at an inference batch size of 4 or 8", action)
    return sizes


def job_file_text(tasks: Sequence[Task]) -> str:
    """Return the text of a job file for the executor, with jobs `task-0` and so on."""
    lines = ["jobs:"]
    lines += [
        f'  - {{name: {JOB_PREFIX}{task.id}, workload: "{task.workload.model}:{task.workload.batch_size}", '
        f"iterations: {task.iterations:.0f}, arrival_s: {task.arrival_s:g}}}"
        for task in tasks
    ]
    return "\n".join(lines) + "\n"


def _draw_varied_tasks(count: int, batch_sizes: tuple[int, ...], seed: int) -> tuple[Task, ...]:
    for child in np.random.SeedSequence(seed).spawn(_MAX_DRAWS):
        drawn = draw(count, rng=np.random.default_rng(child), batch_sizes=batch_sizes)
        if len({task.workload.model for task in drawn}) >= MIN_MODELS:
            return drawn
    raise InputError(
        f"{count} tasks",
        f"enough for {MIN_MODELS} different models",
        "Request more tasks, such as --tasks 12.",
        column="tasks",
    )
