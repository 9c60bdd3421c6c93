"""Tasks from the entries of `jobs.yaml`: copies, sizes, and what is left of them after earlier sessions of a run."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heshare.devices.task_sizes import time_alone_s
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.jobs.run_state import JobHistory
from heshare.shared.errors import require
from heshare.world.task import Task

FREE_ATTEMPTS = 10
"""How often a job is retried after failures that were not its own fault."""


def assigned_jobs(specs: Sequence[JobSpec]) -> tuple[AssignedJob, ...]:
    """Return every copy of every entry, with its key."""
    return tuple(
        AssignedJob(spec.name if spec.count == 1 else f"{spec.name}-{index}", spec, index)
        for spec in specs
        for index in range(spec.count)
    )


def remaining_tasks(
    jobs: Sequence[AssignedJob], history: JobHistory, *, elapsed_s: float = 0.0
) -> tuple[tuple[Task, ...], dict[int, AssignedJob]]:
    """Return the tasks of the jobs that are not over, and the jobs by task id.

    `history` is of the run's earlier sessions; `elapsed_s` is the time since the first start of the run, s.
    """
    tasks: list[Task] = []
    assigned: dict[int, AssignedJob] = {}
    for job in jobs:
        if job.key not in history.over:
            task_id = len(tasks)
            iterations = max(iteration_count(job.spec) - history.did.get(job.key, 0.0), 1e-9)
            arrival_s = max(0.0, job.spec.arrival_s - elapsed_s)
            tasks.append(Task(task_id, job.spec.workload, iterations, arrival_s, gpus=job.spec.gpus))
            assigned[task_id] = replace(job, attempts=history.attempts[job.key])
    return tuple(tasks), assigned


def iteration_count(spec: JobSpec) -> float:
    if spec.iterations is not None:
        return spec.iterations
    assert spec.expected_time_s is not None
    return spec.expected_time_s / time_alone_s(spec.workload)


def check_names(specs: Sequence[JobSpec], file: Path) -> None:
    seen: set[str] = set()
    for job in assigned_jobs(specs):
        found, expected, row = f"two jobs called {job.key!r}", "one job a name, copies included", job.spec.row
        require("name", found, job.key not in seen, expected, "Rename one of the entries.", file=file, row=row)
        seen.add(job.key)


def check_programs(specs: Sequence[JobSpec], file: Path) -> None:
    """Check that the commands exist on this machine; `InputError` for a program or a folder that does not."""
    for spec in specs:
        if not spec.command:
            continue
        row, action, good = spec.row, "Make it, or correct the path.", spec.directory.is_dir()
        require("directory", spec.directory, good, "a folder that exists", action, file=file, row=row)
        name, path = spec.command[0], dict(spec.environment).get("PATH", os.environ.get("PATH"))
        good = shutil.which(str(spec.directory / name) if os.sep in name else name, path=path) is not None
        expected = "a program on the PATH, or the path of one that may be executed"
        action = "Correct the command, or install the program."
        require("command", f"the program {name!r}", good, expected, action, file=file, row=row)
