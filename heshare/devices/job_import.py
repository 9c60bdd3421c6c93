"""Jobs of a foreign trace (CSV) as tasks, by a mapping of its columns: Philly, Alibaba, Azure and others."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from heshare.devices.task_sizes import SIZED_ON, iterations
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.csv_table import Row, RowError, date_s, read_table
from heshare.world.catalogue import resident
from heshare.world.task import Task, TaskSet

SIZES = ("duration", "end", "iterations")
KEYS = ("arrival", *SIZES, "gpus")


def import_jobs(
    path: str | Path,
    columns: Mapping[str, str],
    *,
    workloads: Sequence[str] | str = "resnet50:8",
    card: str = SIZED_ON,
    gpu_unit: float = 1.0,
    seed: int = 0,
    skip_bad: bool = False,
) -> TaskSet:
    r"""Return the jobs of a CSV file as tasks, by arrival; the first arrives at 0.

    Args:
        path: the file; its rows may have any order.
        columns: its column of `arrival`, of one of `duration` (s), `end` and `iterations`, and, if any, of `gpus`.
            Moments are seconds, or dates such as `2023-11-16 18:17:03.98`.
        workloads: what the jobs run, drawn uniformly.
        card: the GPU whose time alone, at its top clock, a duration is; see `iterations`.
        gpu_unit: what is one GPU in the column of GPUs, 100 for percent; parts of a GPU count as one.
        seed: of the drawn workloads.
        skip_bad: leave out rows without a moment, a size above zero or a number of GPUs, such as jobs that never ran.

    Raises:
        InputError: no such file or column, a bad row, or no job.

    Example:
        >>> import tempfile
        >>> import heshare as hs
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("TIMESTAMP,GeneratedTokens\n2023-11-16 18:17:04,10\n2023-11-16 18:17:09,8\n")
        ...     file.flush()
        ...     columns = {"arrival": "TIMESTAMP", "iterations": "GeneratedTokens"}
        ...     hs.import_jobs(file.name, columns, workloads="gpt2:1")
        TaskSet(2 tasks of 1 models, arriving 0 to 5 s)
    """
    good = isinstance(path, str | Path)
    require("path", f"an object of {type(path).__name__}", good, "a CSV file", "Write it there with to_csv.")
    for key in columns:
        if key not in KEYS:
            raise unknown(key, KEYS, column="columns")
    size = [key for key in SIZES if key in columns]
    good = "arrival" in columns and len(size) == 1
    require("columns", ", ".join(columns), good, f"arrival and one of {', '.join(SIZES)}", "Name the file's columns.")
    listed = [workloads] if isinstance(workloads, str) else list(workloads)
    pool = [resident(text).workload for text in listed]
    require("workloads", "none", bool(pool), "at least one, such as resnet50:8", "Name what the jobs run.")
    per_s = [iterations(workload, 1.0, card) for workload in pool]
    drawn, skipped = np.random.default_rng(seed), Counter[str]()
    tasks = []
    for row in read_table(path, list(columns.values())):
        place = int(drawn.integers(len(pool)))
        try:
            arrival_s = _moment_s(row, columns["arrival"])
            value = _moment_s(row, columns["end"]) - arrival_s if size == ["end"] else row.number_of(columns[size[0]])
            if value <= 0:
                raise row.error(columns[size[0]], "no size", "a value above zero", "Correct it, or pass skip_bad=True.")
            gpus = max(1, math.ceil(row.number_of(columns["gpus"]) / gpu_unit)) if "gpus" in columns else 1
            work = value if size == ["iterations"] else value * per_s[place]
            tasks.append((arrival_s, Task(0, pool[place], work, gpus=gpus)))
        except RowError as error:
            if not skip_bad:
                raise
            skipped[error.reason] += 1
    if not tasks:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in skipped.items())
        found = f"no job that could be used ({reasons})" if reasons else "no job"
        raise InputError(found, "at least one", "Check the file and its columns.", file=path)
    tasks.sort(key=lambda each: each[0])
    first_s = tasks[0][0]
    return TaskSet(replace(task, id=i, arrival_s=at_s - first_s) for i, (at_s, task) in enumerate(tasks))


def _moment_s(row: Row, column: str) -> float:
    text = row.text(column, "a moment")
    for parse in (float, date_s):
        try:
            moment_s = parse(text)
        except ValueError:
            continue
        if math.isfinite(moment_s):
            return moment_s
    expected = "seconds, or a date such as 2023-11-16 18:17:03"
    raise row.error(column, "no moment", expected, "Correct it, or pass skip_bad=True.")
