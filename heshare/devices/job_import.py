"""Jobs of a foreign trace as tasks: by a recipe for a public trace, or by a mapping of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from heshare.devices.task_sizes import SIZED_ON, iterations
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import check_whole
from heshare.shared.inputs.foreign_table import ImportReport
from heshare.world.catalogue import resident
from heshare.world.job_trace import read_jobs
from heshare.world.recipes import Columns
from heshare.world.task import Task, TaskSet


class ImportedTasks(TaskSet):
    """The tasks of a trace; `report` says what was read of it."""

    report: ImportReport

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n{self.report}"


def import_jobs(
    path: str | Path,
    columns: Columns | None = None,
    *,
    recipe: str | None = None,
    workloads: Sequence[str] | str = "resnet50:8",
    card: str = SIZED_ON,
    gpu_unit: float | None = None,
    units: Mapping[str, str] | None = None,
    zero: str | None = None,
    seed: int = 0,
    skip_bad: bool | None = None,
) -> ImportedTasks:
    r"""Return the jobs of a trace as tasks, by arrival; the first arrives at 0.

    Jobs of no GPU are left out. A part of a GPU counts as one; `report.asked_gpu_hours` has the parts.

    Args:
        path: the file; its rows may have any order.
        columns: its columns: `arrival`; one of `duration`, `end` and `iterations`; and, if any, `gpus` (of the job, or
            of each of its `instances`), `start` (a duration is from there to `end`; else from the arrival), `workload`
            (such as resnet50:8), and `id`, one column or several, which must differ.
        recipe: instead, the name of a public trace in `heshare.world.recipes`.
        workloads: what the jobs run, drawn uniformly, where no column says it.
        card: the GPU whose time alone, at its top clock, a duration is; see `iterations`.
        gpu_unit: what is one GPU in the column of GPUs, 100 for percent; 1 unless the recipe says another.
        units: units of moments and durations that are not seconds: {"duration": "ms"}, or us, ns, min, h.
        zero: what a moment of 0 means among seconds from some begin: `moment`, `unknown`, or `judge`, which is
            unknown if it stands far from all others.
        seed: of the drawn workloads.
        skip_bad: leave out rows with a bad cell, such as jobs that never ran; by default only with a recipe.

    Returns:
        The tasks; their `report` has the rows read, kept and left out, by reason, the span and the GPU hours.

    Raises:
        InputError: no such file or column, a bad row, moments of several kinds, or no job.

    Warns:
        LeftOutWarning: rows were left out, or a value has an assumed meaning.

    Example:
        >>> import tempfile
        >>> import heshare as hs
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("TIMESTAMP,GeneratedTokens\n2023-11-16 18:17:04,10\n2023-11-16 18:17:09,8\n")
        ...     file.flush()
        ...     tasks = hs.import_jobs(file.name, recipe="azure-llm", workloads="gpt2:1")
        >>> tasks.report.kept, tasks.report.span_s
        (2, 5.0)
    """
    good = (columns is None) != (recipe is None)
    require("recipe", "both or none", good, "either columns or a recipe", "Name the columns of the file, or a recipe.")
    listed = [workloads] if isinstance(workloads, str) else list(workloads)
    pool = [resident(text).workload for text in listed]
    require("workloads", "none", bool(pool), "at least one, such as resnet50:8", "Name what the jobs run.")
    table = read_jobs(path, columns or recipe or {}, gpu_unit=gpu_unit, units=units, zero=zero, skip_bad=skip_bad)

    drawn = np.random.default_rng(check_whole("seed", seed, least=0)).integers(len(pool), size=len(table.frame))
    named = [own or pool[place] for own, place in zip(table.frame["workload"], drawn, strict=True)]
    per_s = {workload: iterations(workload, 1.0, card) for workload in dict.fromkeys(named)}
    rows = zip(named, *(table.frame[name].tolist() for name in ("arrival_s", "size", "gpus")), strict=True)
    tasks = ImportedTasks(
        Task(number, workload, size if table.sized_in == "iterations" else size * per_s[workload], at_s, gpus=gpus)
        for number, (workload, at_s, size, gpus) in enumerate(rows)
    )
    tasks.report = table.report
    if table.sized_in == "iterations":
        hours = sum(task.iterations / per_s[task.workload] * task.gpus for task in tasks) / 3600.0
        tasks.report = replace(table.report, gpu_hours=hours)
    tasks.report.warn()
    return tasks
